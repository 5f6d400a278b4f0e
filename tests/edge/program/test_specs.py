# SPDX-License-Identifier: Apache-2.0
"""The SPEC pages say what the code does: their tables, limits and examples are read and compared."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import get_args

import pytest

from hardcase_edge.bundle import evidence, golden, load, manifest, signature, value
from hardcase_edge.bundle import file as bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.fleet.identity import messages
from hardcase_edge.link import wire
from hardcase_edge.program import decode as decoder
from hardcase_edge.program import definition as program
from hardcase_edge.program import format as layout
from hardcase_edge.program import limits
from hardcase_edge.program.encode import encode
from hardcase_edge.program.kinds import ANSWERS
from hardcase_edge.program.readings import DTYPES
from hardcase_edge.program.window import WINDOW_FEATURES
from hardcase_edge.session import recorded
from hardcase_edge.verifier import costs as paths
from tests.golden.make_golden import golden_program
from tests.helpers.edge.spec_examples import BLOCK, DOCS, example_bundle, examples

PROGRAM = (DOCS / "SPEC-program-v1.md").read_text(encoding="utf-8")
BUNDLE = (DOCS / "SPEC-bundle-v1.md").read_text(encoding="utf-8")
WIRE = (DOCS / "SPEC-wire-v1.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next heading of any level."""
    start = page.index(heading) + len(heading)
    rest = page[start:]
    end = re.search(r"^#", rest, re.M)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of the first table in a text, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize("name", examples())
def test_a_worked_example_is_what_the_code_gives(name: str) -> None:
    shown = {m[2]: m[3] for page in (PROGRAM, BUNDLE, WIRE) for m in BLOCK.finditer(page)}
    assert set(shown) == set(examples())
    assert shown[name].rstrip("\n") == examples()[name]


def test_the_example_loads_and_decides_as_the_text_says() -> None:
    loaded = load_bytes(example_bundle())
    (case,) = loaded.bundle.golden
    assert (case.expected.result, case.expected.confidence) == (1, 9000)


# ---------------------------------------------------------------- the program


def headings() -> Iterator[tuple[str, int, int]]:
    for m in re.finditer(r"^(####? 6\.[\d.]* .*?): (\d+)(?: of (\d+))? words$", PROGRAM, re.M):
        yield m[0], int(m[2]), int(m[3] or m[2])


SIZES = {
    "Header": layout.HEADER, "Feature": layout.FEATURE, "Sensor": layout.SENSOR, "Column": layout.COLUMN,
    "Scorer": layout.SCORER, "Tree": layout.TREE, "Node": layout.NODE, "Candidate": layout.CANDIDATE,
    "Layer": layout.LAYER,
    **{kind.__name__: layout.SCORER for kind in get_args(program.Scorer)},
    **{kind.__name__: layout.NODE for kind in get_args(program.Node)},
}  # fmt: skip


@pytest.mark.parametrize(("heading", "used", "size"), list(headings()))
def test_a_records_table_has_its_words(heading: str, used: int, size: int) -> None:
    name = heading.split()[2].rstrip(":")
    assert size == SIZES[name]
    table = rows(section(PROGRAM, heading))
    if table:
        assert [int(row[0]) for row in table] == list(range(used))


def test_every_record_has_a_table() -> None:
    assert {heading.split()[2].rstrip(":") for heading, _, _ in headings()} == set(SIZES)


def test_the_words_in_use_are_those_the_decoder_reads() -> None:
    used = {heading.split()[2].rstrip(":"): n for heading, n, _ in headings()}
    nodes = ("Acquire", "Branch", "Select", "Answer", "Forward")
    assert tuple(used[name] - 1 for name in nodes) == decoder.NODE_WORDS
    unused = [row[0] for row in rows(section(PROGRAM, "### 6.1 Header: 16 words")) if row[1] == "unused"]
    assert unused == ["14", "15"]


