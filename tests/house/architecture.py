# SPDX-License-Identifier: Apache-2.0
"""The floors of ARCHITECTURE.md, and the list of all rooms and modules, from the modules' own first lines.

    python tests/house/architecture.py              writes the floors into ARCHITECTURE.md
    python tests/house/architecture.py --modules    prints the list that `make docs` puts into docs/modules.md

A test compares the floors with the code; the list is made anew for each site, so neither page is older than the code.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE))

from tests.house.rooms import FLOORS, FOLDERS, groups_of, module_graph, parsed, room_graph, room_of  # noqa: E402

PAGE = HERE / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- /rooms -->"
PLACE = "<!-- modules -->\n"  # where docs/modules.md has the list on the site
MAX_PAGE_BYTES = 15_360  # a page that one reads whole before a first change


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(parsed(path)) or ""
    return text.partition("\n")[0]


@cache
def tables() -> str:
    """Markdown: for each distribution its rooms from the lowest floor up, for each room its modules."""
    lines = []
    for distribution, folder in FOLDERS.items():
        root = HERE / folder
        lines += [f"### {distribution}", "", first_line(root / "__init__.py"), ""]
        modules = module_graph(root, distribution)
        rooms, groups = room_graph(modules), groups_of(modules)
        for k, floor in enumerate(FLOORS[distribution], start=1):
            methods = sorted(room for room in rooms if room.startswith("methods."))
            for room in methods if floor == ("methods.*",) else floor:
                path = root / room.replace(".", "/")
                below = ", ".join(f"`{r}`" for r in sorted(rooms[room])) or "none below"
                if not path.is_dir():
                    lines += [
                        f"**`{room}.py`** (floor {k}; imports rooms: {below}): {first_line(path.with_suffix('.py'))}",
                        "",
                    ]
                    continue
                about = f"(floor {k}; imports rooms: {below}): {first_line(path / '__init__.py')}"
                lines.append(f"**`{room.replace('.', '/')}/`** {about}")
                lines += ["", "| module | what lives there |", "|---|---|"]
                files = sorted(m for m in modules if room_of(m, groups) == room and m not in (room, ""))
                for module in files:
                    file = root / f"{module.replace('.', '/')}.py"
                    if file.exists():
                        lines.append(f"| `{file.relative_to(path)}` | {first_line(file)} |")
                lines.append("")
    return "\n".join(lines)


def floors() -> str:
    """Markdown: for each distribution a table whose rows are its floors, the lowest first."""
    lines = []
    for distribution in FOLDERS:
        lines += [f"| | `{distribution}` |", "|---|---|"]
        for k, floor in enumerate(FLOORS[distribution], start=1):
            lines.append(f"| {k} | {', '.join(f'`{room}`' for room in floor)} |")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """ARCHITECTURE.md as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(f"{BEGIN}.*{END}", lambda _: BEGIN + floors() + END, text, flags=re.S)


if __name__ == "__main__":
    if sys.argv[1:] == ["--modules"]:
        print(tables())
    else:
        PAGE.write_text(page(), encoding="utf-8")
