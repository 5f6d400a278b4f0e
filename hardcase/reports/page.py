# SPDX-License-Identifier: Apache-2.0
"""Pages of reports, and texts of their pictures: what Python has not marked as HTML is text.

The templates have the words and their order; Python gives them texts, numbers, rows of cells and pictures. What a
template shows goes through ``escape.markup``, unless one of the functions below has made it. A page is one file with
its style inside; it has no script of its own, loads nothing (``templates/page.html.jinja``), and prints well.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hardcase_edge.base.escape import markup
from hardcase_edge.base.escape import markup as safe

BEGINNING = '<!doctype html>\n<html lang="en" class="hc">'
PERCENT = "\u00a0%"
LIGHTER = 0.45  # share of the way to white
# one set of colours for pages and pictures; a picture that stands alone carries it too
STYLE = """
.hc { --ink: #1d2430; --soft: #5b6575; --line: #d5dae2; --paper: #ffffff; --card: #f6f7f9; --accent: #b3261e;
  --local: #1a7f4b; --cloud: #1f6fb2; --buy: #8a6100; --late: #c0392b; color: var(--ink) }
@media (prefers-color-scheme: dark) { .hc { --ink: #e6e9ee; --soft: #a3adbb; --line: #3a424e; --paper: #14181f;
  --card: #1c222b; --accent: #ff8a80; --local: #58c48d; --cloud: #6db3ee; --buy: #e0b04c; --late: #ff8a80 } }
@media print { .hc { --ink: #000000; --soft: #444444; --line: #bbbbbb; --paper: #ffffff; --card: #ffffff;
  --accent: #b3261e; --local: #1a7f4b; --cloud: #1f6fb2; --buy: #8a6100; --late: #c0392b } }
svg.hc { font: 12px system-ui, sans-serif; background: var(--paper) }
svg.hc text { fill: var(--ink) } svg.hc .soft { fill: var(--soft) } svg.hc .grid { stroke: var(--line) }
"""


# between these marks, which no name can write, a report has its playground
TOUCH, UNTOUCHED = "<!-- playground -->", "<!-- end of playground -->"
NO_PLAYGROUND = Markup(f"""{TOUCH}
<p><code>hardcase playground model.hcb --build build</code> makes this page one on which you change readings, break
sensors and move budgets; it needs Zig's C compiler, <code>pip install ziglang</code>.</p>
{UNTOUCHED}""")
POLICY = "default-src 'none'; "


def is_page_head(head: bytes) -> bool:
    """Whether a file that begins so is a page of hardcase: what may be replaced by another."""
    return head.startswith(BEGINNING.encode())


def render(name: str, /, **values: Any) -> str:
    """The page that a template makes of these values; ``heading`` is its title.

    Raises
    ------
    jinja2.UndefinedError
        The template shows a value that is not among them.
    """
    return PAGES.get_template(f"{name}.html.jinja").render(values)


def with_playground(report: str, page: str) -> str | None:
    """A report with the page of a playground in it, behind a click; None if the report has no place for it.

    The page stays a document of its own, without the report's origin. The report lets run what the page does, the one
    script with its digest, because a document within another obeys the policies of both.
    """
    before, mark, rest = report.partition(TOUCH)
    _, end, after = rest.partition(UNTOUCHED)
    head, found, more = before.partition(f'content="{POLICY}')
    allowed = re.search("(script-src [^;]*; )style-src", page)
    if not (mark and end and found and allowed):
        return None
    more = more[more.index("style-src") :]
    frame = Markup(
        '\n<details class="touch"><summary>Touch it: change readings, break sensors, move budgets</summary>\n'
        '<iframe title="a policy to touch" sandbox="allow-scripts" loading="lazy" width="100%" height="900" '
        'style="border:1px solid var(--line);border-radius:10px" srcdoc="{}"></iframe></details>\n'
    ).format(page)
    return f"{head}{found}{allowed[1]}{more}{mark}{frame}{end}{after}"


def cut(text: object, limit: int) -> Markup:
    """At most ``limit`` characters of a text, which is otherwise cut at ``escape.MAX_CHARACTERS``."""
    return Markup(markup(text, limit))


def data(value: float, text: str) -> Markup:
    """A number as text of HTML that also holds its exact value.

    >>> str(data(0.98866, "0.9887"))
    '<data value="0.98866">0.9887</data>'
    """
    return Markup('<data value="{}">{}</data>').format(repr(value), text)


def figure(svg: str) -> Markup:
    """A picture in the page; ``svg`` is a document that hardcase has drawn."""
    return Markup(f'<div class="wide">{svg[svg.index("<svg") :]}</div>')


def bar(share: float) -> Markup:
    """A share as a bar."""
    return Markup('<span class="bar"><i style="width:{:.1f}%"></i></span>').format(100 * min(max(share, 0.0), 1.0))


def strip(value: float | None, low: float, high: float) -> Markup:
    """A share from 0 to 1 as a dot, and its interval as a line."""
    if value is None:
        return Markup("")
    x, a, b = (round(4 + 72 * v, 1) for v in (value, low, high))
    return Markup(
        '<svg class="hc" width="80" height="12" aria-hidden="true">'
        '<path d="M4 6H76" class="grid"/><path d="M{} 6H{}" stroke="var(--soft)" stroke-width="3"/>'
        '<circle cx="{}" cy="6" r="3.4" fill="var(--ink)"/></svg>'
    ).format(a, b, x)


# Text and colours of pictures and pages: in a picture every name goes through ``safe``; every number gets its form.


def title(value: object) -> str:
    """A tooltip of SVG."""
    return f"<title>{safe(value)}</title>"


def amount(value: float) -> str:
    """A cost: two decimals from 1 on, otherwise three significant digits.

    >>> amount(980.1604), amount(0.0012345), amount(0), amount(1234567)
    ('980.16', '0.00123', '0', '1,234,567')
    """
    if value == 0 or abs(value) >= 100_000:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as a percentage, rounded so that few are not none and many are not all; it never breaks over two lines.

    >>> [percent(share).replace("\\xa0", " ") for share in (0.5, 0.0004, 0.99996, 1)]
    ['50.0 %', '0.04 %', '99.996 %', '100 %']
    """
    if share in (0, 1):
        return f"{100 * share:.0f}{PERCENT}"
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if float(text) not in (0.0, 100.0) and (digits > 1 or 0.1 <= float(text) <= 99.9):
            return text + PERCENT
    return f"{'< 0.001' if share < 0.5 else '> 99.999'}{PERCENT}"


def dark(colour: str) -> str:
    """The colour for a dark page: nearer to white by ``LIGHTER``.

    >>> dark("#000000")
    '#727272'
    """
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{int(part + (255 - part) * LIGHTER):02x}" for part in parts)


PAGES = Environment(
    loader=PackageLoader(__package__),
    autoescape=True,
    finalize=lambda value: value if isinstance(value, Markup) else Markup(markup(value)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
PAGES.filters |= {"amount": amount, "count": "{:,}".format, "cut": cut, "fixed": "{:.4f}".format, "percent": percent}
PAGES.globals |= {"beginning": Markup(BEGINNING), "style": Markup(STYLE), "version": version("hardcase")}
