# SPDX-License-Identifier: Apache-2.0
"""Which of its own answers a device forwards after all, when its promise is broken: a share of them, the least sure.

The confidences of the last answers are kept as counts in bins, so memory is bounded, and halved now and then, so that
old ones fade. Answers of one bin are alike: if any is to be forwarded, all are, and the share is rather more than less.
"""

from __future__ import annotations

__all__ = ["LeastSure"]

BINS = 50
FADE = 2_048  # answers after which all counts are halved


class LeastSure:
    """The confidences of the device's own answers."""

    def __init__(self) -> None:
        self._counts = [0.0] * BINS
        self._n = 0.0

    def takes(self, confidence: float | None, share: float) -> bool:
        """Note one answer, and whether it belongs to this share of all, 0 to 1; without a confidence it is unsure.

        >>> answers = LeastSure()
        >>> [answers.takes(c, 0.5) for c in (0.6, 0.6, 0.9, 0.9, None)]
        [True, True, False, False, True]
        """
        place = 0 if confidence is None else min(BINS - 1, int(confidence * BINS))
        if self._n >= FADE:
            self._counts = [n / 2 for n in self._counts]
            self._n /= 2
        self._counts[place] += 1
        self._n += 1
        return sum(self._counts[:place]) < share * self._n
