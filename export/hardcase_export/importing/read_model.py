# SPDX-License-Identifier: Apache-2.0
"""Source models of anything that can be imported: a file by its content, a live estimator by its library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..sources.source import Source, read_bytes

__all__ = ["read_model"]


def read_model(model: Any) -> Source:
    """The source model of a path (.onnx, .skops, LightGBM's text, XGBoost's or an EBM's JSON) or of a live estimator.

    Raises
    ------
    InputError
        The model is not of a known kind, cannot be read, or does what a program cannot express. A pickle is refused
        unread.
    """
    if isinstance(model, str | Path):
        return _read_file(Path(model))
    from ..sources.from_estimator import from_estimator

    return from_estimator(model)


def _read_file(path: Path) -> Source:
    data = read_bytes(str(path))
    if data[:1] == b"\x80" or path.suffix in (".pkl", ".pickle", ".joblib"):
        raise InputError(f"model {path} is a pickle, which can run any code and is never loaded; write .onnx or .skops")
    if data[:5] == b"tree\n":
        from ..sources.from_lightgbm import read_lightgbm

        return read_lightgbm(data)
    if data[:4] == b"PK\x03\x04":
        from ..sources.from_skops import read_skops

        return read_skops(data)
    if data[:1] == b"{":
        if re.match(rb'\{\s*("version"\s*:\s*"[^"]{0,20}"\s*,\s*)?"ebm"\s*:', data[:1000]):
            from ..sources.from_interpret import read_interpret

            return read_interpret(data)
        from ..sources.from_xgboost import read_xgboost

        return read_xgboost(data)
    if path.suffix != ".onnx":
        raise InputError(
            f"model {path} is not an .onnx file, a .skops file, LightGBM text or JSON of XGBoost or an EBM; write it "
            "as one of them"
        )
    from ..sources.from_onnx import read_onnx

    return read_onnx(data)
