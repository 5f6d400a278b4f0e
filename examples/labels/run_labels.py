# SPDX-License-Identifier: Apache-2.0
"""A camera reads printed codes from end to end: train, export, and read a hundred labels under a hard budget.

    python examples/labels/run_labels.py --out build/labels

It takes about a minute and needs what `hardcase` needs. The folder then holds the bundle (codes.hcb), the held-out
labels as a file for `hardcase evaluate` (labels.csv), and a picture of one label (label.svg): the letters that were
bought, and what was read before and after.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))

from label_camera import FIRST_TEST, hog, load, thumbnail
from label_picture import label_svg

from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.device.device import Device
from hardcase_edge.device.machine import RuntimeConfig
from hardcase_edge.device.parts import open_part_bank
from hardcase_edge.joint.definition import FEATURES
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Costs
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.model import ChainModel, Group
from hardcase_export.joint.quantise import Asking
from hardcase_train.methods.structured.chain_features import DECODER
from hardcase_train.methods.structured.two_levels import OneShotChain
from hardcase_train.structured.chain import ChainClassifier

COSTS = {"thumbnail": 0.1, "hog": 1.0}  # ms on the device's processor
REQUEST = 40.0  # ms of waiting, of one letter asked
FIRST_VALID = 480
MOST_LETTERS = 9
N_CHEAP = 12


def main() -> None:
    """Train, export, measure, and draw one label."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/labels"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    images, codes = load()
    labels = sorted(set("".join(codes)))
    rows = [np.array([[*thumbnail(i), *hog(i)] for i in letters], dtype=float) for letters in images]
    truth = [np.array([labels.index(c) for c in code]) for code in codes]
    learned = OneShotChain(ChainClassifier([range(N_CHEAP), range(rows[0].shape[1])]), features="decoder", share=0.3)
    learned.fit([item / 4 for item in rows[:FIRST_VALID]], truth[:FIRST_VALID])  # readings of up to 4 and 16
    model = model_of(learned, labels, rows[0].shape[1])
    made = export_chain(
        model, rows[:FIRST_VALID], rows[FIRST_VALID:FIRST_TEST], truth[FIRST_VALID:FIRST_TEST], name="codes", unit="ms",
        max_parts=MOST_LETTERS, weight_bits=16, out=out / "codes.hcb", asking=Asking(0.4),
        costs=Costs(per_request=to_micro(REQUEST)),
        hpc="0" * 64, force=True,
    )  # fmt: skip
    print(
        f"{out / 'codes.hcb'}: {len(made.data) / 1024:.1f} KB, letters as the floats {made.agreement.same_labels:.2%}"
    )
    write_csv(out / "labels.csv", rows[FIRST_TEST:], codes[FIRST_TEST:])
    loaded, test = load_bundle(out / "codes.hcb", allow_joint=True), codes[FIRST_TEST:]
    for line, settings in (
        ("thumbnails alone", {"budget": MOST_LETTERS * COSTS["thumbnail"]}),
        ("3 ms a label", {"budget": 3.0}),
        ("no budget, cloud away", {}),
        ("no budget, doubtful letters asked", {"link": Desk(rows[FIRST_TEST:], truth[FIRST_TEST:])}),
    ):
        print(f"  {line:<36}{figures(read_all(loaded, out / 'labels.csv', **settings), test)}")
    dead = read_all(loaded, with_dead_letter(out, rows[FIRST_TEST:], codes[FIRST_TEST:]))
    middle = np.mean([r["labels"][len(c) // 2] == c[len(c) // 2] for r, c in zip(dead, test, strict=True)])
    print(f"  the middle letter's sensors dead: it is right in {middle:.0%} of labels, and each label was answered")
    draw_one(out, loaded, images[FIRST_TEST:], test)


def model_of(learned: OneShotChain, labels: list[str], width: int) -> ChainModel:
    """The arrays of the learned chain, in the units of readings."""
    chain = learned.chain_
    cheap, dear = (np.vstack([w[:-1] / 4, w[-1:]]).astype(float) for w in chain.weights)
    policy = np.zeros(len(FEATURES))
    policy[: len(DECODER)] = learned.policy_.weights
    return ChainModel(
        labels=tuple(labels),
        cheap=Group("thumbnail", tuple(f"t{k}" for k in range(N_CHEAP)), COSTS["thumbnail"], "i32"),
        dear=Group("hog", tuple(f"h{k}" for k in range(width - N_CHEAP)), COSTS["hog"], "i32"),
        cheap_weights=cheap,
        dear_weights=dear,
        transitions=chain.transitions.astype(float),
        start=chain.start.astype(float),
        stop=chain.stop.astype(float),
        policy=policy,
        policy_bias=learned.policy_.bias,
        threshold=learned.threshold_,
    )


class Desk:
    """A link to a person at a desk who is shown a letter and types it: in this script, the truth."""

    can_ask = True

    def __init__(self, rows: list[np.ndarray], truth: list[np.ndarray]) -> None:
        letters = zip(np.concatenate(rows).astype(int).tolist(), np.concatenate(truth).tolist(), strict=True)
        self._truth = {tuple(row): label for row, label in letters}
        self.counters: Counter[str] = Counter()

    def ask(self, readings: Any, deadline_s: float, may_resend: Any) -> Reply:
        """The person's answer about one letter."""
        return Reply(0, 0, OK, self._truth[tuple(readings)], 9_900)

    def publish_facts(self, fields: Any) -> bool:
        """Nobody listens."""
        return True

    def cancel(self) -> None:
        """Nothing is waited for."""


def write_csv(path: Path, rows: list[np.ndarray], codes: list[str]) -> None:
    """A row a letter; the column item says which letters are one label."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["item", "label", *(f"t{k}" for k in range(N_CHEAP)), *(f"h{k}" for k in range(96))])
        for k, (item, code) in enumerate(zip(rows, codes, strict=True)):
            out.writerows([[k, letter, *map(int, row)] for letter, row in zip(code, item, strict=True)])


def with_dead_letter(out: Path, rows: list[np.ndarray], codes: list[str]) -> Path:
    """A copy of the file, in which the middle letter of each label has no readings."""
    path = out / "dead.csv"
    write_csv(path, rows, codes)
    lines, at = path.read_text().splitlines(), 1
    for code in codes:
        cells = lines[at + len(code) // 2].split(",")
        lines[at + len(code) // 2] = ",".join(cells[:2] + [""] * (len(cells) - 2))
        at += len(code)
    path.write_text("\n".join(lines) + "\n")
    return path


def read_all(loaded: Loaded, path: Path, link: Any = None, **settings: Any) -> list[dict[str, Any]]:
    """The records of all labels of a file, by the device's own loop."""
    assert loaded.joint is not None
    with open_part_bank([f"replay:{path}"], loaded.machine.program, loaded.manifest, loaded.joint.inner) as bank:
        return list(Device(loaded, bank, link, RuntimeConfig(**settings)).run())


def figures(records: list[dict[str, Any]], codes: list[str]) -> str:
    """What a run of all labels came to."""
    letters = sum(map(len, codes))
    right = sum(a == b for r, c in zip(records, codes, strict=True) for a, b in zip(r["labels"], c, strict=True))
    whole = sum("".join(r["labels"]) == c for r, c in zip(records, codes, strict=True))
    bought = sum(len(r["bought"].get("hog", [])) for r in records)
    asked = sum(r["routes"].count("cloud") for r in records)
    cost = [r["cost"] for r in records]
    return (
        f"letters {right / letters:.3f}, labels {whole / len(codes):.2f}, hog {bought / letters:.0%}, "
        f"asked {asked / letters:.1%}, {np.mean(cost):.1f} ms a label, at most {max(cost):.1f}"
    )


def draw_one(out: Path, loaded: Loaded, images: list[np.ndarray], codes: list[str]) -> None:
    """The label that gains the most letters by what is bought, before and after."""
    before = read_all(loaded, out / "labels.csv", budget=MOST_LETTERS * COSTS["thumbnail"])
    after = read_all(loaded, out / "labels.csv")

    def gain(k: int) -> int:
        pairs = zip(before[k]["labels"], after[k]["labels"], codes[k], strict=True)
        return sum((b == c) - (a == c) for a, b, c in pairs)

    best = max(range(len(codes)), key=gain)
    (out / "label.svg").write_text(label_svg(images[best], before[best], after[best]))
    print(
        f"{out / 'label.svg'}: {codes[best]}, read {''.join(before[best]['labels'])} before "
        f"and {''.join(after[best]['labels'])} after"
    )


if __name__ == "__main__":
    main()
