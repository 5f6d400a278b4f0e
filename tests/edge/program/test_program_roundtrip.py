# SPDX-License-Identifier: Apache-2.0
"""Whatever a program says, its bytes say the same; and what the strategies make, the verifier accepts."""

from __future__ import annotations

import random
from array import array
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.bundle.file import Bundle, pack_bundle, unpack_bundle
from hardcase_edge.errors import BundleError, BundleVersionError, ProgramError
from hardcase_edge.program import decode as decode_module
from hardcase_edge.program import definition as d
from hardcase_edge.program.decode import MAX_NUMBERS, decode
from hardcase_edge.program.encode import encode
from hardcase_edge.program.format import POOLS, RULES
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.strategies import as_draft, programs, random_program, seeds

many = settings(max_examples=120)


@given(programs(5, with_opaque=True))
@many
def test_the_verifier_accepts_what_the_strategies_make(program: d.Program) -> None:
    report = verify(program)
    assert 0 <= report.best_cost <= report.worst_cost
    assert report.is_exact
    assert 1 <= report.longest_path <= len(program.nodes)
    assert len(report.unproved) == 1


@given(programs(5, with_opaque=True))
@many
def test_a_program_survives_its_encoding(program: d.Program) -> None:
    assert decode(encode(program)) == (program, False)


@given(programs(5))
@many
def test_every_feature_has_the_sensor_that_names_it(program: d.Program) -> None:
    before = replace(program)
    assert len(program.sensor_of) == len(program.features)
    assert all(f in program.sensors[s].features for f, s in enumerate(program.sensor_of))
    assert program == before
    assert encode(program) == encode(before)
    assert decode(encode(program))[0].sensor_of == program.sensor_of


@given(programs(5), seeds)
@many
def test_a_draft_survives_its_encoding(program: d.Program, seed: int) -> None:
    draft = as_draft(program, random.Random(seed))
    assert decode(encode(draft, is_draft=True)) == (draft, True)


json_values = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(programs(3), st.dictionaries(st.text(max_size=9), json_values))
@many
def test_a_bundle_survives_its_bytes_and_the_same_bundle_is_the_same_bytes(program: d.Program, manifest: dict) -> None:
    data = pack_bundle(Bundle(manifest, program, ()))
    back = unpack_bundle(data)
    assert (back.program, back.manifest, back.golden, back.is_draft) == (program, manifest, (), False)
    assert pack_bundle(back) == data


def test_the_strategies_reach_every_part_of_the_language() -> None:
    seen = set()
    for seed in range(300):
        program = random_program(seed, 4)
        seen |= {type(x).__name__ for x in (*program.nodes, *program.scorers)}
        seen |= {n.rule for n in program.nodes if isinstance(n, d.Branch)}
        seen |= {(type(c.rule).__name__, program.features[c.feature].dtype) for c in program.columns}
        seen |= {bool(t.children) for s in program.scorers if isinstance(s, d.Trees) for t in s.trees if t.splits}
        seen |= {"joins"} if _has_join(program) else set()
    wanted = {kind.__name__ for kind in (*get_args(d.Node), *get_args(d.Scorer))} - {"Opaque"} | {True, False, "joins"}
    wanted |= set(RULES)
    wanted |= {(rule, dtype) for rule in ("Affine", "Rank") for dtype in ("i32", "f32", "f64")}
    assert seen == wanted


def _has_join(program: d.Program) -> bool:
    led_to = [t for n in program.nodes if isinstance(n, d.Branch) for t in set(n.targets)]
    return len(set(led_to)) < len(led_to)


# ---------------------------------------------------------------- what cannot be written


@pytest.mark.parametrize(
    ("dtype", "threshold"),
    [("f32", 0.1), ("f32", 1e300), ("i32", 2.5), ("i32", 2**31), ("i32", -(2**31)), ("f64", 2**53 + 1)],
)
def test_a_threshold_that_its_type_cannot_hold_is_refused(dtype: str, threshold: float) -> None:
    program = random_program(0, 0)
    features = (d.Feature(dtype), *program.features[1:])
    program = replace(program, features=features, columns=(d.Column(0, d.Rank((threshold,))),))
    with pytest.raises(ProgramError, match="threshold"):
        encode(program)


def test_a_draft_cannot_be_written_as_a_program() -> None:
    program = next(p for p in map(random_program, range(99)) if any(isinstance(s, d.Stack) for s in p.scorers))
    with pytest.raises(ProgramError, match="quantise"):
        encode(as_draft(program, random.Random(0)))


# ---------------------------------------------------------------- packed polynomials


