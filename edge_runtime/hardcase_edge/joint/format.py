# SPDX-License-Identifier: Apache-2.0
"""The tensor ``joint`` of a bundle: the words of a ``Joint``; docs/SPEC-joint-v1.md section 6 defines each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..errors import BundleError
from ..program.definition import Slice
from ..program.format import Tensor
from ..session.recorded import narrowest
from .definition import RELEASES, Chain, Joint, Wait

JOINT_VERSION = 1
HEADER, WAIT = 8, 7  # words
NO_POLICY = -1
MOST_WORDS = 2**20
AGAIN = "export the bundle again"


def encode_joint(joint: Joint) -> array:  # type: ignore[type-arg]
    """The tensor, of the narrowest of i32 and i64 that holds all words.

    Raises
    ------
    BundleError
        A number does not fit 64 bits.
    """
    c = joint.chain
    words = [JOINT_VERSION, c.labels, joint.max_parts, RELEASES.index(joint.release), joint.threshold]
    words += [len(joint.waits), len(joint.margins), len(joint.item_margins)]
    words += [*c.transitions, *c.start, *c.stop]
    for w in joint.waits:
        policy = (NO_POLICY, 0, 0) if w.policy is None else (w.policy.scorer, w.policy.start, w.policy.stop)
        words += [w.node, w.scores.scorer, w.scores.start, w.scores.stop, *policy]
    words += [*joint.margins, *joint.confidences, *joint.item_margins, *joint.item_confidences]
    return narrowest(words, "iq", "the joint program")


def decode_joint(tensor: Tensor) -> Joint:
    """The record in these words; ``prove.verify_joint`` has yet to prove it.

    Raises
    ------
    BundleError
        The words are not of this version, or too few or too many for what they announce.
    """
    if not HEADER <= len(tensor) <= MOST_WORDS:
        raise BundleError(f"the tensor joint has {len(tensor)} words, {HEADER} to {MOST_WORDS} are allowed; {AGAIN}")
    words: list[int] = tensor.tolist()
    version, k, max_parts, release, threshold, n_waits, n_margins, n_item_margins = words[:HEADER]
    if version != JOINT_VERSION:
        raise BundleError(f"joint programs of version {version} cannot be read here; update hardcase-edge")
    counts = (k, n_waits, n_margins, n_item_margins)
    if not all(0 <= n <= MOST_WORDS for n in counts) or not 0 <= release < len(RELEASES):
        raise BundleError(f"the tensor joint announces {counts} of a release {release}; {AGAIN}")
    expected = HEADER + k * (k + 2) + WAIT * n_waits + 2 * (n_margins + n_item_margins + 1)
    if len(words) != expected:
        raise BundleError(f"the tensor joint has {len(words)} words, {expected} are expected; {AGAIN}")
    if tensor.itemsize != narrowest(words, "iq", "the joint program").itemsize:
        raise BundleError(f"the tensor joint is wider than its words need; {AGAIN}")
    rest = iter(words[HEADER:])

    def take(n: int) -> tuple[int, ...]:
        return tuple([next(rest) for _ in range(n)])

    chain = Chain(k, take(k * k), take(k), take(k))
    waits = tuple([_wait(take(WAIT)) for _ in range(n_waits)])
    margins, confidences = take(n_margins), take(n_margins + 1)
    return Joint(
        chain, waits, RELEASES[release], max_parts, threshold, margins, confidences, take(n_item_margins),
        take(n_item_margins + 1),
    )  # fmt: skip


def _wait(words: Sequence[int]) -> Wait:
    node, scorer, start, stop, *policy = words
    if policy[0] == NO_POLICY and policy[1:] != [0, 0]:
        raise BundleError(f"a barrier without a policy names outputs of one; {AGAIN}")
    return Wait(node, Slice(scorer, start, stop), None if policy[0] == NO_POLICY else Slice(*policy))
