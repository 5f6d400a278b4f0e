# SPDX-License-Identifier: Apache-2.0
"""The site: `make docs` builds README.md, ARCHITECTURE.md, CHANGELOG.md and docs/ into build/site, strictly.

The source folder is the repository, so a link is right on the site if it is right in the repository. The pages stay
plain Markdown: the navigation is NAV below, and the build adds it to docs/index.md and to the two lists of pages. It
writes the lists of all modules, commands and keys into docs/modules.md, docs/commands.md and docs/configuration.md,
which have only a place for them, and the page of a policy of the rig, which it trains.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

from hardcase.cli import main

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.house import architecture, commands, configuration  # noqa: E402

NAV = {
    "Tutorials": ("README", "examples/letters/README", "examples/hydraulic/README"),
    "How-to": (
        "docs/training",
        "docs/tables",
        "docs/targets",
        "docs/methods",
        "docs/f0",
        "docs/picking",
        "docs/python",
        "docs/reports",
        "docs/playground",
        "docs/gate",
        "docs/gate-server",
        "docs/homeassistant",
        "docs/devices",
        "docs/sensors",
        "docs/energy",
        "docs/items",
        "docs/device-cloud",
        "docs/labels",
        "docs/flashing",
        "docs/operations",
        "docs/drift",
        "docs/budgets",
        "docs/updates",
        "docs/over-the-air",
        "docs/microcontrollers",
        "docs/micropython",
        "docs/esphome",
        "docs/boards",
        "docs/exports",
        "docs/hooks",
        "docs/import",
        "docs/cloud",
        "docs/large-models",
        "docs/brokers",
        "docs/fleet-store",
        "docs/rollouts",
        "docs/fleet",
    ),
    "Reference": (
        "docs/configuration",
        "docs/commands",
        "docs/maturity",
        "docs/modules",
        "docs/glossary",
        "docs/SPEC-program-v1",
        "docs/SPEC-bundle-v1",
        "docs/SPEC-joint-v1",
        "docs/SPEC-image-v1",
        "docs/SPEC-wire-v1",
        "docs/SPEC-store-v1",
        "CHANGELOG",
    ),
    "Explanation": (
        "ARCHITECTURE",
        "docs/math",
        "docs/math-gates",
        "docs/math-trees",
        "docs/math-promises",
        "docs/math-classifiers",
        "docs/math-graphs",
        "docs/math-labels",
        "docs/math-items",
        "docs/math-drift",
        "docs/THREATS",
        "docs/benchmarks/README",
        "docs/decisions/README",
        "docs/style",
    ),
}
LIVE = "rig.html"
LIVE_BY = (  # commands of hardcase
    f"train {ROOT}/examples/hydraulic/hardcase.toml --effort quick --method adapt-gbrt --no-baselines --quiet "
    "--out {folder}",
    "export {folder} --max-loss 0.03 --out {folder}/model.hcb",
    "playground {folder}/model.hcb --build {folder}",
)
TOUCH = (
    f'\n```{{raw}} html\n<p><a href="../{LIVE}">The policy of the rig</a>, to touch:</p>\n'
    f'<iframe src="../{LIVE}" title="the policy of the rig" loading="lazy" width="100%" height="900"></iframe>\n```\n'
)
LISTS = ("docs/benchmarks/README", "docs/decisions/README")  # each is followed by all pages of its folder
FOLDER_LINK = re.compile(r"(\]\((?!https?:)[\w./-]*[\w/])(#[\w-]+)?\)")

project = "hardcase"
html_title = "hardcase"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [f"{page}.md" for pages in NAV.values() for page in pages] + ["docs/**.md"]
exclude_patterns = [".*", "build", "dist", "**/__pycache__"]  # folders that need not be searched
myst_heading_anchors = 4  # of all headings, named as on code hosts: #a-promise
nitpicky = True  # `make docs` turns every warning into an error, and suppresses none

html_theme = "furo"  # its fonts are the reader's own; nothing is loaded from elsewhere
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["site"]  # index.html, which leads to docs/index.html


def toctree(pages: tuple[str, ...], caption: str = "", hidden: bool = True) -> str:
    """The directive that puts pages into the navigation."""
    options = [":hidden:"] * hidden + [f":caption: {caption}"] * bool(caption) + [":glob:"]
    return "\n".join(["", "```{toctree}", *options, "", *(f"/{page}" for page in pages), "```", ""])


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """A page as the site has it: with its part of the navigation, and links to folders as links to their README.md."""
    folder = (ROOT / docname).parent

    def to_readme(link: re.Match[str]) -> str:
        path = link[1].removeprefix("](")
        return f"{link[1].rstrip('/')}/README.md{link[2] or ''})" if (folder / path).is_dir() else link[0]

    text = FOLDER_LINK.sub(to_readme, source[0])
    if docname == "docs/modules":
        text = text.replace(architecture.PLACE, architecture.tables())
    if docname == "docs/configuration":
        text = text.replace(configuration.PLACE, configuration.table())
    if docname == "docs/commands":
        text = text.replace(commands.PLACE, commands.listing())
    if docname == "docs/playground":
        text = text.replace("\n| control", f"{TOUCH}\n| control", 1)
    if docname == root_doc:
        text += "".join(toctree(pages, caption) for caption, pages in NAV.items())
    if docname in LISTS:
        text += toctree((f"{docname.rpartition('/')[0]}/*",))
    source[0] = text


def write_live(app: Sphinx, error: Exception | None) -> None:
    """The page of a policy of the rig, with the front that it is on, beside the site's own."""
    if error is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build"
        for words in LIVE_BY:
            with contextlib.redirect_stdout(io.StringIO()):
                if main(words.format(folder=build).split()):
                    raise RuntimeError(f"the live page was not made by: hardcase {words}")
        (Path(app.outdir) / LIVE).write_bytes((build / "playground.html").read_bytes())


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", complete)
    app.connect("build-finished", write_live)
    return {"parallel_read_safe": True}