def square(weights: tuple[tuple[int, ...], ...], bits: int = 8, n_columns: int = 3) -> d.Program:
    """A program of one polynomial of degree 2 with these weights."""
    terms = tuple((k % n_columns, n_columns) for k in range(len(weights[0])))
    features = tuple(d.Feature("i32") for _ in range(n_columns))
    columns = tuple(d.Column(k, d.Affine(0, 1, 0, 0, -127, 127)) for k in range(n_columns))
    scorer = d.Polynomial(
        tuple(range(n_columns)), (0,) * n_columns, 7, terms, weights, (1,) * len(weights), weight_bits=bits
    )
    nodes = (d.Answer(d.Slice(0, 0, len(weights))),)
    return d.Program(features, (), random_program(0).uplink, columns, (scorer,), nodes, max(2, len(weights)))


def scorer_words(tensors: dict[str, Any]) -> int:
    """Where the one scorer's record begins."""
    return len(tensors["program"]) - 12 - 10


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("n_terms", [1, 7, 8, 9, 200])
def test_a_packed_polynomial_is_smaller_and_comes_back_as_it_was(bits: int, zeros: float, n_terms: int) -> None:
    rng = random.Random(n_terms)
    weights = tuple(
        tuple(0 if rng.random() < zeros else rng.choice([-1, 1]) * rng.randint(1, 127) for _ in range(n_terms))
        for _ in range(3)
    )
    program = square(weights, bits)
    tensors = encode(program)
    assert tensors["program"][scorer_words(tensors) + 8] == bits + 256
    assert decode(tensors) == (program, False)
    n_kept = sum(1 for row in weights for x in row if x)
    stored = sum(len(tensors.get(pool, ())) * int(pool[1:]) // 8 for pool in ("i8", "i16")) - 2 * 3 - 2  # other runs
    assert stored == 2 * n_terms + -(-3 * n_terms // 8) + n_kept * bits // 8


def test_many_outputs_or_columns_are_not_packed_where_nothing_is_saved() -> None:
    full = encode(square(((1,),) * 40))
    assert full["program"][scorer_words(full) + 8] == 8
    wide = encode(square(((0,) * 128,), n_columns=128))
    assert wide["program"][scorer_words(wide) + 8] == 8
    for program in (square(((1,),) * 40), square(((0,) * 128,), n_columns=128)):
        assert decode(encode(program)) == (program, False)


@pytest.mark.parametrize(("zeros", "is_packed"), [(8, False), (9, True)])
def test_the_first_byte_that_packing_saves_is_saved(zeros: int, is_packed: bool) -> None:
    tensors = encode(square(((1,),) * (80 - zeros) + ((0,),) * zeros))  # 2 bytes less of positions, 10 more of a mask
    assert tensors["program"][scorer_words(tensors) + 8] == 8 + 256 * is_packed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param({8: 264 + 256}, "520-bit weights", id="packed-twice"),
        pytest.param({8: 256}, "256-bit weights", id="no-bits"),
        pytest.param({1: 128}, "packed polynomial of 128 columns", id="columns"),
        pytest.param({4: 2**31 - 1}, "numbers at 0 of the i8 pool, which has", id="endless-terms"),
        pytest.param({4: -1}, "-1 numbers at 0 of the i8 pool, which has", id="terms-below-0"),
        pytest.param({7: 2**31 - 1}, "which is out of bounds", id="endless-outputs"),
        pytest.param({7: -1}, "a table of -1 by", id="outputs-below-0"),
        pytest.param({9: 10**6}, "numbers at 1000000 of the i8 pool, which has", id="weights-elsewhere"),
        pytest.param({6: 10**6}, "numbers at 1000000 of the i8 pool, which has", id="terms-elsewhere"),
        pytest.param({6: -1}, "numbers at -1 of the i8 pool, which has", id="terms-before-the-pool"),
        pytest.param({4: 1000, 7: 7000}, "a table of 7000 by 1000", id="a-table-beyond-the-bound-on-work"),
    ],
)
def test_a_packed_polynomial_that_makes_no_sense_is_refused(words: dict[int, int], said: str) -> None:
    tensors = encode(square(((0, 5, 0, 0, 9), (1, 0, 0, 0, 0))))
    if len(words) > 1:  # eight weights to a byte: what is made counts, not what is read
        tensors["i8"].extend(bytes(900_000))
    for word, value in words.items():
        tensors["program"][scorer_words(tensors) + word] = value
    with pytest.raises(ProgramError, match=said):
        decode(tensors)


def test_a_shift_is_kept_in_programs_and_drafts() -> None:
    program = replace(square(((1,),)), n_classes=0)
    node = d.Answer(d.Slice(0, 0, 1), "value", shift=-3)
    shifting = replace(program, nodes=(*program.nodes[:-1], node))
    assert decode(encode(shifting)) == (shifting, False)
    draft, is_draft = decode(encode(shifting, is_draft=True))
    assert is_draft
    assert draft.nodes[-1] == node


