# SPDX-License-Identifier: Apache-2.0
"""Attack on items whose parts run in C: the whole extension under sanitizers, random items, calls in any order."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hardcase_edge.kernel.sources import EXTENSION, FOLDER

from .outcome import Attack, Outcome, apart

__all__ = ["attack", "hostile_calls"]

FLAGS = ["-std=c99", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
ODD: tuple[Any, ...] = (None, -1, 0, 1, 5, 2**31, -(2**63), 2**70, 1.5, float("nan"), "x", (), [], {}, b"12", (0, 0))


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Random items for so many seconds; nothing where there is no compiler with sanitizers."""
    library = _library()
    if library is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "_kernel.abi3.so"
        include = sysconfig.get_paths()["include"]
        units = [FOLDER / unit for unit in EXTENSION]
        subprocess.run(["gcc", *FLAGS, f"-I{include}", f"-I{FOLDER}", *units, "-o", module], check=True)
        libraries = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
        try:
            return apart(inside, seconds, seed, module, **libraries)
        except subprocess.CalledProcessError as error:
            print(error.stderr[-2000:], file=sys.stderr)
            return [Outcome(hostile_calls.name, 1, 1, 0)]


def _library() -> str | None:
    """The sanitizers' library, which must be loaded before Python; None where gcc has none."""
    if shutil.which("gcc") is None:
        return None
    found = []
    for name in ("libasan.so", "libubsan.so"):
        said = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        found.append(said.stdout.strip())
    return ":".join(found) if all(Path(path).is_absolute() for path in found) else None


def inside(seconds: str, seed: str, module: str) -> None:
    """Run in the process that has the sanitized extension; prints the outcomes as JSON."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("hardcase_edge.kernel._kernel", module)
    assert spec is not None
    assert spec.loader is not None
    kernel = importlib.util.module_from_spec(spec)
    import hardcase_edge.kernel

    sys.modules["hardcase_edge.kernel._kernel"] = hardcase_edge.kernel._kernel = kernel  # type: ignore[attr-defined]
    spec.loader.exec_module(kernel)
    from hardcase_edge.kernel import compiled, compiled_chain

    assert compiled._kernel is compiled_chain._kernel is kernel
    print(json.dumps([asdict(row) for row in hostile_calls(float(seconds), int(seed))]))


def items(rng: random.Random) -> Generator[Callable[[], bool], None, None]:
    """Random items, each decided in Python and in C, and then called in an order in which no driver calls it."""
    from hardcase_edge.joint.machine import open_joint
    from hardcase_edge.joint.prove import verify_joint
    from tests.helpers.edge.joint_programs import play, random_joint, random_world

    def decide_alike(machines: list[Any], world: Any) -> bool:
        one, two = (play(machine, world) for machine in machines)
        return bool(one == two)

    while True:
        part, joint = random_joint(rng.getrandbits(30), rng.randrange(4))
        worst = verify_joint(part, joint).worst_cost
        machines = [open_joint(part, joint, evaluator) for evaluator in ("python", "kernel")]
        for _ in range(20):
            world = random_world(rng, part, joint, worst)
            yield partial(decide_alike, machines, world)
            session = machines[1].session(len(world.rows), budget=world.budget, cloud=world.cloud)
            yield partial(_any_order, session, rng)


hostile_calls = Attack(
    "items in C under sanitizers: random items and calls in any order", items, lambda call: call(), is_timed=False,
    least=40,
)  # fmt: skip


def _any_order(session: Any, rng: random.Random) -> bool:
    """Calls that no driver makes, which may raise what is declared."""
    from hardcase_edge.errors import SessionError

    for _ in range(30):
        action = session.next_action() if rng.random() < 0.7 else None
        sensors = getattr(action, "sensors", ())
        readings = {key: rng.choice([*ODD, [1.0] * 3, [rng.choice(ODD)] * 2]) for key in sensors}
        call = rng.choice(["feed", "feed", "odd", "reply", "no_reply", "resend"])
        with suppress(SessionError, TypeError, OverflowError):
            if call == "feed":
                session.feed(readings)
            elif call == "odd":
                session.feed(rng.choice([*ODD, {rng.choice([1, (0, 0), "x"]): None}]))
            elif call == "reply":
                session.reply(*(rng.choice(ODD) for _ in range(rng.choice([2, 3, 3, 3]))))
            else:
                getattr(session, call)(rng.choice(ODD))
    return True
