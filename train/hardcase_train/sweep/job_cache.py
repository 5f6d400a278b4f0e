# SPDX-License-Identifier: Apache-2.0
"""On-disk cache of the finished jobs of a sweep, so that an interrupted sweep can be resumed.

A job is stored as drafts (checksummed safetensors files) and one JSON file that names them. The JSON file is written
last; drafts without it are ignored. Cache keys hash every input of a job; a stale entry is never found. The job of a
truncated, damaged or foreign entry is run again. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from hardcase_edge.base.files import read_most, sweep, write_whole
from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES, Bundle, pack_bundle, read_bundle_bytes, unpack_bundle
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.more.batch.per_class import Gap
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import Layout

from ..policy.compile import Policy
from ..policy.front import Point, programs
from ..tasks.task import Task
from .executors import code_here
from .halving import Job

MAX_JSON_BYTES = 16 * 1024 * 1024
FIGURES = {"quality", "cost", "forward_rate", "loss_se", "cost_se", "local_error", "local_worse", "local_better"}


def task_key(task: Task) -> dict[str, Any]:
    """All that a sweep's results depend on except its settings: data, configuration, seed, code."""
    config = to_builtins(task.config, enc_hook=lambda path: path.name)
    del config["methods"]
    data = [task.table.sha256, getattr(task.hpc, "sha256", None)]
    return {"config": config, "data": data, "code": code_here()}


class JobCache:
    """A folder with the finished jobs of a task; jobs of other tasks may be in it too.

    Parameters
    ----------
    folder : created when the first job is added
    task : as returned by ``task_key``

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from hardcase_train.method import Setting
    >>> job = Job(Setting("static", {"sensors": [0], "classifier": "trees"}))
    >>> with TemporaryDirectory() as folder:
    ...     cache = JobCache(Path(folder) / "sweep", {"seed": 0})
    ...     cache.add(job, [])
    ...     cache.find(job), len(cache), JobCache(cache.folder, {"seed": 1}).find(job)
    ([], 1, None)
    """

    def __init__(self, folder: Path, task: dict[str, Any]) -> None:
        self.folder = folder
        self._prefix = sha256(_json(task)).hexdigest()
        sweep(folder, "*.json", "*.safetensors")  # of a run that was killed: only one at a time has this folder

    def __len__(self) -> int:
        """Number of stored jobs of this task."""
        return len(list(self.folder.glob(f"{self._prefix}.*.json")))

    def find(self, job: Job) -> list[Point] | None:
        """The job's points, without test figures; None if it is absent or damaged."""
        entry = self._find_plain(asdict(job))
        try:
            return None if entry is None else [self._point(job, p) for p in entry]
        except (BundleError, InputError, TypeError, KeyError, ValueError):
            return None

    def add(self, job: Job, points: list[Point]) -> None:
        """Store a finished job, unless one of its programs does not fit in a bundle."""
        if any(isinstance(p.policy, Policy) and p.policy.least_bytes > MAX_BUNDLE_BYTES for p in points):
            return
        names: list[str | None] = [None] * len(points)
        try:
            for k, data in _packed(points):
                names[k] = sha256(data).hexdigest()
                self.folder.mkdir(exist_ok=True)
                write_whole(self.folder / f"{names[k]}.safetensors", data)
        except BundleError:
            return
        entry = []
        for point, name in zip(points, names, strict=True):
            fields: dict[str, Any] = {"params": point.params, "valid": point.valid.to_json(), "sha256": name}
            fields |= {} if point.memory is None else {"memory": asdict(point.memory)}
            entry.append(fields)
        self._add_plain(asdict(job), entry)

    def _find_plain(self, key: Any) -> Any:
        """A stored JSON value; None if it is absent or damaged."""
        try:
            with open(self.folder / f"{self._name(key)}.json", "rb") as file:
                text = read_most(file, MAX_JSON_BYTES)
            value = json.loads(text[64:]) if len(text) <= MAX_JSON_BYTES else None
        except (OSError, ValueError, RecursionError):
            return None
        return value if text[:64].decode("ascii", "replace") == sha256(text[64:]).hexdigest() else None

    def _add_plain(self, key: Any, value: Any) -> None:
        """Store a JSON value, preceded by its SHA-256."""
        self.folder.mkdir(exist_ok=True)
        text = _json(value)
        write_whole(self.folder / f"{self._name(key)}.json", sha256(text).hexdigest().encode() + text)

    def _name(self, key: Any) -> str:
        return f"{self._prefix}.{sha256(_json(key)).hexdigest()}"

    def _point(self, job: Job, fields: dict[str, Any]) -> Point:
        gaps = fields["valid"].get("gaps")
        numbers = {key: value for key, value in fields["valid"].items() if key != "gaps"}
        if type(gaps) is not list or set(numbers) != FIGURES or any(type(v) is not float for v in numbers.values()):
            raise ValueError(f"figures of a point must be the numbers {', '.join(sorted(FIGURES))}")
        program = None
        if fields["sha256"] is not None:
            program = self._program(fields["sha256"])
        memory = None if "memory" not in fields else Layout(**fields["memory"])
        valid = Judged(**numbers, gaps=tuple(Gap(*gap) for gap in gaps))
        return Point(job.setting.method, dict(fields["params"]), valid, None, program, memory)

    def _program(self, name: str) -> Program:
        if not re.fullmatch("[0-9a-f]{64}", name):
            raise BundleError(f"{name!r} is not the name of a draft")
        data = read_bundle_bytes(self.folder / f"{name}.safetensors")
        if sha256(data).hexdigest() != name:
            raise BundleError(f"the draft {name} has another checksum than its name")
        return unpack_bundle(data, allow_draft=True).program


def _packed(points: Sequence[Point]) -> Iterator[tuple[int, bytes]]:
    """Numbers of the points that have more than figures, each with its draft as a bundle, one at a time."""
    numbers = [k for k, point in enumerate(points) if point.policy is not None]
    for k, program, _ in programs([points[k] for k in numbers]):
        yield numbers[k], pack_bundle(Bundle({}, program, (), is_draft=True))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
