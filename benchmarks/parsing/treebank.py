# SPDX-License-Identifier: Apache-2.0
"""The English Web Treebank of Universal Dependencies, as the parser wants it; ``HARDCASE_DATA`` names its folder."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TRAIN, DEV = "en_ewt-ud-train.conllu.gz", "en_ewt-ud-dev.conllu.gz"
SUFFIX = 3  # letters of a word's end that stand for it


@dataclass(frozen=True)
class Treebank:
    """Sentences (words, 4) of ints (word, its end, fine tag, coarse tag), and heads (words,), gold tags."""

    train: tuple[list[np.ndarray], list[np.ndarray]]
    dev: tuple[list[np.ndarray], list[np.ndarray]]


Word = tuple[str, str, str, int]


def sentences(name: str) -> list[list[Word]]:
    """Form, fine tag, coarse tag and head of each word."""
    return [[(cells[1], cells[4], cells[3], int(cells[6])) for cells in s] for s in _sentences(name)]


def relations(name: str) -> list[list[str]]:
    """The relation of each word to its head, without its subtype."""
    return [[cells[7].partition(":")[0] for cells in s] for s in _sentences(name)]


def _sentences(name: str) -> list[list[list[str]]]:
    """The cells of each word; what stands for several words, or for one that is left out, is none."""
    found: list[list[list[str]]] = [[]]
    with gzip.open(Path(os.environ["HARDCASE_DATA"]) / name, "rt", encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if cells[0].isdigit():
                found[-1].append(cells)
            elif not line.strip():
                found.append([])
    return [s for s in found if s]


def load() -> Treebank:
    """Training and development sentences with gold tags."""
    return coded(sentences(TRAIN), sentences(DEV))


def coded(train: list[list[Word]], dev: list[list[Word]]) -> Treebank:
    """Sentences in numbers; those of tags are of training, 0 for what is new."""
    fine = {tag: k + 3 for k, tag in enumerate(sorted({w[1] for s in train for w in s}))}
    coarse = {tag: k + 2 for k, tag in enumerate(sorted({w[2] for s in train for w in s}))}

    def number(text: str) -> int:
        return zlib.crc32(text.encode()) & 0x7FFFFFFF

    def of(given: Sequence[list[Word]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        rows = [
            np.array(
                [
                    (number(w.lower()), number(w.lower()[-SUFFIX:]), fine.get(f, 0), coarse.get(c, 0))
                    for w, f, c, _ in s
                ],
                np.int64,
            )
            for s in given
        ]
        return rows, [np.array([word[3] for word in s], np.int64) for s in given]

    return Treebank(of(train), of(dev))


def depths(heads: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) edges between each word and the root of its tree, minus one: 0 for the root's child."""
    out = []
    for tree in heads:
        depth = np.zeros(len(tree), np.int64)
        for m in range(len(tree)):
            v = m + 1
            while tree[v - 1] != 0:
                v, depth[m] = int(tree[v - 1]), depth[m] + 1
        out.append(depth)
    return np.concatenate(out)