def test_bits_beyond_the_weights_and_weights_of_0_are_refused() -> None:
    tensors = encode(square(((0, 5, 0, 0, 9), (1, 0, 0, 0, 0))))
    mask = 2 * 5  # behind the positions; 10 bits in 2 bytes
    assert [x & 255 for x in tensors["i8"][mask : mask + 2]] == [0b00110010, 0]
    for at, value in ((mask + 1, 0b100), (mask + 1, -128), (mask + 2, 0)):
        bad = {**tensors, "i8": tensors["i8"] + tensors["i8"]}
        bad["i8"][at] = value
        with pytest.raises(ProgramError, match="bits beyond its weights, or a weight of 0"):
            decode(bad)


def test_a_draft_is_never_packed() -> None:
    program = square(((0, 0, 0, 0), (0, 0, 0, 1)))
    tensors = encode(program, is_draft=True)
    assert decode(tensors)[1]
    assert tensors["program"][scorer_words(tensors) + 8] == 8
    tensors["program"][scorer_words(tensors) + 8] += 256
    with pytest.raises(ProgramError, match="none in a draft"):
        decode(tensors)


# ---------------------------------------------------------------- hostile tensors


@given(programs(3), seeds)
@settings(max_examples=250)
def test_damaged_tensors_are_refused_or_read_never_worse(program: d.Program, seed: int) -> None:
    rng = random.Random(seed)
    tensors = {name: values[:] for name, values in encode(program).items()}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(["program"] * 5 + sorted(tensors))
        values = tensors.get(name)
        if not values:
            continue
        top = 2 ** (8 * values.itemsize - 1) - 1
        values[rng.randrange(len(values))] = rng.choice([0, 1, -1, 2, 7, top, -top - 1, rng.randint(-top, top)])
        if rng.random() < 0.1:
            del tensors[name]
        elif rng.random() < 0.1:
            del values[rng.randrange(len(values)) :]
    if "program" not in tensors:
        return
    with suppress(BundleError):  # anything else fails the test
        back, is_draft = decode(tensors)
        if not is_draft:
            verify(back)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((lambda words, k=k: words[:k], "ends at word") for k in range(16)),
        *((lambda words, k=k: words[:k] + array(words.typecode, [1]) + words[k + 1 :], "not used") for k in (14, 15)),
    ],
)
def test_first_words_that_are_cut_or_that_this_version_does_not_use_are_refused(change: Any, said: str) -> None:
    tensors = encode(random_program(1))
    tensors["program"] = change(tensors["program"])
    with pytest.raises(ProgramError, match=said):
        decode(tensors)


@pytest.mark.parametrize("seed", range(20))
def test_every_program_cut_anywhere_is_refused(seed: int) -> None:
    tensors = encode(random_program(seed, 1))
    whole = tensors["program"]
    for cut in range(len(whole)):
        tensors["program"] = whole[:cut]
        with pytest.raises(BundleError):
            decode(tensors)
    tensors["program"] = whole + whole[:1]
    with pytest.raises(ProgramError, match="too many"):
        decode(tensors)


def test_another_version_is_named() -> None:
    tensors = encode(random_program(3))
    tensors["program"][0] = 2
    with pytest.raises(BundleVersionError, match=r"format 2 .* reads 1 to 1") as caught:
        decode(tensors)
    assert (caught.value.found, caught.value.oldest, caught.value.newest) == (2, 1, 1)


def test_rows_without_numbers_are_counted_before_they_are_made() -> None:
    reader = decode_module._Reader(encode(random_program(1)))
    assert reader.rows("i64", 0, MAX_NUMBERS - 3, 0)[:2] == ((), ())
    with pytest.raises(ProgramError, match="a table of 4 by 0 numbers, which is out of bounds"):
        reader.rows("i64", 0, 4, 0)


def test_minus_zero_has_no_key_of_its_own() -> None:
    program = d.Program((d.Feature("f64"),), (), random_program(0).uplink, (d.Column(0, d.Rank((-0.0,))),), (), (), 0)
    tensors = encode(program)
    assert tensors["i64"][-1] == 0
    tensors["i64"][-1] = -1
    with pytest.raises(ProgramError, match="minus zero"):
        decode(tensors)


def test_numbers_beyond_the_bound_on_work_are_not_read() -> None:
    tensors = encode(random_program(4))
    tensors["i32"] = tensors["i32"].__class__("i", bytes(4 * 100_000))
    words = tensors["program"]
    words[2:7] = words.__class__("i", [0, 50, 0, 0, 0])
    del words[16:]
    for _ in range(50):
        words.extend([0, 100_000, 0, 0])
    with pytest.raises(ProgramError, match="more than 4000000 numbers"):
        decode(tensors)


def test_pools_are_named_for_their_widths() -> None:
    assert {name: int(name[1:]) // 8 for name in POOLS} == {"f64": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1}
    assert list(POOLS) == ["f64", "i64", "i32", "i16", "i8"], "widest first"


def test_the_random_programs_use_stacks_selects_and_requests() -> None:
    kinds = [type(x) for seed in range(50) for p in [random_program(seed, 4)] for x in (*p.nodes, *p.scorers)]
    assert min(kinds.count(k) for k in (d.Stack, d.Select, d.Forward)) >= 5
