# SPDX-License-Identifier: Apache-2.0
"""A page of a report: one HTML file with its style inside, without scripts, which loads nothing and prints well.

A policy in its head forbids the browser to run or load anything, so even a fault in escaping could do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from .markup import STYLE, safe

__all__ = ["bar", "card", "details", "figure", "is_page_head", "page", "section", "strip", "table"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LAYOUT = """
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; background: var(--paper); color: var(--ink) }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 } h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem }
p { margin: .5rem 0; max-width: 46rem } .soft, caption { color: var(--soft) } .bad { color: var(--accent) }
code { font: .9em ui-monospace, monospace; background: var(--card); padding: .1em .3em; border-radius: 4px }
pre { background: var(--card); padding: .7rem .9rem; border-radius: 8px; overflow-x: auto } pre code { padding: 0 }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .8rem; margin: 1.2rem 0 }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem 1rem }
.card b { display: block; font-size: 1.6rem; line-height: 1.3 } .card span { color: var(--soft); font-size: .85rem }
.wide { overflow-x: auto; margin: .8rem 0 } .wide > svg { max-width: 100%; height: auto }
.wide > svg.policy { max-width: none }
table { border-collapse: collapse; font-size: .88rem; min-width: 24rem } caption { text-align: left; padding: .2rem 0 }
th, td { padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--line); text-align: left }
th { font-weight: 600 } .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.best td { font-weight: 600 } td:first-child { min-width: 7rem }
td { overflow-wrap: anywhere } td.n { overflow-wrap: normal }
.bar { display: inline-block; width: 7rem; height: .55rem; border-radius: 3px; margin-left: .6rem;
  background: var(--line) }
.bar i { display: block; height: 100%; border-radius: 3px; background: var(--buy) }
details { margin: .6rem 0 } summary { cursor: pointer; color: var(--soft) }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem }
@media print { main { max-width: none; padding: 0 } h2 { break-after: avoid } tr, svg, .card { break-inside: avoid }
  .wide { overflow: visible } .wide > svg, .wide > svg.policy { max-width: 100% } pre { white-space: pre-wrap }
  ::details-content { content-visibility: visible } }
"""


BEGINNING = '<!doctype html>\n<html lang="en" class="hc">'


def is_page_head(head: bytes) -> bool:
    """Whether a file that begins so is a page of hardcase: what may be replaced by another."""
    return head.startswith(BEGINNING.encode())


def page(heading: str, body: Sequence[str]) -> str:
    """The whole page; ``heading`` is text, the parts of the body are HTML."""
    return (
        f'{BEGINNING}<head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{safe(heading)}</title>\n<style>{STYLE}{LAYOUT}</style></head>\n<body><main>\n"
        f"<h1>{safe(heading)}</h1>\n"
        + "\n".join(body)
        + f"\n<footer>Written by hardcase {version('hardcase')}. This page has no script and loads nothing.</footer>\n"
        "</main></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """A section; ``heading`` is text, the parts are HTML."""
    return f"<section><h2>{safe(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def card(number: str, words: str) -> str:
    """A large figure with a few words; both are HTML."""
    return f'<div class="card"><b>{number}</b><span>{words}</span></div>'


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "", words: int = 1, best: int | None = None
) -> str:
    """A table of cells in HTML.

    Parameters
    ----------
    head : titles, as text
    words : number of columns from the left that hold words; the others hold numbers
    best : number of a row to stress
    """
    kinds = ["" if k < words else ' class="n"' for k in range(len(head))]
    titles = "".join(f'<th scope="col"{kind}>{safe(title)}</th>' for kind, title in zip(kinds, head, strict=True))
    lines = []
    for k, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        lines.append(f'<tr class="best">{cells}</tr>' if k == best else f"<tr>{cells}</tr>")
    above = f"<caption>{safe(caption)}</caption>" if caption else ""
    body = "\n".join(lines)
    return f'<div class="wide"><table>{above}<thead><tr>{titles}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def figure(svg: str) -> str:
    """A picture in the page."""
    return f'<div class="wide">{svg[svg.index("<svg") :]}</div>'


def details(summary: str, *parts: str) -> str:
    """What is shown on a click, and in print; ``summary`` is text, the parts are HTML."""
    return f"<details><summary>{safe(summary)}</summary>\n" + "\n".join(parts) + "</details>"


def bar(share: float) -> str:
    """A share as a bar."""
    return f'<span class="bar"><i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i></span>'


def strip(value: float | None, low: float, high: float) -> str:
    """A share from 0 to 1 as a dot, and its interval as a line."""
    if value is None:
        return ""
    x, a, b = (round(4 + 72 * v, 1) for v in (value, low, high))
    return (
        '<svg class="hc" width="80" height="12" aria-hidden="true">'
        f'<path d="M4 6H76" class="grid"/><path d="M{a} 6H{b}" stroke="var(--soft)" stroke-width="3"/>'
        f'<circle cx="{x}" cy="6" r="3.4" fill="var(--ink)"/></svg>'
    )
