# SPDX-License-Identifier: Apache-2.0
"""A joint bundle of handwritten words: agreement with its floats, a dead letter, bytes, time of an item, odd letters.

    HARDCASE_DATA=FOLDER python -m benchmarks run joint        about a minute; FOLDER has ocr_taskar.npz

The chain and its one-shot policy are trained on eight tenths of the words of Taskar's data, the tables of confidences
come from one tenth, and everything is measured on the last. Pixels are free, HOG costs 1. Last, the same chain has the
score of atypical parts (a share of 0.05), and the middle letter of each word stands on its head, or is half covered.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.letters import N_PIXELS, hog, load
from hardcase_edge.bundle.evidence import is_above
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT
from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.session import JointMachine
from hardcase_edge.kernel.machine import KERNEL, PYTHON
from hardcase_export.joint.build import agreement, export_chain
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.model import ChainModel, Group
from hardcase_train.methods.structured.chain_features import DECODER
from hardcase_train.methods.structured.one_shot import OneShotChain
from hardcase_train.structured.chain import ChainClassifier

STEPS = 1000  # a HOG reading is a whole number of thousandths
LETTERS = 8  # of the item that is timed
SHARE = 0.05  # of held-out letters that are above the threshold of the score
Change = Callable[[np.ndarray], np.ndarray]


def split(seed: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Items of pixels and HOG in steps, labels, and a fold of each word: 0 test, 1 validation, others training."""
    words = load()
    rows = np.hstack([words.pixels, np.rint(STEPS * hog(words.pixels))]).astype(np.float64)
    bounds = list(zip(words.starts[:-1], words.starts[1:], strict=True))
    fold = np.random.default_rng(seed).permutation(np.arange(len(bounds)) % 10)
    return [rows[a:b] for a, b in bounds], [words.labels[a:b] for a, b in bounds], fold


def train(items: list[np.ndarray], labels: list[np.ndarray], share: float, epochs: int) -> OneShotChain:
    """The chain on pixels and HOG in units, and the policy on what a device's decoder gives."""
    scale = np.r_[np.ones(N_PIXELS), np.full(items[0].shape[1] - N_PIXELS, 1 / STEPS)]
    levels = [list(range(N_PIXELS)), list(range(items[0].shape[1]))]
    chain = ChainClassifier(levels, n_epochs=epochs)
    model = OneShotChain(chain, features="decoder", share=share)
    return model.fit([item * scale for item in items], labels)


def model_of(learned: OneShotChain, width: int, release: str = ONE_SHOT) -> ChainModel:
    """The arrays of a learned chain, in the units of readings."""
    cheap, dear = (w.astype(np.float64) for w in learned.chain_.weights)
    dear = dear.copy()
    dear[N_PIXELS:-1] /= STEPS
    policy = np.zeros(len(FEATURES))
    policy[: len(DECODER)] = learned.policy_.weights
    return ChainModel(
        labels=tuple(chr(97 + k) for k in range(26)),
        cheap=Group("pixels", tuple(f"p{k}" for k in range(N_PIXELS)), 0.0, "i32"),
        dear=Group("hog", tuple(f"h{k}" for k in range(width - N_PIXELS)), 1.0, "i32"),
        cheap_weights=cheap,
        dear_weights=dear,
        transitions=learned.chain_.transitions.astype(np.float64),
        start=learned.chain_.start.astype(np.float64),
        stop=learned.chain_.stop.astype(np.float64),
        policy=policy,
        policy_bias=learned.policy_.bias,
        threshold=learned.threshold_,
        release=release,
    )


def with_dead_middle(machine: JointMachine, items: list[np.ndarray], labels: list[np.ndarray]) -> tuple[float, int]:
    """How often the middle letter is right although both of its sensors fail, and whether every item was answered."""
    features = [s.features for s in machine.program.sensors]
    right, n = 0, 0
    for item, truth in zip(items, labels, strict=True):
        if not 3 <= len(item) <= machine.joint.max_parts:
            continue
        middle, rows = len(item) // 2, item.tolist()
        decision = drive_joint(
            machine.session(len(rows), cloud=False),
            lambda asked, rows=rows, middle=middle: {
                (p, s): None if p == middle else [rows[p][f] for f in features[s]] for p, s in asked
            },
            lambda part, _: None,
        )
        n += 1
        right += decision.labels[middle] == truth[middle]
    return right / n, n


def on_its_head(pixels: np.ndarray) -> np.ndarray:
    """A letter turned by half a turn."""
    return pixels[::-1]


