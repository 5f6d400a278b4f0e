# SPDX-License-Identifier: Apache-2.0
"""The rooms of the house: which room may import which, and what the imports are in fact.

    python tests/house/rooms.py [FOLDER]      prints rooms, floors, arrows and circles of a clone (default: this one)
    python tests/house/rooms.py --lines       writes lines.toml anew: how many lines each room has
    python tests/house/rooms.py --duplicates  prints each pair of places with ``EQUAL`` equal lines or more

A room is a sub-package, or a module that stands beside the rooms. ``FLOORS`` is the plan: a room imports only from the
floors below its own, never from a neighbour on the same floor. ``lines.toml`` holds the most lines that a room may
have, C and the scripts of pages among them: a number falls with its room, or rises with a reason in the commit.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, count
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
FOLDERS = {
    "hardcase_edge": "edge_runtime/hardcase_edge",
    "hardcase_train": "train/hardcase_train",
    "hardcase_export": "export/hardcase_export",
    "hardcase_cloud": "cloud_stub/hardcase_cloud",
    "hardcase": "hardcase",
}
FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "hardcase_edge": (
        ("errors",), ("base", "framing", "hooks"), ("program", "drivers", "record_keys"), ("stream", "settings"),
        ("verifier", "session", "exchange"), ("kernel",), ("joint",), ("bundle",), ("sensors", "link"), ("device",),
        ("fleet.release", "more.batch"), ("more.fronts",), ("fleet.store",),
        ("fleet.update", "fleet.outbox", "fleet.identity"),
        ("more.audits",),
        ("fleet.operations", "fleet.card", "fleet.diagnosis", "more.drift", "more.servo", "more.sinks"),
        ("running", "more.measuring"), ("cli",),
    ),
    "hardcase_train": (  # a method is a room, imports no other
        ("columns", "settings", "structured", "successors"), ("data", "method"), ("policy", "hpc"),
        ("tasks", "trees", "linear"), ("stages",), ("policy_estimator",), ("estimator",), ("checks",), ("methods.*",),
        ("sweep", "regressor"),
    ),
    "hardcase_export": (
        ("drafts", "sources", "publish", "summary", "to_c", "zig"),
        ("to_js", "to_micropython", "to_esphome", "integers", "importing"),
        ("scorers",), ("picking",), ("targets",), ("checked", "to_onnx", "to_tflite"), ("joint", "hpc_file"),
        ("bundle", "runtimes", "foreign_model"), ("own_targets",),
    ),
    "hardcase_cloud": (
        ("mqtt", "keep.metrics"), ("broker", "answer", "keep.records"), ("keep.dashboard", "backends"),
        ("rollout.updates", "rollout.enrolment"), ("rollout.waves",), ("sim.slow_link",), ("sim.fleet",),
        ("sim.replay", "commands"),
    ),
    "hardcase": (
        ("options",), ("measuring",), ("reports",), ("training", "flashing", "playground", "gate", "home"),
        ("demo", "exports", "keys"), ("api",), ("serving",), ("verbs",), ("cli",),
    ),
}  # fmt: skip

Graph = dict[str, set[str]]
LINES = HERE / "tests" / "house" / "lines.toml"
SOURCES = (".py", ".c", ".h", ".js", ".css", ".html", ".jinja")
SLACK = 30  # lines that a room may have fewer than its number
EQUAL = 6  # lines in a row that make two places a pair
HEADS = re.compile(r"^ *(?:from [\w.]+ import|import|__all__ =).*?(?:[(\[]\n[^)\]]*[)\]]|$)", re.M)
WORD = re.compile("[A-Za-z]")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module; every rule asks for those of the whole house."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module's tree, found once for all rules."""
    return list(ast.walk(parsed(path)))