def test_the_numbers_of_kinds_are_the_codes() -> None:
    assert f"version of the program: {layout.PROGRAM_VERSION}" in PROGRAM
    assert [d.number for d in DTYPES.values()] == [0, 1, 2], "the decoder counts them"
    assert "type: " + ", ".join(f"{d.number} {name}" for name, d in DTYPES.items()) in PROGRAM
    assert "rule: " + ", ".join(f"{k} {r}" for k, r in enumerate(layout.RULES)) in PROGRAM
    assert "kind of answer: " + ", ".join(f"{k} {r}" for k, r in enumerate(ANSWERS)) in PROGRAM
    assert "up to five pools: " + ", ".join(f"`{p}`" for p in layout.POOLS) in PROGRAM


def test_the_kinds_of_nodes_and_scorers_are_the_first_words_of_their_records() -> None:
    made = golden_program()
    words = encode(made)["program"].tolist()
    at = len(words) - layout.NODE * len(made.nodes)
    nodes = {words[at + layout.NODE * k]: type(n).__name__ for k, n in enumerate(made.nodes)}
    at -= layout.SCORER * len(made.scorers)
    scorers = {words[at + layout.SCORER * k]: type(s).__name__.lower() for k, s in enumerate(made.scorers)}
    assert "Word 0 is the kind: " + ", ".join(f"{k} {name}" for k, name in sorted(nodes.items())) in PROGRAM
    assert "Word 0 is the kind: " + ", ".join(f"{k} {name}" for k, name in sorted(scorers.items())) in PROGRAM


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (PROGRAM, f"At most {limits.MAX_SENSORS} sensors; 1 to {limits.MAX_NODES} nodes"),
        (PROGRAM, f"`n_classes` 0 or 2 to {limits.MAX_CLASSES}"),
        (PROGRAM, f"1 to {limits.MAX_COEFFICIENTS} coefficients"),
        (PROGRAM, f"at most {limits.MAX_RANKS} thresholds"),
        (PROGRAM, f"more than {limits.MAX_OPERATIONS} operations"),
        (PROGRAM, f"at most {limits.MAX_TREE_COLUMNS} columns and {limits.MAX_TREE_NODES} nodes"),
        (PROGRAM, f"more than {paths.MAX_STATES} states"),
        (PROGRAM, f"at most {limits.MAX_NUMBERS} numbers"),
        (PROGRAM, f"at most {limits.MAX_SCORERS} scorers"),
        (PROGRAM, f"at most {limits.MAX_TARGETS} targets"),
        (PROGRAM, f"take at most {limits.MAX_READING_BYTES} bytes"),
        (PROGRAM, f"at most {limits.MAX_CELLS} codes"),
        (PROGRAM, f"at most {limits.MAX_WORK} steps"),
        (PROGRAM, f"or {paths.MAX_STEPS} sensors and targets"),
        (BUNDLE, f"must not exceed {recorded.MAX_NUMBERS}"),
        (PROGRAM, f"at most {wire.MAX_REQUEST_BYTES}."),
        (PROGRAM, f"is {program.MISSING}.\nOther codes lie in -{program.CODE_MAX} to {program.CODE_MAX}"),
        (BUNDLE, f"at most {bundle.MAX_HEADER_BYTES} |"),
        (BUNDLE, f"A file has at most {bundle.MAX_BUNDLE_BYTES} bytes"),
        (BUNDLE, f'(decimal digits: "{bundle.BUNDLE_VERSION}")'),
        (BUNDLE, f"strings of 1 to {manifest.MAX_NAME} characters"),
        (BUNDLE, f"the {len(WINDOW_FEATURES)} features {', '.join(WINDOW_FEATURES)}"),
        (BUNDLE, f"number of cases, 1 to {recorded.MAX_CASES}"),
        (BUNDLE, f"-{-recorded.NO_BUDGET} for none"),
        (BUNDLE, f"list of 1 to {evidence.MAX_SETS} entries"),
        (BUNDLE, f"each within 10^{len(f'{value.MAX_OFFSET:.0f}') - 1}"),
        (BUNDLE, "expected route: " + ", ".join(f"{k} {r}" for k, r in enumerate(recorded.ROUTES))),
        (BUNDLE, f"must not exceed {load.MAX_GOLDEN_OPERATIONS}"),
        (BUNDLE, f"the {signature.SIGNATURE_BYTES} raw bytes of Ed25519"),
        (WIRE, f"1 to {wire.MAX_DEADLINE_MS} |"),
        (WIRE, f"at most {wire.MAX_REQUEST_BYTES} bytes"),
        (WIRE, f"version: {wire.WIRE_VERSION} |"),
        (WIRE, f"id: {8 * wire.ID_BYTES} random bits"),
        (WIRE, f"status: {wire.OK} answered, {wire.REFUSED} refused"),
    ],
)
def test_a_limit_in_a_page_is_the_codes(page: str, words: str) -> None:
    assert words in page


