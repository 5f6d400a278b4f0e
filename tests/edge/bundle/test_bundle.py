# SPDX-License-Identifier: Apache-2.0
"""A bundle is whole and ours, or it is refused with a BundleError: whatever the bytes."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.bundle import file as bundle_module
from hardcase_edge.bundle.file import (
    MAX_BUNDLE_BYTES,
    MAX_HEADER_BYTES,
    Bundle,
    is_bundle_head,
    pack_bundle,
    read_bundle_bytes,
    unpack_bundle,
)
from hardcase_edge.bundle.golden import GoldenCase, check_golden, decode_golden, run_case
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import BundleError, BundleVersionError, InputError
from hardcase_edge.program.definition import Answer, Feature, Forward, Polynomial, Program, Sensor, Slice, Uplink
from hardcase_edge.session.recorded import NO_BUDGET
from hardcase_edge.session.session import Decision, Machine
from tests.golden.make_golden import cases_of, manifest_of
from tests.helpers.attack.bundles import mutant, sealed
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.strategies import as_draft, random_program

PROGRAM = next(
    p for p in map(random_program, range(99)) if p.n_classes and any(isinstance(n, Forward) for n in p.nodes)
)
MANIFEST = manifest_of(PROGRAM).to_json()
GOOD = pack_bundle(Bundle(MANIFEST, PROGRAM, cases_of(PROGRAM, 6)))


# ---------------------------------------------------------------- an independent reader


def mini_read(data: bytes) -> tuple[dict[str, str], dict[str, tuple[str, list[int], bytes]]]:
    """What any safetensors reader sees: metadata, and (dtype, shape, bytes) by name, with the layout's own rules."""
    widths = {"U8": 1, "I8": 1, "I16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert data[8:9] == b"{", "the header begins with a brace"
    body = data[8 + length :]
    metadata = header.pop("__metadata__")
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items())
    tensors, at = {}, 0
    for name, entry in sorted(header.items(), key=lambda kv: kv[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        count = 1
        for n in entry["shape"]:
            count *= n
        assert first == at, "no hole, no overlap"
        assert last - first == count * widths[entry["dtype"]]
        assert (8 + length + first) % widths[entry["dtype"]] == 0, "aligned in the file"
        tensors[name] = (entry["dtype"], entry["shape"], body[first:last])
        at = last
    assert at == len(body)
    return metadata, tensors


@pytest.mark.parametrize("seed", range(20))
def test_a_bundle_keeps_the_rules_of_safetensors(seed: int) -> None:
    program = random_program(seed)
    metadata, tensors = mini_read(pack_bundle(Bundle({"a": 1}, program, cases_of(program, 3))))
    assert metadata == {"format": "1", "manifest": '{"a":1}'}
    assert list(tensors)[-1] == "checksum"
    assert {"program", "golden.words", "golden.readings"} <= set(tensors)


def test_the_checksum_is_that_of_every_byte_before_it() -> None:
    _, tensors = mini_read(GOOD)
    assert tensors["checksum"] == ("U8", [32], hashlib.sha256(GOOD[:-32]).digest())


def test_a_good_bundle_loads() -> None:
    loaded = load_bytes(GOOD)
    assert loaded.bundle.program == PROGRAM
    assert loaded.bundle.sha256 == hashlib.sha256(GOOD).hexdigest()
    assert len(loaded.bundle.golden) == 6
    assert loaded.manifest.to_json() == MANIFEST


# ---------------------------------------------------------------- damage


def test_a_bundle_cut_or_damaged_anywhere_is_refused() -> None:
    rng = random.Random(0)
    for at in range(len(GOOD)):
        damaged = GOOD[:at] + bytes([GOOD[at] ^ rng.randint(1, 255)]) + GOOD[at + 1 :]
        for bad, said in ((GOOD[:at], None), (damaged, "damaged")):
            with pytest.raises(BundleError, match=said):
                unpack_bundle(bad)


@given(st.binary(max_size=300))
@settings(max_examples=120)
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        unpack_bundle(data)
    with pytest.raises(BundleError):
        unpack_bundle(sealed(data))


def with_header(change: Callable[[dict[str, Any]], Any], data: bytes = GOOD) -> bytes:
    """The bundle with its header changed and everything else mended."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    new = change(header)
    text = new if isinstance(new, str) else dict_text(header)
    return with_text(text.encode(), data)


def with_text(text: bytes, data: bytes = GOOD) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    text += b" " * (-len(text) % 8)
    return sealed(struct.pack("<Q", len(text)) + text + data[8 + length : -32])


def entry(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header[name].update(changes)


def shift(name: str, by: int) -> Callable[[dict[str, Any]], None]:
    return lambda h: h[name].update(data_offsets=[x + by for x in h[name]["data_offsets"]])


def put(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header.update({key: value})


def meta(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["__metadata__"].update(changes)


EXTRA = {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}
EMPTY = Program((), (), Uplink(), (), (Polynomial((), (), 0, (), ((),), (1,)),), (Answer(Slice(0, 0, 1)),), 2)


def test_the_mended_bundle_is_the_bundle() -> None:
    assert with_header(lambda header: None) == GOOD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(put("__metadata__", None), "no format number", id="no-metadata"),
        pytest.param(put("__metadata__", []), "no format number", id="metadata-list"),
        pytest.param(lambda h: h["__metadata__"].__delitem__("format"), "no format number", id="no-format"),
        pytest.param(meta(format="one"), "no format number", id="format-word"),
        pytest.param(meta(format="²"), "no format number", id="format-superscript"),
        pytest.param(meta(format="9" * 5000), "no format number", id="format-endless"),
        pytest.param(meta(format=1), "no format number", id="format-number"),
        pytest.param(meta(format="2"), "bundle format 2 cannot be read here", id="newer"),
        pytest.param(meta(extra="x"), "metadata must hold exactly", id="metadata-extra"),
        pytest.param(lambda h: h["__metadata__"].__delitem__("manifest"), "metadata must hold", id="no-manifest"),
        pytest.param(meta(manifest={}), "metadata must hold exactly", id="manifest-object"),
        pytest.param(meta(manifest="[]"), "manifest is not a JSON object", id="manifest-list"),
        pytest.param(meta(manifest="{"), "manifest is not readable", id="manifest-cut"),
        pytest.param(meta(manifest='{"a":NaN}'), "manifest is not readable", id="manifest-nan"),
        pytest.param(meta(manifest='{"a":1e999}'), "manifest is not readable", id="manifest-infinity"),
        pytest.param(meta(manifest='{"a":' + "1" * 5000 + "}"), "manifest is not readable", id="manifest-endless"),
        pytest.param(meta(manifest='{"a":1,"a":2}'), "as hardcase writes it", id="manifest-key-twice"),
        pytest.param(meta(manifest='{"b":1,"a":2}'), "as hardcase writes it", id="manifest-key-order"),
        pytest.param(meta(manifest='{"a":"\\ud800"}'), "as hardcase writes it", id="manifest-lone-surrogate"),
        pytest.param(meta(manifest='{"a":' * 3000 + "1" + "}" * 3000), "manifest is not readable", id="manifest-deep"),
        pytest.param(lambda h: '{"a":' * 9999 + "1" + "}" * 9999, "header is not readable", id="deep"),
        pytest.param(lambda h: "[" * 99999, "header is not readable", id="deep-and-cut"),
        pytest.param(lambda h: json.dumps(h, sort_keys=True), "as hardcase writes it", id="spaces"),
        pytest.param(lambda h: dict_text(h) + "x", "header is not readable", id="more-than-one-value"),
        pytest.param(lambda h: dict_text(h)[:-1] + ',"zero":1,"zero":2}', "as hardcase writes it", id="key-twice"),
        pytest.param(lambda h: "3", "not a JSON object", id="number"),
        pytest.param(put("weights", EXTRA), "malformed entry 'weights'", id="extra-tensor"),
        pytest.param(put("program", 3), "malformed entry 'program'", id="no-entry"),
        pytest.param(lambda h: h["program"].pop("shape"), "malformed entry 'program'", id="entry-short"),
        pytest.param(entry("program", more=1), "malformed entry 'program'", id="entry-long"),
        pytest.param(entry("program", dtype="I64"), "tensor program has the wrong type", id="other-type"),
        pytest.param(entry("program", dtype="BF16"), "tensor program has the wrong type", id="unknown-type"),
        pytest.param(entry("program", dtype=["I32"]), "tensor program has the wrong type", id="type-list"),
        pytest.param(entry("program", shape=[1, 2]), "tensor program has the wrong type", id="matrix"),
        pytest.param(entry("program", shape=[1.0]), "tensor program has the wrong type", id="shape-float"),
        pytest.param(entry("program", shape=[True]), "tensor program has the wrong type", id="shape-true"),
        pytest.param(entry("program", shape="12"), "tensor program has the wrong type", id="shape-text"),
        pytest.param(entry("program", shape=[10**30]), "tensor program claims bytes", id="huge-shape"),
        pytest.param(entry("program", shape=[-1]), "tensor program claims bytes", id="negative-shape"),
        pytest.param(entry("program", data_offsets=[0, 10**30]), "tensor program claims bytes", id="huge-offset"),
        pytest.param(entry("program", data_offsets=[-8, 0]), "tensor program claims bytes", id="negative-offset"),
        pytest.param(entry("program", data_offsets=[8, 0]), "tensor program claims bytes", id="backwards"),
        pytest.param(shift("program", 4), "begins at byte|claims bytes", id="overlap"),
        pytest.param(lambda h: h.pop("i32"), "begins at byte|ends? at byte", id="hole"),
        pytest.param(lambda h: h.pop("program"), "begins at byte|ends? at byte|no program", id="no-program"),
        pytest.param(lambda h: h.pop("checksum"), "checksum is not its last tensor", id="no-checksum"),
        pytest.param(entry("checksum", shape=[31]), "checksum is not its last tensor", id="short-checksum"),
        pytest.param(shift("checksum", -32), "checksum is not its last tensor", id="checksum-elsewhere"),
        pytest.param(lambda h: h.pop("golden.readings"), "begins at byte|end at byte|do not fit", id="no-readings"),
        pytest.param(
            lambda h: [h[name].update(data_offsets=[0, 0]) for name in ("i64", "golden.words")], None, id="order"
        ),
    ],
)  # fmt: skip
def test_a_header_that_is_not_ours_is_refused_though_its_checksum_is_right(change: Any, said: str | None) -> None:
    with pytest.raises(BundleError, match=said) as caught:
        unpack_bundle(with_header(change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"i8": array("b")}, "tensor i8 has the wrong type 'I8' or shape \\[0\\]"),
        ({"f64": array("d", [0.0])}, "floats without a draft"),
        ({"golden.readings": array("h", [1])}, "readings without golden cases"),
    ],
)
def test_a_tensor_that_no_writer_would_have_written_is_refused(
    tensors: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "encode_golden", lambda *_: tensors)
    with pytest.raises(BundleError, match=said):
        unpack_bundle(pack_bundle(Bundle(manifest_of(EMPTY).to_json(), EMPTY, ())))


def test_readings_are_an_empty_tensor_where_a_program_has_no_features() -> None:
    case = GoldenCase((), (), None, 1, True, None, Decision(1, 0, "local", 0, (), (0,)))
    data = pack_bundle(Bundle(manifest_of(EMPTY).to_json(), EMPTY, (case,)))
    assert mini_read(data)[1]["golden.readings"] == ("I16", [0], b"")
    assert load_bytes(data).bundle.golden == (case,)


def dict_text(header: dict[str, Any]) -> str:
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(bytes(41), "41 bytes", id="short"),
        pytest.param(sealed(struct.pack("<Q", 2**63) + b"{}"), "header claims 9223372036854775808", id="huge-header"),
        pytest.param(sealed(struct.pack("<Q", MAX_HEADER_BYTES + 8) + bytes(2**19)), "header claims", id="large"),
        pytest.param(sealed(struct.pack("<Q", 8) + b"\xff" * 8), "not UTF-8", id="not-utf8"),
        pytest.param(sealed(struct.pack("<Q", 2) + b"{}"), "not padded", id="unpadded"),
        pytest.param(sealed(struct.pack("<Q", 16) + b"{}" + b" " * 14), "not padded", id="padded-too-far"),
        pytest.param(sealed(struct.pack("<Q", 8) + b"{}\t     "), "as hardcase writes it", id="tab"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_bundle_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        unpack_bundle(data)


def test_a_newer_bundle_says_what_to_do() -> None:
    with pytest.raises(BundleVersionError, match="update hardcase-edge") as caught:
        unpack_bundle(with_header(meta(format="7")))
    assert (caught.value.found, caught.value.newest) == (7, 1)


def test_a_draft_is_refused_unless_asked_for() -> None:
    data = pack_bundle(Bundle({}, as_draft(PROGRAM, random.Random(0)), (), is_draft=True))
    with pytest.raises(BundleError, match="hardcase export"):
        unpack_bundle(data)
    assert unpack_bundle(data, allow_draft=True).is_draft


# ---------------------------------------------------------------- fuzz with the checksum mended


def loads_or_refuses(data: bytes) -> bool:
    with suppress(BundleError):  # any other exception fails the test
        loaded = load_bytes(data)
        check_golden(loaded.machine, loaded.bundle.golden)
        return True
    return False


def test_mutants_under_a_right_checksum_are_refused_or_harmless() -> None:
    """Header, manifest, words of tensors, offsets and bytes: a few of them change what is claimed, most may not."""
    rng, seeds = random.Random(1), [GOOD, *(bundle_of(random_program(k, 3)) for k in range(5))]
    verdicts = [loads_or_refuses(mutant(rng, rng.choice(seeds), seeds)) for _ in range(3_000)]
    assert 300 < sum(verdicts) < 1_500


# ---------------------------------------------------------------- golden cases


def repacked(change: Callable[[array], None]) -> bytes:  # type: ignore[type-arg]
    """GOOD with its golden words changed."""
    tensors = bundle_module.encode_golden(unpack_bundle(GOOD).golden, PROGRAM)
    words = tensors["golden.words"]
    change(words)
    (length,) = struct.unpack("<Q", GOOD[:8])
    header = json.loads(GOOD[8 : 8 + length])
    first, last = header["golden.words"]["data_offsets"]
    assert last - first == words.itemsize * len(words)
    body = bytearray(GOOD[:-32])
    body[8 + length + first : 8 + length + last] = words.tobytes()
    return sealed(bytes(body))


@pytest.mark.parametrize(
    ("word", "value", "said"),
    [
        pytest.param(0, 0, "0 golden cases", id="no-case"),
        pytest.param(0, 7, "7 golden cases", id="one-more"),
        pytest.param(0, 2**31 - 1, "golden cases", id="endless"),
        pytest.param(0, -1, "golden cases", id="minus"),
        pytest.param(1, -2, "budget -2", id="budget"),
        pytest.param(2, 0, "item size 0", id="item-size"),
        pytest.param(2, 10**9, "item size", id="large-item"),
        pytest.param(3, 2, "flag 2", id="cloud-neither-yes-nor-no"),
        pytest.param(4, -1, "flag -1", id="reply-neither-yes-nor-no"),
        pytest.param(4, 0, r"a reply of \d, \d+ that does not come", id="content-without-a-reply"),
        pytest.param(5, 99, "reply of 99", id="reply-class"),
        pytest.param(6, 10_001, "10001", id="reply-confidence"),
        pytest.param(7, 2**31 - 1, "has the sensors", id="more-failed-than-there-are"),
        pytest.param(7, -1, "has the sensors", id="minus-failed"),
        pytest.param(12, 2**15, "has the sensors", id="more-bought-than-there-are"),
        pytest.param(13, 2**31 - 1, "truncated", id="endless-trace"),
        pytest.param(13, -1, "length of a trace -1", id="minus-trace"),
    ],
)
def test_golden_words_that_make_no_sense_are_refused(word: int, value: int, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        load_bytes(repacked(lambda words: words.__setitem__(word, value)))


@pytest.mark.parametrize(("budget", "code"), [(9, "h"), (2**15, "i"), (2**31 - 1, "i"), (2**31, "q"), (2**40, "q")])
def test_golden_words_take_the_narrowest_type_that_holds_them(budget: int, code: str) -> None:
    program = replace(PROGRAM, sensors=tuple(replace(s, cost=(3,)) for s in PROGRAM.sensors))
    case = replace(cases_of(program, 1)[0], budget=budget, expected=Decision(0, 0, "local", 3, (0,), (0,)))
    tensors = bundle_module.encode_golden([case], program)
    assert tensors["golden.words"].typecode == code
    assert decode_golden(tensors, program) == (case,)
    for wider in "hiq"["hiq".index(code) + 1 :]:
        with pytest.raises(BundleError, match="of their type"):
            decode_golden({**tensors, "golden.words": array(wider, tensors["golden.words"])}, program)


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        *((None, "h"), (-7.0, "h"), (32767.0, "h"), (-32767.0, "h"), (-32768.0, "f"), (0.25, "f"), (2.0**24, "f")),
        *((0.1, "d"), (2.0**24 + 1, "d"), (1e300, "d")),
    ],
)
def test_golden_readings_take_the_narrowest_type_that_holds_them(reading: float | None, code: str) -> None:
    program = Program((Feature("f64", nullable=True),) * 2, (Sensor((0, 1), (1,)),), Uplink(), (), (), (), 2)
    case = GoldenCase((reading, None), (), None, 1, True, None, Decision(0, 0, "local", 0, (), (0,)))
    tensors = bundle_module.encode_golden([case], program)
    assert tensors["golden.readings"].typecode == code
    assert decode_golden(tensors, program) == (case,)
    held = [float("nan") if x is None else x for x in (reading, None)]
    for wider in "hfd"["hfd".index(code) + 1 :]:
        with pytest.raises(BundleError, match="of their type"):
            decode_golden({**tensors, "golden.readings": array(wider, held)}, program)


@pytest.mark.parametrize("n_sensors", [1, 14, 15, 16, 31, 54])
def test_golden_sensors_are_bits_and_come_back_in_order(n_sensors: int) -> None:
    features = tuple(Feature("i32") for _ in range(n_sensors))
    sensors = tuple(Sensor((k,), (1,)) for k in range(n_sensors))
    program = Program(features, sensors, Uplink(), (), (), (), 2)
    for bought in ((), (0,), (n_sensors - 1,), tuple(range(n_sensors)), tuple(range(0, n_sensors, 3))):
        decision = Decision(1, 0, "local", len(bought), bought, (0, 2))
        case = GoldenCase((3,) * n_sensors, bought[::2], None, 1, True, None, decision)
        tensors = bundle_module.encode_golden([case], program)
        assert tensors["golden.words"].typecode == "h"
        assert decode_golden(tensors, program) == (case,)


def test_a_bundle_that_decides_otherwise_than_it_says_is_refused() -> None:
    bundle = unpack_bundle(GOOD)
    case = bundle.golden[2]
    wrong = Decision(case.expected.result, 1 + case.expected.confidence % 9999, *_rest(case.expected))
    lie = GoldenCase(case.readings, case.failed, case.budget, case.item_size, case.cloud, case.reply, wrong)
    data = pack_bundle(Bundle(MANIFEST, PROGRAM, (*bundle.golden[:2], lie)))
    with pytest.raises(BundleError, match="golden case 2"):
        load_bytes(data)


def _rest(d: Decision) -> tuple[Any, ...]:
    return d.route, d.cost, d.sensors, d.trace


def test_golden_cases_keep_everything_a_session_depends_on() -> None:
    for seed in range(40):
        program = random_program(seed)
        cases = cases_of(program, 8)
        assert unpack_bundle(pack_bundle(Bundle({}, program, cases))).golden == cases
        machine = Machine(program)
        assert [run_case(machine, c) for c in cases] == [c.expected for c in cases]


def test_golden_cases_that_would_keep_a_device_from_starting_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_edge.bundle.load.MAX_GOLDEN_OPERATIONS", 0)
    with pytest.raises(BundleError, match="too many to replay"):
        load_bytes(GOOD)


# ---------------------------------------------------------------- the manifest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda m: m.pop("unit"), "missing or unknown keys: unit", id="missing-key"),
        pytest.param(lambda m: m.update(more=1), "missing or unknown keys: more", id="unknown-key"),
        pytest.param(lambda m: m.update(name=3), "name is not a string of at most 200", id="name"),
        pytest.param(lambda m: m.update(unit="x" * 201), "unit is not a string of at most 200", id="long-unit"),
        pytest.param(lambda m: m["features"].pop(), "features are not", id="features"),
        pytest.param(lambda m: m.update(sensors="abc"), "sensors are not", id="sensors"),
        pytest.param(lambda m: m.update(sensors=["s"] * len(m["sensors"])), "distinct names", id="same-names"),
        pytest.param(lambda m: m["sensors"].__setitem__(0, ""), "sensors are not", id="empty-name"),
        pytest.param(lambda m: m["sensors"].__setitem__(0, "x" * 201), "longer than 200", id="long-name"),
        pytest.param(lambda m: m["classes"].pop(), "does not name the program's", id="classes"),
        pytest.param(lambda m: m["classes"].__setitem__(0, True), "class labels", id="class-true"),
        pytest.param(lambda m: m["classes"].__setitem__(0, m["classes"][1]), "class labels", id="class-twice"),
        pytest.param(lambda m: m.update(hpc="12"), "not a SHA-256", id="hpc"),
        pytest.param(lambda m: m.update(hpc="G" * 64), "not a SHA-256", id="hpc-letters"),
        pytest.param(lambda m: m.update(hpc=""), "manifest names no HPC", id="no-hpc"),
        pytest.param(lambda m: m.update(windows=[]), "windows do not map sensors", id="windows"),
        pytest.param(lambda m: m.update(windows={"s": 1}), "windows do not map sensors", id="window-short"),
        pytest.param(lambda m: m.update(windows={"s": 10**7}), "windows do not map sensors", id="window-long"),
        pytest.param(lambda m: m.update(windows={"nobody": 60}), "is not a sensor of 4", id="window-of-none"),
        pytest.param(lambda m: m.update(claims=[]), "claims is not a JSON object", id="claims"),
        pytest.param(lambda m: m.update(trained=None), "trained is not a JSON object", id="trained"),
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_fit_is_refused(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    manifest = json.loads(json.dumps(MANIFEST))
    change(manifest)
    with pytest.raises(BundleError, match=said):
        load_bytes(pack_bundle(Bundle(manifest, PROGRAM, ())))


def test_a_manifest_survives_json() -> None:
    manifest = manifest_of(PROGRAM)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json())), PROGRAM) == manifest


SKY = Program(
    features=(Feature("i32", nullable=True), Feature("f32", nullable=True), Feature("i32"))
    + (Feature("i32", nullable=True),) * 4,
    sensors=(Sensor((0,), (0,)), Sensor((1, 2), (0,)), Sensor((3, 4, 5, 6), (0,))),
    uplink=Uplink(), columns=(), scorers=(), nodes=(), n_classes=2,
)  # fmt: skip
SKY_MANIFEST = Manifest(
    "m", "u", ("sky", "heat", "age", *"mdsr"), ("eye", "skin", "window"), ("no", "yes"), windows={"window": 9},
    categories={"sky": ("dry", "Regen")},
)  # fmt: skip


def test_categories_survive_json_and_a_manifest_without_them_does_not_name_them() -> None:
    data = json.loads(json.dumps(SKY_MANIFEST.to_json()))
    assert data["categories"] == {"sky": ["dry", "Regen"]}
    assert Manifest.from_json(data, SKY) == SKY_MANIFEST
    assert "categories" not in MANIFEST
    needed = replace(SKY_MANIFEST, categories={"age": ("old", "young")})  # training rows had no gap there
    assert Manifest.from_json(json.loads(json.dumps(needed.to_json())), SKY) == needed


def test_categories_of_a_program_without_features_are_refused() -> None:
    data = {**SKY_MANIFEST.to_json(), "features": [], "sensors": [], "windows": {}}
    with pytest.raises(BundleError, match="'sky' in the manifest is not a feature"):
        Manifest.from_json(data, replace(SKY, features=(), sensors=()))


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        pytest.param({}, "categories do not map features", id="none"),
        pytest.param([["dry"]], "categories do not map features", id="a-list"),
        pytest.param({"sun": ["dry"]}, "'sun' in the manifest is not a feature of whole", id="no-feature"),
        pytest.param({"heat": ["dry"]}, "'heat' in the manifest is not a feature of whole", id="of-floats"),
        pytest.param({"m": ["dry"]}, "'m' in the manifest is not a feature of whole", id="in-a-window"),
        pytest.param({"sky": "dry"}, "'sky' in the manifest is not a list of at most 200", id="text"),
        pytest.param({"sky": {"dry": 0}}, "'sky' in the manifest is not a list of at most 200", id="an-object"),
        pytest.param({"sky": [str(k) for k in range(201)]}, "is not a list of at most 200", id="too-many"),
        pytest.param({"sky": []}, "'sky' in the manifest has no text", id="empty"),
        pytest.param({"sky": ["dry", "dry"]}, "texts of 'sky' are not 2 distinct names", id="twice"),
        pytest.param({"sky": ["dry", 1]}, "texts of 'sky' are not 2 distinct names", id="a-number"),
        pytest.param({"sky": ["dry", ""]}, "texts of 'sky' are not 2 distinct names", id="no-text"),
        pytest.param({"sky": ["dry", " wet"]}, "'sky' in the manifest has no text, or one with spaces", id="spaces"),
        pytest.param({"sky": ["x" * 201]}, "texts of 'sky' is longer than 200", id="long"),
    ],
)
def test_categories_that_do_not_fit_are_refused(categories: object, said: str) -> None:
    data = json.loads(json.dumps({**SKY_MANIFEST.to_json(), "categories": categories}))
    with pytest.raises(BundleError, match=said):
        Manifest.from_json(data, SKY)


def test_the_head_of_a_bundle_tells_it_from_other_files() -> None:
    assert is_bundle_head(GOOD[:65])
    assert is_bundle_head(GOOD[:35])
    for other in (
        b"",
        GOOD[:34],
        b"a,b\n1,2\n" * 9,
        b"\x10" + bytes(7) + b'{"w":{"dtype":"F32","shape":[1]}}' + bytes(32),
    ):
        assert not is_bundle_head(other)


# ---------------------------------------------------------------- sizes and files


def with_case(**changes: Any) -> Bundle:
    """A bundle with one golden case."""
    return Bundle({}, PROGRAM, (replace(cases_of(PROGRAM, 1)[0], **changes),))


@pytest.mark.parametrize(
    ("bundle", "said"),
    [
        pytest.param(with_case(budget=NO_BUDGET), "budget of -1", id="a-budget-that-means-none"),
        pytest.param(with_case(budget=2**63), "a number beyond 64 bits", id="beyond-64-bits"),
        pytest.param(Bundle({"name": "x" * MAX_HEADER_BYTES}, PROGRAM, ()), "bytes of header", id="header"),
        *(
            pytest.param(Bundle({"claims": value}, PROGRAM, ()), "cannot be written as JSON", id=name)
            for name, value in {
                "nan": float("nan"), "inf": float("inf"), "surrogate": "\ud800", "object": object(),
                "mixed-keys": {1: 2, "a": 3},
            }.items()
        ),
    ],
)  # fmt: skip
def test_a_bundle_that_no_device_would_read_is_not_written(bundle: Bundle, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        pack_bundle(bundle)


def test_files_are_bounded_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.hcb"
    path.write_bytes(GOOD)
    assert read_bundle_bytes(path) == GOOD
    path.write_bytes(b"")
    with pytest.raises(BundleError, match="no bytes"):
        read_bundle_bytes(path)
    with open(path, "wb") as file:
        file.truncate(MAX_BUNDLE_BYTES + 1)
    with pytest.raises(BundleError, match="larger than 8388608 bytes"):
        read_bundle_bytes(path)
    for bad in (tmp_path / "none.hcb", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_bundle_bytes(bad)


def test_no_bundle_imports_or_executes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a bundle made the reader import or evaluate something")

    for seed in range(5):  # what is imported lazily is imported now
        load_bytes(pack_bundle(Bundle(MANIFEST, PROGRAM, cases_of(PROGRAM, seed + 1))))
    refused = None
    with monkeypatch.context() as patched:
        for name in ("eval", "exec", "__import__"):
            patched.setattr(f"builtins.{name}", touched)
        load_bytes(GOOD)
        try:
            unpack_bundle(sealed(b"cos\nsystem\n(S'true'\ntR." + bytes(40)))
        except BundleError as error:
            refused = error
    assert refused is not None
