# SPDX-License-Identifier: Apache-2.0
"""First-order dependency parser with cheap templates (tags) and costly ones (words), trained under random states.

A sentence is (words, 4) ints: word, prefix or suffix, fine tag and coarse tag, each below 2^31 and the coarse tag below
32. A fifth int may be the word's supertag, what a tagger says of the word's place in the tree (Ouchi, Duh and Matsumoto
2014); costly templates read it, and training sentences need supertags of a tagger that has not seen them. A sentence's
labels are the words' heads, 0 for the root. Trees are projective and the root has one child.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from benchmarks.parsing.eisner import eisner_all
from benchmarks.parsing.tree_core import cheap_scores, costly_scores, count_edges, new_weights, train_trees
from hardcase_train.structured.items import as_items, flatten, take

PAD, ROOT = (1, 1, 1, 0, 1), (2, 2, 2, 1, 2)  # tokens beside a sentence; all begin with 3, coarse tags with 2
NO_DICTIONARY = np.zeros((0, 0, 2), np.int16)
MOST_COARSE = 32


class Sentences:
    """Sentences one after the other as the compiled code wants them: each with the root in front and padding."""

    def __init__(self, X: Sequence[np.ndarray]) -> None:
        words, self.starts = flatten(X, np.int64)
        width = words.shape[1]
        if width not in (4, 5) or words.min() < 0 or words[:, 3].max() >= MOST_COARSE:
            raise ValueError("a word is four or five ints from 0 on, the fourth one, its coarse tag, below 32")
        n = len(self.starts) - 1
        self.tokens = np.empty((len(words) + 3 * n, width), np.int64)
        at = self.starts + 3 * np.arange(n + 1)
        self.tokens[at[:-1]] = self.tokens[at[1:] - 1] = PAD[:width]
        self.tokens[at[:-1] + 1] = ROOT[:width]
        self.tokens[np.arange(len(words)) + 2 + 3 * np.repeat(np.arange(n), np.diff(self.starts))] = words

    def words(self) -> list[np.ndarray]:
        """(words, 4 or 5) of each sentence."""
        return [self.tokens[a + 3 * s + 2 : b + 3 * s + 2] for s, (a, b) in enumerate(pairwise(self.starts))]

    def only(self, which: np.ndarray) -> Sentences:
        """These sentences alone."""
        return Sentences(take(self.words(), which))


class TreeParser(BaseEstimator):  # type: ignore[misc]
    """Heads of words.

    Parameters
    ----------
    n_epochs : int
    bits : int
        The parser has 2^bits hashed weights.
    learner : {"mira", "perceptron"}
    most : float
        The largest step of MIRA, or the perceptron's step.
    is_always_full : bool
        Train with all features alone instead of random states; of use for comparison.
    seed : int

    Attributes
    ----------
    n_features_in_ : int
        4, or 5 where words have supertags.
    weights_ : (2^bits,) float32 array
    edges_ : (2, fine tags, fine tags, 2, lengths) int32 array
        How many edges training sentences have from a head's tag to a word's, the head on the word's left or on its
        right, of each length: those of trees, and all that there could be.
    longest_ : (fine tags, fine tags, 2) int16 array
        The longest edge of training trees: the length dictionary of Rush and Petrov (2012), ``dictionary(0)``.
    """

    def __init__(
        self, n_epochs: int = 10, bits: int = 22, learner: str = "mira", most: float = 0.1,
        is_always_full: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        self.n_epochs = n_epochs
        self.bits = bits
        self.learner = learner
        self.most = most
        self.is_always_full = is_always_full
        self.seed = seed

    def fit(self, X: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> Self:
        """Train on sentences (words, 4 or 5) and heads (words,).

        Raises
        ------
        ValueError
            ``learner`` is unknown, or heads are not one a word or lie outside their sentence.
        """
        if self.learner not in ("mira", "perceptron"):
            raise ValueError(f"learner is {self.learner!r}; learners are mira, perceptron")
        sentences = Sentences(X)
        if [len(a) for a in X] != [len(b) for b in y] or any(np.min(b) < 0 or np.max(b) > len(b) for b in y):
            raise ValueError("heads are one a word, from 0 (the root) to the number of words")
        heads = np.concatenate(y).astype(np.int64)
        self.n_features_in_ = sentences.tokens.shape[1]
        self.weights_ = new_weights(self.bits)
        train_trees(
            sentences.tokens, sentences.starts, heads, self.weights_, new_weights(self.bits), self.n_epochs, self.most,
            self.learner == "mira", self.is_always_full, self.seed,
        )  # fmt: skip
        lengths = int(np.diff(sentences.starts).max()) + 1
        self.edges_ = count_edges(
            sentences.tokens, sentences.starts, heads, int(sentences.tokens[:, 2].max()) + 1, lengths
        )
        self.longest_ = self.dictionary(0.0)
        return self

    def dictionary(self, price: float) -> np.ndarray:
        """Lengths beyond which edges are left out, as ``longest_``; a scored edge costs ``price`` edges of trees.

        With price 0 it is the longest one of training trees, with more of it the length for which the edges of trees
        that are kept, less the price of all edges that are scored, are most in training.
        """
        trees, every = np.cumsum(self.edges_, axis=-1, dtype=np.float64)
        return np.asarray(np.argmax(trees - price * every, axis=-1), dtype=np.int16)

    def scores(self, given: Sentences, buys: np.ndarray, dictionary: bool = False, n_heads: int = 0) -> np.ndarray:
        """Scores of edges, all in one array, as ``eisner_all`` wants them; ``buys`` (n,) is each word's state.

        Raises
        ------
        ValueError
            Words have a supertag and those of training had none, or the reverse.
        """
        if given.tokens.shape[1] != self.n_features_in_:
            raise ValueError(f"a word has {given.tokens.shape[1]} ints; those of training had {self.n_features_in_}")
        longest = self._longest_for(given) if dictionary else NO_DICTIONARY
        flat, _ = cheap_scores(given.tokens, given.starts, self.weights_, longest)
        costly_scores(flat, given.tokens, given.starts, self.weights_, buys, n_heads)
        return np.asarray(flat)

    def _longest_for(self, given: Sentences) -> np.ndarray:
        """``longest_`` with rows for tags that training has not seen, of which nothing is left out."""
        n_more = max(0, int(given.tokens[:, 2].max()) + 1 - len(self.longest_))
        every = np.iinfo(self.longest_.dtype).max
        return np.pad(self.longest_, ((0, n_more), (0, n_more), (0, 0)), constant_values=every)

    def predict(
        self, X: Sequence[np.ndarray], states: Any = None, dictionary: bool = False, n_heads: int = 0
    ) -> list[np.ndarray]:
        """Heads of each sentence; ``states``: 0, 1 or a list of (words,) of them, None: all have costly features.

        With ``dictionary`` longer edges than in training are left out; with ``n_heads`` words are looked at on that
        many heads only, the best by tags.
        """
        sentences = Sentences(X)
        if states is None or np.isscalar(states):
            buys = np.full(int(sentences.starts[-1]), states is None or bool(states))
        else:
            buys = np.concatenate([np.asarray(s, dtype=bool) for s in states])
        return as_items(
            eisner_all(self.scores(sentences, buys, dictionary, n_heads), sentences.starts), sentences.starts
        )

    def score(self, X: Sequence[np.ndarray], y: Sequence[np.ndarray], states: Any = None) -> float:
        """Share of words whose head is right: the unlabelled attachment score (UAS)."""
        return float(np.mean(np.concatenate(self.predict(X, states)) == np.concatenate(list(y))))
