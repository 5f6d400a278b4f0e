"""Finished jobs of a sweep, kept on disk so that one that was killed goes on where it was.

A job's points are drafts (checksummed safetensors, as everywhere) and one JSON file that names them; the latter is
written last, and without it the drafts are nothing. Names are SHA-256 of all that a result depends on, so what is found
fits or is not found. What is cut, damaged or not ours is trained again. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.file import Bundle, pack_bundle, read_bundle_bytes, unpack_bundle
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.program.definition import Program

from ..data.task import Task
from ..policy.front import Point
from .executors import code_here
from .rungs import Job

__all__ = ["Kept", "task_key"]

MAX_JSON_BYTES = 16 * 1024 * 1024
FIGURES = {"quality", "cost", "forward_rate", "loss_se", "local_error", "local_worse", "local_better"}


def task_key(task: Task) -> dict[str, Any]:
    """What a sweep's results depend on beside its settings: data, configuration, seed, code."""
    config = {k: v.name if isinstance(v, Path) else v for k, v in asdict(task.config).items() if k != "methods"}
    data = [task.table.sha256, getattr(task.hpc, "sha256", None)]
    return {"config": config, "data": data, "code": code_here()}


class Kept:
    """A folder of finished jobs of one task.

    Parameters
    ----------
    folder : made when first needed; other tasks' jobs may lie there too
    task : as of ``task_key``
    """

    def __init__(self, folder: Path, task: dict[str, Any]) -> None:
        self.folder = folder
        self._prefix = sha256(_json(task)).hexdigest()

    def __len__(self) -> int:
        """How many values of this task lie there."""
        return len(list(self.folder.glob(f"{self._prefix}.*.json")))

    def find(self, job: Job) -> list[Point] | None:
        """The job's points, without test figures; None if it is not there whole."""
        entry = self._find_plain(asdict(job))
        try:
            return None if entry is None else [self._point(job, p) for p in entry]
        except (BundleError, InputError, TypeError, KeyError, ValueError):
            return None

    def add(self, job: Job, points: list[Point]) -> None:
        """Keep a finished job; one with a program that no bundle can hold is not kept."""
        try:
            packed = [_pack(p) for p in points]
        except BundleError:
            return
        entry = []
        for point, data in zip(points, packed, strict=True):
            said: dict[str, Any] = {"params": point.params, "valid": point.valid, "sha256": None}
            if data is not None:
                said["sha256"] = sha256(data).hexdigest()
                self.folder.mkdir(exist_ok=True)
                write_whole(self.folder / f"{said['sha256']}.safetensors", data)
            entry.append(said)
        self._add_plain(asdict(job), entry)

    def _find_plain(self, what: Any) -> Any:
        """A kept value of plain JSON; None if it is not there whole."""
        try:
            with open(self.folder / f"{self._name(what)}.json", "rb") as file:
                text = file.read(MAX_JSON_BYTES + 1)
            said = json.loads(text[64:]) if len(text) <= MAX_JSON_BYTES else None
        except (OSError, ValueError, RecursionError):
            return None
        return said if text[:64].decode("ascii", "replace") == sha256(text[64:]).hexdigest() else None

    def _add_plain(self, what: Any, value: Any) -> None:
        """Keep a value of plain JSON, behind its own SHA-256."""
        self.folder.mkdir(exist_ok=True)
        text = _json(value)
        write_whole(self.folder / f"{self._name(what)}.json", sha256(text).hexdigest().encode() + text)

    def _name(self, what: Any) -> str:
        return f"{self._prefix}.{sha256(_json(what)).hexdigest()}"

    def _point(self, job: Job, said: dict[str, Any]) -> Point:
        if set(said["valid"]) != FIGURES or not all(type(v) is float for v in said["valid"].values()):
            raise ValueError("figures are numbers")
        program = None
        if said["sha256"] is not None:
            program = self._program(said["sha256"])
        return Point(job.setting.method, dict(said["params"]), said["valid"], {}, program)

    def _program(self, name: str) -> Program:
        if not re.fullmatch("[0-9a-f]{64}", name):
            raise BundleError(f"{name!r} names no draft")
        data = read_bundle_bytes(self.folder / f"{name}.safetensors")
        if sha256(data).hexdigest() != name:
            raise BundleError(f"{name} is not the draft that was kept")
        return unpack_bundle(data, allow_draft=True).program


def _pack(point: Point) -> bytes | None:
    program = point.program
    return None if program is None else pack_bundle(Bundle({}, program, (), is_draft=True))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
