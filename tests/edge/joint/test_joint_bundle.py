# SPDX-License-Identifier: Apache-2.0
"""Bundles of joint programs: their bytes, their golden items, and forgeries of both."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle, unpack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError, ProgramError
from hardcase_edge.joint.definition import ANYTIME, MAX_PARTS, ONE_SHOT, Joint
from hardcase_edge.joint.format import decode_joint, encode_joint
from hardcase_edge.joint.golden import JointCase, decode_items, encode_items
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.program.cost import start_of
from hardcase_edge.program.definition import THRESHOLD, Acquire, Answer, Branch, Feature, Program, Sensor, Slice
from hardcase_edge.session.recorded import narrowest
from tests.helpers.edge.joint_programs import joint_bundle, random_joint

FILES = [joint_bundle(seed, seed % 4) for seed in range(12)]


def test_what_is_packed_is_unpacked_and_its_golden_items_hold() -> None:
    for data in FILES:
        loaded = load_bytes(data, allow_joint=True)
        assert loaded.joint is not None
        assert len(loaded.bundle.items) == 3
        assert pack_bundle(replace(loaded.bundle, sha256="")) == data


def test_a_golden_item_that_decides_otherwise_is_refused() -> None:
    bundle = unpack_bundle(FILES[0], allow_joint=True)
    expected = bundle.items[1].expected
    items = (bundle.items[0], replace(bundle.items[1], expected=replace(expected, rounds=expected.rounds + 1)))
    with pytest.raises(BundleError, match="golden item 1 gives"):
        load_bytes(pack_bundle(replace(bundle, items=items)), allow_joint=True)


def test_whoever_decides_no_items_refuses_the_bundle_in_one_line() -> None:
    with pytest.raises(BundleError, match=r"^the bundle decides items of several parts, .* do it$"):
        load_bytes(FILES[0])


def test_a_manifest_with_what_items_do_not_go_by_is_refused() -> None:
    bundle = next(b for b in (unpack_bundle(d, allow_joint=True) for d in FILES) if _branches(b.program))
    node = _branches(bundle.program)[0]
    branch = bundle.program.nodes[node]
    assert isinstance(branch, Branch)
    threshold = branch.threshold
    levels = [[threshold], [threshold + 1]]
    prices = {"nodes": [node], "levels": levels, "costs": [1.0, 0.5], "forwards": [0.5, 0.1], "shipped": 0}
    for more in ({"clock": True, "unit": "ms"}, {"prices": prices}):
        forged = replace(bundle, manifest={**bundle.manifest, **more})
        with pytest.raises(BundleError, match="a joint program goes by declared costs"):
            load_bytes(pack_bundle(forged), allow_joint=True)


def _branches(program: Program) -> list[int]:
    return [k for k, n in enumerate(program.nodes) if isinstance(n, Branch) and n.rule == THRESHOLD]


def test_golden_items_without_a_joint_program_are_refused() -> None:
    bundle = unpack_bundle(FILES[0], allow_joint=True)
    whole = pack_bundle(replace(bundle, items=()))
    assert unpack_bundle(whole, allow_joint=True).items == ()
    with pytest.raises(BundleError, match="golden items without a joint program"):
        unpack_bundle(renamed(FILES[0]), allow_joint=True)


def renamed(data: bytes) -> bytes:
    """A joint bundle whose tensor ``joint`` is missing."""
    bundle = unpack_bundle(data, allow_joint=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.bundle.file._in_order", _without_joint)
        return pack_bundle(bundle)


def _without_joint(tensors: dict[str, object]) -> list[str]:
    tensors.pop("joint", None)
    order = ["i64", "i32", "i16", "i8", "program", "items.words", "items.readings"]
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, order.index(name)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("tensor", ["items.words", "items.readings"])
def test_golden_items_in_a_wider_type_than_they_need_are_refused(tensor: str) -> None:
    """A reader takes only what a writer writes, so equal bundles have equal bytes."""
    bundle = unpack_bundle(FILES[0], allow_joint=True)
    assert bundle.joint is not None
    items = tuple([replace(item, rows=tuple([(1,) * len(row) for row in item.rows])) for item in bundle.items])
    tensors = encode_items(items, bundle.program)
    assert decode(bundle, tensors) == items
    narrow = tensors[tensor]
    widest = array("q" if tensor == "items.words" else "d", narrow.tolist())
    assert widest.itemsize > narrow.itemsize
    with pytest.raises(BundleError, match="not of their type"):
        decode(bundle, {**tensors, tensor: widest})


FIRST_REPLY = 5  # behind the number of cases, a budget, a size, a flag and a number of parts


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, 0, "their number 0"), (1, -2, "budget -2"), (2, 0, "item size 0"), (3, 2, "a flag 2"),
        (4, 0, "the number of parts 0"), (FIRST_REPLY, 2, "a flag 2"), (FIRST_REPLY + 1, 99, "a reply of 99"),
        (FIRST_REPLY + 2, 10_001, "confidence 10001"), (FIRST_REPLY + 3, -1, "the sensors -1"),
    ],
)  # fmt: skip
def test_golden_items_that_make_no_sense_are_refused(at: int, value: int, said: str) -> None:
    bundle = unpack_bundle(FILES[0], allow_joint=True)
    tensors = encode_items(bundle.items, bundle.program)
    words = tensors["items.words"].tolist()
    words[at] = value
    with pytest.raises(BundleError, match=said):
        decode(bundle, {**tensors, "items.words": narrowest(words, "hiq", "a forgery")})


def decode(bundle: Bundle, tensors: dict[str, array]) -> tuple[JointCase, ...]:  # type: ignore[type-arg]
    assert bundle.joint is not None
    return decode_items(tensors["items.words"], tensors["items.readings"], bundle.program, bundle.joint)


def test_every_cut_of_a_joint_bundle_is_refused() -> None:
    data = FILES[3]
    for cut in range(0, len(data), 97):
        with pytest.raises(BundleError):
            unpack_bundle(data[:cut], allow_joint=True)


def test_the_record_survives_its_words() -> None:
    for seed in range(12):
        _, joint = random_joint(seed, 2)
        assert decode_joint(encode_joint(joint)) == joint


# ---------------------------------------------------------------- one rule, one refusal


def plain() -> tuple[Program, Joint]:
    """A part program with one barrier, anytime, which is accepted."""
    for seed in range(1000):
        part, joint = random_joint(seed, 1)
        if joint.release == ANYTIME and len(joint.waits) == 1 and len(joint.inner(part)) == 1:
            return part, joint
    raise AssertionError


PART, JOINT = plain()
WAIT = JOINT.waits[0]
INNER = next(iter(JOINT.inner(PART)))
K = JOINT.chain.labels
OTHER = next(k for k, n in enumerate(PART.nodes) if isinstance(n, Acquire) and k != WAIT.node)


def with_inner(sensor: Sensor) -> Program:
    sensors = tuple(sensor if s == INNER else other for s, other in enumerate(PART.sensors))
    return replace(PART, sensors=sensors)


def with_first_inner_feature(feature: Feature) -> Program:
    first = PART.sensors[INNER].features[0]
    return replace(PART, features=tuple(feature if f == first else x for f, x in enumerate(PART.features)))


REFUSED = [
    (PART, replace(JOINT, chain=replace(JOINT.chain, labels=K + 1)), "the chain has"),
    (PART, replace(JOINT, chain=replace(JOINT.chain, stop=())), "transitions, starts and stops"),
    (PART, replace(JOINT, chain=replace(JOINT.chain, start=(2**62 - 1,) * K)), "may overflow"),
    (PART, replace(JOINT, max_parts=0), "0 parts"),
    (PART, replace(JOINT, max_parts=MAX_PARTS + 1), "1025 parts"),
    (PART, replace(JOINT, release="sometimes"), "the release is 'sometimes'"),
    (PART, replace(JOINT, threshold=2**63), "the threshold of the policy"),
    (PART, replace(JOINT, margins=(5, 5), confidences=(0, 1, 2)), "margins of parts do not rise"),
    (PART, replace(JOINT, item_margins=(), item_confidences=(1, 2)), "confidences of items are not 1"),
    (PART, replace(JOINT, waits=(WAIT, WAIT)), "two barriers stand"),
    (PART, replace(JOINT, waits=(replace(WAIT, node=999),)), "node 999 is named"),
    (PART, replace(JOINT, waits=(replace(WAIT, node=len(PART.nodes) - 1),)), "is not an Acquire of one sensor"),
    (PART, replace(JOINT, waits=(replace(WAIT, scores=Slice(0, 0, K - 1 if K > 2 else K + 1)),)), "gives"),
    (PART, replace(JOINT, waits=(replace(WAIT, policy=None),)), "a policy in a anytime release, or lacks one"),
    (PART, replace(JOINT, waits=(replace(WAIT, policy=Slice(0, 0, 2)),)), "is not one score"),
    (PART, replace(JOINT, waits=(replace(WAIT, policy=Slice(99999, 0, 1)),)), "99999"),
    (with_inner(replace(PART.sensors[INNER], cost=(1,))), JOINT, "is not free"),
    (with_first_inner_feature(Feature("i32", nullable=True)), JOINT, "is not free|no substitute"),
    (with_first_inner_feature(Feature("f32")), JOINT, "is not free"),
    (
        with_inner(replace(PART.sensors[INNER], features=PART.sensors[INNER].features[:-2])),
        JOINT,
        "11 or 12 i32|sensor",
    ),
    (  # a request never carries what the chain says
        replace(PART, uplink=replace(PART.uplink, features=PART.sensors[INNER].features[:1], request_bytes=0)),
        JOINT,
        None,
    ),
    (PART, replace(JOINT, waits=(replace(WAIT, node=OTHER),)), None),  # its barrier alone names an inner sensor
]


@pytest.mark.parametrize(("part", "joint", "message"), REFUSED)
def test_a_rule_that_is_broken_is_named(part: Program, joint: Joint, message: str | None) -> None:
    with pytest.raises(ProgramError, match=message):
        verify_joint(part, joint)


def test_the_plain_program_is_accepted_and_its_proof_is_small() -> None:
    report, start = verify_joint(PART, JOINT), start_of(PART.costs)
    assert report.rounds == JOINT.max_parts * 1
    assert report.worst_cost == start + JOINT.max_parts * (report.part.worst_cost - start)


def test_scores_that_a_path_has_not_read_cannot_be_told_to_the_chain() -> None:
    """The barrier's slice reads a sensor that nothing in front of the barrier buys."""
    features = (Feature("f32"), *[Feature("i32")] * 11)
    from hardcase_edge.joint.definition import Chain, Wait
    from hardcase_edge.program.definition import Affine, Column, Polynomial, Uplink

    part = Program(
        features, (Sensor((0,), (5,)), Sensor(tuple(range(1, 12)), (0,))), Uplink(), (Column(0, Affine(0, 1, 0, 0)),),
        (Polynomial((), (), 1, (), ((), ()), (0, 0)), Polynomial((0,), (0,), 1, ((0,),), ((1,), (2,)), (0, 0))),
        (Acquire((1,), 1, 1), Answer(Slice(0, 0, 2))), 2,
    )  # fmt: skip
    chain = Chain(2, (0,) * 4, (0, 0), (0, 0))
    verify_joint(part, Joint(chain, (Wait(0, Slice(0, 0, 2)),), ONE_SHOT, 3))
    with pytest.raises(ProgramError, match="reads"):
        verify_joint(part, Joint(chain, (Wait(0, Slice(1, 0, 2)),), ONE_SHOT, 3))


def test_a_joint_bundle_with_golden_cases_of_version_1_is_refused() -> None:
    from hardcase_edge.bundle.golden import GoldenCase
    from hardcase_edge.session.session import Decision

    rng = random.Random(1)
    bundle = unpack_bundle(FILES[0], allow_joint=True)
    row = tuple(rng.random() for _ in bundle.program.features)
    case = GoldenCase(row, (), None, 1, True, None, Decision(0, 0, "local", 0, (), (0,)))
    with pytest.raises(BundleError):
        unpack_bundle(
            pack_bundle(Bundle(bundle.manifest, bundle.program, (case,), joint=bundle.joint)), allow_joint=True
        )