def module_name(path: Path, folder: Path) -> str:
    """A module's name below its distribution, such as ``program.cost``; of a package, the package's."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str, groups: Collection[str] = ("methods",)) -> str:
    """The room of a module: its first word, and in a group of rooms its second, too."""
    words = module.split(".")
    return ".".join(words[:2]) if words[0] in groups and len(words) > 1 else words[0]


def groups_of(modules: Iterable[str]) -> set[str]:
    """The groups of rooms among modules: packages of two floors that have packages alone."""
    names = {tuple(m.split(".")) for m in modules}
    rooms = {m[:2] for m in names if len(m) > 2}
    return {g for g, *_ in rooms} - {m[0] for m in names if len(m) == 2 and m not in rooms}


def imported(path: Path, package: str, distribution: str) -> Iterator[str]:
    """Dotted names that a module imports from its own distribution, inside functions too; ``package`` is its own."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            base = package.split(".") if package else []
            above = base[: len(base) - node.level + 1] if node.level else []
            name = ".".join([*above, *(node.module.split(".") if node.module else [])])
            if node.level == 0:
                if name.split(".")[0] != distribution:
                    continue
                name = name.partition(".")[2]
            yield from (f"{name}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.startswith(f"{distribution}."))


def module_graph(folder: Path, distribution: str) -> Graph:
    """Every module of a distribution, and the modules of the same that it imports."""
    paths = {module_name(p, folder): p for p in sorted(folder.rglob("*.py"))}
    graph: Graph = {}
    for name, path in paths.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = set()
        for target in imported(path, package, distribution):
            while target and target not in paths:
                target = target.rpartition(".")[0]
            if target and target != name:
                found.add(target)
        graph[name] = found
    return graph


def room_graph(modules: Mapping[str, set[str]]) -> Graph:
    """Every room, and the rooms that its modules import; a facade, and a registry above a group, are none."""
    groups = groups_of(modules)
    above = {"", *groups}
    graph: Graph = {room_of(m, groups): set() for m in modules if m not in above}
    for module, targets in modules.items():
        if module not in above:
            room = room_of(module, groups)
            graph[room] |= {room_of(t, groups) for t in targets if t not in above} - {room}
    return graph


def floors(graph: Mapping[str, set[str]]) -> int:
    """How many floors the imports make: the longest way down; 0 where they go in circles."""
    heights: dict[str, int] = {}
    try:
        for name in TopologicalSorter(graph).static_order():
            heights[name] = 1 + max((heights[t] for t in graph[name]), default=0)
    except CycleError:
        return 0
    return max(heights.values(), default=0)


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Pairs that import each other, by whatever way."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(graph[start])
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += graph[name]
        return seen

    ways = {name: reach(name) for name in graph}
    return [(a, b) for a in graph for b in sorted(ways[a]) if a < b and a in ways[b]]


def wrong_arrows(graph: Mapping[str, set[str]], plan: tuple[tuple[str, ...], ...]) -> list[str]:
    """What a plan does not allow: rooms that it does not know, and arrows that do not go down."""
    floor = {room: k for k, rooms in enumerate(plan) for room in rooms}
    floor |= {room: floor["methods.*"] for room in graph if "methods.*" in floor and room.startswith("methods.")}
    unknown = [f"{room} is on no floor" for room in graph if room not in floor]
    arrows = [(a, b) for a in graph for b in sorted(graph[a]) if a in floor and b in floor]
    return unknown + [f"{a} imports {b}" for a, b in arrows if floor[b] >= floor[a]]


def lines_of(root: Path) -> dict[str, dict[str, int]]:
    """The lines of each room of each distribution, modules above the rooms as "" and the folders of tests as rooms."""
    return {name: lines_in(root / folder) for name, folder in {**FOLDERS, "tests": "tests"}.items()}


def lines_in(folder: Path) -> dict[str, int]:
    """The lines of each room of a folder."""
    counts: dict[str, int] = {}
    groups = groups_of(module_name(p, folder) for p in folder.rglob("*.py")) if folder.name != "tests" else set()
    for path in sorted(folder.rglob("*")):
        if path.suffix in SOURCES and "__pycache__" not in path.parts:
            room = room_of(module_name(path, folder), groups) if len(path.relative_to(folder).parts) > 1 else "."
            counts[room] = counts.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return dict(sorted(counts.items()))


def grown(lines: Mapping[str, Mapping[str, int]], most: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Rooms that have more lines than their number, or far fewer, and numbers of rooms that are gone."""
    wrong = []
    for part in sorted({*lines, *most}):
        for room in sorted({*lines.get(part, {}), *most.get(part, {})}):
            n, number = lines.get(part, {}).get(room, 0), most.get(part, {}).get(room, 0)
            if n > number or n < number - SLACK or not n:
                wrong.append(f"{part}: {room} has {n:,} lines, and {LINES.name} says {number:,}")
    return wrong


def told_lines(path: Path) -> list[tuple[int, str]]:
    """A module's lines with a word in them, and their numbers, but for comments, imports and ``__all__``."""
    text = HEADS.sub(lambda head: "\n" * head[0].count("\n"), path.read_text(encoding="utf-8"))
    lines = ((k, line.strip()) for k, line in enumerate(text.splitlines(), 1))
    return [(k, line) for k, line in lines if line[:1] not in ("", "#") and WORD.search(line)]


def duplicates(root: Path) -> list[tuple[str, str, int]]:
    """Pairs of places with at least ``EQUAL`` equal lines in a row, and how many they are."""
    folders = (*FOLDERS.values(), "benchmarks")
    files = {p: told_lines(p) for folder in folders for p in sorted((root / folder).rglob("*.py"))}
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = {}
    for path, lines in files.items():
        for k in range(len(lines) - EQUAL + 1):
            places.setdefault(tuple(line for _, line in lines[k : k + EQUAL]), []).append((path, k))
    twins = {pair for among in places.values() for pair in combinations(among, 2)}
    found = []
    for (a, i), (b, j) in twins:
        if ((a, i - 1), (b, j - 1)) not in twins:  # where a run of equal lines begins
            n = next(n for n in count(1) if ((a, i + n), (b, j + n)) not in twins)
            at = (f"{path.relative_to(root)}:{files[path][k][0]}" for path, k in ((a, i), (b, j)))
            found.append((*at, n + EQUAL - 1))
    return sorted(found)


def report(root: Path) -> str:
    """A line per distribution."""
    title = ("distribution", "modules", "lines", "floors", "arrows", "circles", "rooms", "floors", "arrows", "largest")
    rows = [("", "of modules", "", "", "", "", "of rooms", "", "", ""), title]
    for name, folder in FOLDERS.items():
        modules = module_graph(root / folder, name)
        n_lines = sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (root / folder).rglob("*.py"))
        rooms = room_graph(modules)
        files = [m for m in modules if not (root / folder / m.replace(".", "/")).is_dir()]
        groups = groups_of(modules)
        largest = max(sum(room_of(m, groups) == r for m in files) for r in rooms)
        arrows = sum(map(len, modules.values()))
        part = (len(files), n_lines, floors(modules), arrows, len(circles(modules)))
        rows.append(
            (name, *map(str, part), *map(str, (len(rooms), floors(rooms), sum(map(len, rooms.values())), largest)))
        )
    return "\n".join("".join(f"{cell:>{16 if k == 0 else 11}s}" for k, cell in enumerate(row)) for row in rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--lines"]:
        parts = [
            f"[{name}]\n" + "".join(f'"{room}" = {n}\n' for room, n in rooms.items())
            for name, rooms in lines_of(HERE).items()
        ]
        LINES.write_text("\n".join(parts), encoding="utf-8")
        sys.exit()
    if sys.argv[1:2] == ["--duplicates"]:
        pairs = duplicates(Path(sys.argv[2]) if len(sys.argv) > 2 else HERE)
        print(*(f"{a} {b} {n} lines" for a, b, n in pairs), f"{len(pairs)} pairs", sep="\n")
        sys.exit()
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
