# SPDX-License-Identifier: Apache-2.0
"""Decides items whose readings are all known, and f0's replies, if there are any."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.session import JointDecision, JointMachine


def decide_rows(
    machine: JointMachine, item: np.ndarray, replies: np.ndarray | None = None, **settings: Any
) -> JointDecision:
    """The decision of a machine on (parts, columns) whose readings are all known.

    Parameters
    ----------
    replies : (parts, 2) f0's class index and its confidence in basis points, with which requests are answered at once;
        None: requests have no reply
    settings : of the session
    """
    rows, answers = item.tolist(), [None] * len(item) if replies is None else [(a, b) for a, b in replies.tolist()]
    features = [s.features for s in machine.program.sensors]
    session = machine.session(len(rows), **settings)
    return drive_joint(
        session,
        lambda asked: {(p, s): [rows[p][f] for f in features[s]] for p, s in asked},
        lambda part, _: answers[part],
    )
