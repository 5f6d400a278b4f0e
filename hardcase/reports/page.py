# SPDX-License-Identifier: Apache-2.0
"""Pages of reports: templates of this package, in which whatever Python has not marked as HTML is text.

The templates have the words and their order; Python gives them texts, numbers, rows of cells and pictures. What a
template shows goes through ``escape.markup``, unless one of the functions below has made it. A page is one file with
its style inside; it has no script, loads nothing (``templates/page.html.jinja``), and prints well.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hardcase_edge.base.escape import markup

from .markup import STYLE, amount, percent

__all__ = ["bar", "cut", "data", "figure", "is_page_head", "render", "strip"]

BEGINNING = '<!doctype html>\n<html lang="en" class="hc">'


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