def half_covered(pixels: np.ndarray) -> np.ndarray:
    """A letter whose lower half is blank."""
    return np.where(np.arange(N_PIXELS) < N_PIXELS // 2, pixels, 0)


def odd_letters(loaded: Loaded, items: list[np.ndarray], labels: list[np.ndarray], change: Change | None) -> str:
    """How many middle letters are above the threshold when they are changed, and how many are right, in a line."""
    nodes, branches, found = loaded.bundle.program.nodes, loaded.manifest.atypical, []
    assert loaded.joint is not None
    for item, truth in zip(items, labels, strict=True):
        middle, rows = len(item) // 2, item.copy()
        if change is not None:
            rows[middle, :N_PIXELS] = change(item[middle, :N_PIXELS])
            rows[middle, N_PIXELS:] = np.rint(STEPS * hog(rows[middle : middle + 1, :N_PIXELS]))[0]
        part = decide_rows(loaded.joint, rows, cloud=False).parts[middle]
        most = getattr(nodes[part.trace[-1]], "confidences", (0,))[-1]
        above = is_above(part.trace, loaded.bundle.program, branches)
        found.append((bool(above), part.label == truth[middle], part.confidence, min(part.confidence, most)))
    above, right, plain, scored = np.array(found, dtype=float).T
    wrong = right == 0
    return (
        f"{above.mean():.1%} of {len(found)} above, right {right.mean():.3f}, of the {int(wrong.sum())} wrong ones "
        f"{above[wrong].mean():.1%} above; confidence {plain.mean() / 1e4:.3f} without the score, "
        f"{scored.mean() / 1e4:.3f} with it"
    )


def item_times(machine: JointMachine, items: list[np.ndarray], repeats: int) -> list[float]:
    """CPU milliseconds of items whose readings are there as lists of whole numbers."""
    features = [s.features for s in machine.program.sensors]
    prepared = []
    for item in items:
        rows = item.astype(int).tolist()
        prepared.append([[[row[f] for f in sensor] for sensor in features[:2]] for row in rows])
    times = []
    for rows in prepared * repeats:
        began = time.process_time_ns()
        drive_joint(
            machine.session(len(rows), cloud=False),
            lambda asked, rows=rows: {(p, s): rows[p][s] for p, s in asked},
            lambda part, _: None,
        )
        times.append((time.process_time_ns() - began) / 1e6)
    return times


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="to keep the bundles in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--share", type=float, default=0.3, help="of letters that get HOG")
    parser.add_argument("--bits", type=int, default=8, choices=(8, 16), help="of a weight")


def run(args: Any) -> None:
    """Train, export, measure and print."""
    items, labels, fold = split(args.seed)

    def part(wanted: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [items[k] for k in np.flatnonzero(wanted)], [labels[k] for k in np.flatnonzero(wanted)]

    inside, valid, test = part(fold > 1), part(fold == 1), part(fold == 0)
    learned = train(*inside, args.share, args.epochs)
    for release in (ONE_SHOT, ANYTIME):
        model = model_of(learned, items[0].shape[1], release)
        settings: dict[str, Any] = {
            "name": "words", "unit": "HOG", "max_parts": 14, "weight_bits": args.bits, "n_golden": 4, "golden_parts": 2
        }  # fmt: skip
        made = export_chain(model, inside[0], *valid, **settings)
        loaded = load_bytes(made.data, allow_joint=True)
        bundle, proved = loaded.bundle, made.report
        measured = agreement(model, open_joint(bundle.program, bundle.joint), *test)
        if args.keep:
            (args.keep / f"{release}.hcb").write_bytes(made.data)
        print(f"{release}: {len(test[0])} words, {measured.parts} letters of the test words")
        print(
            f"  bundle {len(made.data) / 1024:.1f} KB; an item takes at most {proved.operations} operations, "
            f"{proved.rounds} rounds, {proved.part.session_bytes} session bytes a part"
        )
        print(f"  right {measured.right:.4f} (floats {measured.right_floats:.4f}), HOG for {measured.bought:.3f}")
        print(f"  letters as the floats {measured.same_labels:.4%}, purchases {measured.same_purchases:.4%}")
        share, n = with_dead_middle(open_joint(bundle.program, bundle.joint), *test)
        print(f"  a dead middle letter is right in {share:.3f} of {n} words, and all {n} were answered")
        eight = [item for item in test[0] if len(item) == LETTERS][:60]
        for evaluator, repeats in ((PYTHON, 2), (KERNEL, 40)):
            machine = open_joint(bundle.program, bundle.joint, evaluator)
            times = item_times(machine, eight, repeats)
            bought = np.mean(
                [sum(1 in p.sensors for p in decide_rows(machine, item, cloud=False).parts) for item in eight]
            )
            print(
                f"  {evaluator}: {statistics.median(times):.3f} ms CPU an item of {LETTERS} letters (median of "
                f"{len(times)}; {bought:.1f} with HOG)"
            )
        scored = export_chain(model, inside[0], *valid, **settings, atypical=SHARE)
        loaded = load_bytes(scored.data, allow_joint=True)
        times = item_times(open_joint(loaded.bundle.program, loaded.bundle.joint, KERNEL), eight, 40)
        print(f"  with the score {len(scored.data) / 1024:.1f} KB, {KERNEL} {statistics.median(times):.3f} ms")
        for change in (None, on_its_head, half_covered):
            name = "as it is" if change is None else change.__name__.replace("_", " ")
            print(f"    the middle letter {name}: {odd_letters(loaded, *test, change)}")
