# SPDX-License-Identifier: Apache-2.0
"""Source models of anything that can be imported: a file by its content, a live estimator by its library."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.hooks import hooked, load_hook

from ..sources.source import Source, read_bytes


def read_model(model: Any) -> Source:
    """The source model of an estimator, or of a path: .onnx, .skops, .tflite, LightGBM's text, JSON of XGBoost, EBM.

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


# Importers: readers of files in which other libraries keep their models, found by the hook ``hardcase.importers``.


@dataclass(frozen=True)
class Importer:
    """A reader of one kind of file.

    what : the kind in messages, with its article, such as "an .onnx file"
    takes : whether a file with this path and these bytes is of its kind; looks at the first bytes only
    read : the model in the bytes, which come from outside; raises ``InputError`` with one line
    """

    what: str
    takes: Callable[[Path, bytes], bool]
    read: Callable[[bytes], Source]


def importers() -> list[Importer]:
    """All that are installed, in alphabetical order of their names; the first that takes a file reads it.

    Raises
    ------
    InputError
        One cannot be loaded, or two have the same name.
    """
    return [load_hook(point, Importer) for point in hooked("importers").values()]


def _is_ebm(data: bytes) -> bool:
    return bool(re.match(rb'\{\s*("version"\s*:\s*"[^"]{0,20}"\s*,\s*)?"ebm"\s*:', data[:1000]))


def _onnx(data: bytes) -> Source:
    from ..sources.from_onnx import read_onnx

    return read_onnx(data)


def _skops(data: bytes) -> Source:
    from ..sources.from_skops import read_skops

    return read_skops(data)


def _lightgbm(data: bytes) -> Source:
    from ..sources.from_lightgbm import read_lightgbm

    return read_lightgbm(data)


def _xgboost(data: bytes) -> Source:
    from ..sources.from_xgboost import read_xgboost

    return read_xgboost(data)


def _ebm(data: bytes) -> Source:
    from ..sources.from_interpret import read_interpret

    return read_interpret(data)


EBM = Importer("JSON of an EBM", lambda path, data: _is_ebm(data), _ebm)
LIGHTGBM = Importer("LightGBM text", lambda path, data: data[:5] == b"tree\n", _lightgbm)
ONNX = Importer(
    "an .onnx file", lambda path, data: path.suffix == ".onnx" and not data.startswith((b"{", b"PK", b"tree")), _onnx
)
SKOPS = Importer("a .skops file", lambda path, data: data[:4] == b"PK\x03\x04", _skops)
XGBOOST = Importer("JSON of XGBoost", lambda path, data: data[:1] == b"{" and not _is_ebm(data), _xgboost)
