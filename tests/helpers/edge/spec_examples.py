# SPDX-License-Identifier: Apache-2.0
"""The worked examples of the SPEC pages; ``python -m tests.helpers.edge.spec_examples`` writes them there."""

from __future__ import annotations

import re
from itertools import pairwise

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.link.wire import OK, Reply, Request, pack_reply, pack_request
from hardcase_edge.program import definition as d
from hardcase_edge.program.encode import encode
from hardcase_edge.program.format import COLUMN, FEATURE, HEADER, NODE, POOLS, SCORER, SENSOR
from hardcase_edge.session.session import Decision
from tests.helpers.places import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- example: ([a-z ]+) -->\n)(?:\n?```text\n(.*?)```\n)?", re.S)
HPC, ID = bytes(range(32)), bytes(range(0xA0, 0xB0))


def example_program() -> d.Program:
    """One sensor, one reading, one tree of one node, two classes."""
    tree = d.Tree(0, 1, (0,), (-32767,), (True,), (), (-3, 4))
    return d.Program(
        features=(d.Feature("f32"),),
        sensors=(d.Sensor((0,), (2_500_000,)),),
        uplink=d.Uplink(),
        columns=(d.Column(0, d.Rank((0.5, 1.5))),),
        scorers=(d.Trees((0,), (0,), (tree,)),),
        nodes=(d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1), margins=(4,), confidences=(6000, 9000))),
        n_classes=2,
    )


def example_bundle() -> bytes:
    """That program with one golden case."""
    manifest = Manifest("example", "mJ", ("x",), ("s",), ("low", "high"))
    case = GoldenCase((0.75,), (), None, 1, True, None, Decision(1, 9000, "local", 2_500_000, (0,), (0, 1)))
    return pack_bundle(Bundle(manifest.to_json(), example_program(), (case,)))


def dump(data: bytes, text: slice = slice(0, 0)) -> str:
    """Thirty-two bytes a line, offset and hex; where ``text`` is, 96 characters a line."""
    parts = ((0, text.start, 32), (text.start, text.stop, 96), (text.stop, len(data), 32))
    lines = []
    for start, stop, width in parts:
        for at in range(start, stop, width):
            row = data[at : min(at + width, stop)]
            lines.append(f"{at:04x}  {row.decode('ascii') if width > 32 else row.hex(' ', -4)}".rstrip())
    return "\n".join(lines)


def examples() -> dict[str, str]:
    """Every example's text by its name in the pages."""
    tensors = encode(example_program())
    words = tensors["program"].tolist()
    names = ["header", "feature 0", "sensor 0", "column 0", "scorer 0", "node 0", "node 1"]
    sizes = [HEADER, FEATURE, SENSOR, COLUMN, SCORER, NODE, NODE]
    ends = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    assert ends[-1] == len(words)
    rows = [f"{name:10}{' '.join(map(str, words[a:b]))}" for name, (a, b) in zip(names, pairwise(ends), strict=True)]
    pools = [f"{name:4}{' '.join(map(str, tensors[name].tolist()))}" for name in POOLS if name in tensors]
    request = pack_request(Request(ID, HPC, 1500, (7, None, -2.25)), ("i32", "f32", "f64"))
    return {
        "program words": "\n".join(rows),
        "program pools": "\n".join(pools),
        "bundle": dump(example_bundle(), slice(8, 8 + int.from_bytes(example_bundle()[:8], "little"))),
        "request": dump(request),
        "reply": dump(pack_reply(Reply(ID, HPC, OK, 3, 9000))),
    }


def put_examples() -> None:
    """Write the computed examples into the pages."""
    texts = examples()
    for page in sorted(DOCS.glob("SPEC-*-v1.md")):
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda m: f"{m[1]}\n```text\n{texts[m[2]]}\n```\n", old)
        page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    put_examples()
