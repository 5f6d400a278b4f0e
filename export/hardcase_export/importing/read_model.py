# SPDX-License-Identifier: Apache-2.0
"""Source models of anything that can be imported: a file by its content, a live estimator by its library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..sources.source import Source, read_bytes
from .importer import importers

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
    for importer in importers():
        if importer.takes(path, data):
            return importer.read(data)
    kinds = [importer.what for importer in importers()]
    raise InputError(f"model {path} is not {', '.join(kinds[:-1])} or {kinds[-1]}; write it as one of them")
