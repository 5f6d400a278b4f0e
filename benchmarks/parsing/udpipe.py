# SPDX-License-Identifier: Apache-2.0
"""UDPipe 1 trained on the same treebank with gold tags: a transition-based peer, greedy and with a beam."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BEAM = 5


def _sentences(name: str) -> list[Any]:
    """All sentences, kept in a list of Python: the vectors of the binding hand out copies."""
    from ufal import udpipe

    with gzip.open(Path(os.environ["HARDCASE_DATA"]) / name, "rt", encoding="utf-8") as file:
        reader = udpipe.InputFormat.newConlluInputFormat()
        reader.setText(file.read())
    error, sentences = udpipe.ProcessingError(), []
    sentence = udpipe.Sentence()
    while reader.nextSentence(sentence, error):
        sentences.append(sentence)
        sentence = udpipe.Sentence()
    return sentences


def _heads(sentences: list[Any]) -> np.ndarray:
    return np.array([word.head for sentence in sentences for word in list(sentence.words)[1:]])


def measure(iterations: int, most: int | None = None) -> dict[str, float]:
    """UAS and microseconds a word, greedy and with a beam, after so many iterations on ``most`` sentences (None: all).

    Raises
    ------
    RuntimeError
        UDPipe refused to train.
    """
    from ufal import udpipe

    train = _sentences("en_ewt-ud-train.conllu.gz")[:most]
    dev = _sentences("en_ewt-ud-dev.conllu.gz")[:most]
    error, began = udpipe.ProcessingError(), time.process_time()
    model_bytes = udpipe.Trainer.train(
        "morphodita_parsito", udpipe.Sentences(train), udpipe.Sentences(), "none", "none",
        f"iterations={iterations}", error,
    )  # fmt: skip
    out = {"training s": time.process_time() - began}
    if error.occurred():
        raise RuntimeError(f"UDPipe cannot be trained: {error.message}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(bytes(model_bytes))
        model = udpipe.Model.load(str(path))
    truth = _heads(dev)
    for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):  # without an option UDPipe takes a beam of 5
        began = time.process_time()
        for sentence in dev:
            model.parse(sentence, f"beam_search={beam}")
        out[f"{name}, us"] = (time.process_time() - began) / len(truth) * 1e6
        out[f"{name}, uas"] = float(np.mean(_heads(dev) == truth))
    return out
