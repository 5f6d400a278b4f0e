# SPDX-License-Identifier: Apache-2.0
"""The rows of ``--calibration``, on which a promise is tested, with what f0 answers to them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_export.drafts.rows import Rows, file_sha256
from hardcase_export.integers.point import Build
from hardcase_export.picking.held_out import HeldOut
from hardcase_export.picking.pick import candidates
from hardcase_export.picking.promise_words import BY_CLASS, BY_TRUTH
from hardcase_train.data.dtypes import rounded_to_dtypes

from ..measuring.labelled_rows import groups_of, labelled_rows, replies_to, sequences_of, sizes_of, texts_of


def held_out_of(args: argparse.Namespace, build: Build) -> HeldOut:
    """The rows of --calibration, with the answers of the build's f0, and the values of the column of --risk-per.

    Raises
    ------
    InputError
        The file cannot be read, lacks what the build's policies read, or nobody answers its rows.
    """
    path, folder, front = Path(args.calibration), build.folder, build.front
    if front.is_joint:
        raise InputError(f"{folder} decides items of several parts, of which nothing is promised; leave --risk out")
    draft, manifest = build.draft(candidates(front, args.method)[0])
    manifest = replace(manifest, hpc=front.legacy or file_sha256(folder / "hpc.onnx"))  # drafts may lack it
    X, y, stored = labelled_rows(path, manifest, draft)
    replies = replies_to(draft, manifest, X, stored, args.hpc, [folder])
    kind = np.int64 if manifest.classes else np.float64
    answers = np.array([answer for answer, _ in replies], dtype=kind)
    sure = np.array([confidence for _, confidence in replies], dtype=np.int64)
    streams = sequences_of(path, manifest)
    rows = Rows(
        rounded_to_dtypes(X, draft.features), y, answers, sure, group=groups_of(path, manifest),
        sizes=sizes_of(path, manifest), sequence=np.zeros(len(y), dtype=np.int64) if streams is None else streams,
    )  # fmt: skip
    column = None if args.risk_per in (None, BY_CLASS, BY_TRUTH) else texts_of(path, args.risk_per)
    return HeldOut(rows, path.name, file_sha256(path), column)
