# SPDX-License-Identifier: Apache-2.0
"""``hardcase export --onnx DIR --tflite DIR``: parts of the picked program as models for other runtimes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import Flags
from ..training.folders import MODELS, check_folder, whole_folder

if TYPE_CHECKING:
    from hardcase_export.drafts.front import Front
    from hardcase_export.integers.point import IntegerPoint
    from hardcase_export.runtimes import Models

__all__ = ["Targets", "add_targets"]


def add_targets(parser: Flags) -> None:
    """Declare one flag per target, each with a folder."""
    parser.add_argument("--onnx", type=Path, metavar="DIR", help="also write gate.onnx, lpc.onnx and hpc.onnx there")
    parser.add_argument("--tflite", type=Path, metavar="DIR", help="also write gate.tflite and lpc.tflite there")


class Targets:
    """The requested targets; a call with the picked point makes, replays and writes all of them.

    entries : the descriptions of the written files, by folder
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.build, self.onnx, self.tflite = Path(args.build), args.onnx, args.tflite
        self.folders = list(dict.fromkeys(Path(d).absolute() for d in (self.onnx, self.tflite) if d is not None))
        self.entries: dict[Path, list[dict[str, Any]]] = {}
        self.force = args.force
        for folder in self.folders:
            check_folder(folder, MODELS, force=self.force)

    def __call__(self, front: Front, point: IntegerPoint) -> None:
        """Make and replay all models, then write the folders."""
        from hardcase_export.runtimes import Models

        converted = [(Path(d).absolute(), make(front, point)) for d, make in self._makers() if d is not None]
        for folder in self.folders:
            models = Models().join(m for d, m in converted if d == folder)
            facts: dict[str, Any] = {"name": point.manifest.name, "classes": list(point.manifest.classes)}
            facts["categories"] = {name: list(texts) for name, texts in point.manifest.categories.items()}
            _write(folder, models, facts, self.force)
            self.entries[folder] = models.entries

    def _makers(self) -> list[tuple[Path | None, Callable[[Front, IntegerPoint], Models]]]:
        return [(self.onnx, self._make_onnx), (self.tflite, self._make_tflite)]

    def _make_onnx(self, front: Front, point: IntegerPoint) -> Models:
        from hardcase_export.runtimes import hpc_model, onnx_models

        models = onnx_models(point.quantised.program, point.manifest, point.test)
        if front.legacy:
            return models  # f0 is not a file
        return models.join([hpc_model(self.build, point.quantised.program, point.manifest, point.test)])

    def _make_tflite(self, _: Front, point: IntegerPoint) -> Models:
        from hardcase_export.runtimes import tflite_models

        return tflite_models(point.quantised.program, point.manifest, point.test, point.valid)

    def text(self) -> list[str]:
        """A line per file."""
        return [
            f"{folder / e['file']}: {e['bytes']} bytes, {_agreement(e)}"
            for folder, entries in self.entries.items()
            for e in entries
        ]


def _agreement(entry: dict[str, Any]) -> str:
    test = entry["test"]
    if "range" in entry:
        low, high = entry["range"]
        gap, allowed = (value / (high - low) for value in (test["gap"], entry["allowed"]))
        return (
            f"the same best score on {test['same_best']} of {test['rows']} test rows, off by at most {gap:.1%} of its "
            f"range ({allowed:.1%} allowed)"
        )
    gap = f", off by at most {test['gap']:g} steps ({entry['allowed']:g} allowed)" if test.get("gap") else ""
    return f"{test['rows'] - test['apart']} of {test['rows']} test rows as before{gap}"


def _write(folder: Path, models: Models, facts: dict[str, Any], force: bool) -> None:
    from hardcase_export.runtimes import DESCRIPTION

    with whole_folder(folder, MODELS, force=force) as new:
        for name, data in models.files.items():
            (new / name).write_bytes(data)
        text = json.dumps({**facts, "models": models.entries}, indent=1, sort_keys=True)
        (new / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