# ---------------------------------------------------------------- the bundle


def test_the_tensors_are_listed_in_the_files_order() -> None:
    table = rows(section(BUNDLE, "## 2. Tensors"))
    assert [row[0] for row in table] == [*bundle._ORDER, "checksum"]
    dtypes = {row[0]: row[1] for row in table}
    assert {name: bundle._TYPES[dtypes[name]] for name in layout.POOLS} == layout.POOLS
    for name, codes in bundle._CODES.items():
        assert {bundle._TYPES[t] for t in re.findall(r"[IF]\d+", dtypes[name])} == set(codes)


def test_the_manifests_keys_are_the_classs() -> None:
    table = rows(section(BUNDLE, "## 3. Manifest"))
    assert sorted(row[0] for row in table) == sorted(Manifest.__dataclass_fields__)


def test_the_words_of_a_golden_case_add_up() -> None:
    sizes = [row[1] for row in rows(section(BUNDLE, "## 4. Golden cases"))]
    loaded = load_bytes(example_bundle())
    (case,) = loaded.bundle.golden
    lists = {"m": -(-len(loaded.bundle.program.sensors) // 15), "v": len(case.expected.trace)}
    words = golden.encode_golden([case], loaded.bundle.program)["golden.words"]
    assert len(words) == 1 + sum(lists.get(size) if size in lists else int(size) for size in sizes)


def test_the_signature_covers_what_the_page_says() -> None:
    assert signature._CONTEXT == b"hardcase-bundle-v1\0"
    assert len(signature._CONTEXT) == 18 + 1
    assert "over the 18 characters `hardcase-bundle-v1`, a zero byte" in BUNDLE


# ---------------------------------------------------------------- the wire


@pytest.mark.parametrize(
    ("heading", "layout_", "n"),
    [("## 2. Request: 56 bytes and the values", wire._REQUEST, 56), ("## 3. Reply: 64 bytes", wire._REPLY, 64)],
)
def test_a_messages_table_has_its_offsets_and_sizes(heading: str, layout_: struct.Struct, n: int) -> None:
    table = [row for row in rows(section(WIRE, heading)) if row[1].isdigit()]
    assert layout_.size == n
    at = 0
    for offset, size, _ in table:
        assert int(offset) == at
        at += int(size)
    assert at == n
    codes = re.findall(r"\d*[a-zA-Z]", layout_.format.lstrip("<"))
    assert [struct.calcsize("<" + c) for c in codes] == [int(row[1]) for row in table]


def test_the_topics_are_the_codes() -> None:
    shown = [row[0] for row in rows(section(WIRE, "## 1. Topics"))]
    topics = (wire.request_topic, wire.reply_topic, wire.status_topic, wire.facts_topic)
    of_records = (wire.decision_topic, wire.audit_topic, wire.ack_topic)
    of_updates = (wire.update_topic, wire.install_topic, wire.fetch_topic)
    of_devices = [make("DEVICE") for make in (*topics, *of_records, *of_updates)]
    assert shown == [*of_devices, *(make("SENDER") for make in (messages.enrol_topic, messages.enrolled_topic))]
