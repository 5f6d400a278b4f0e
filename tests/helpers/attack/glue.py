# SPDX-License-Identifier: Apache-2.0
"""Attack on the kernel's glue to Python: calls with arguments of any type, length and size, and objects that raise.

Items whose parts run in C are decided and called in any order, too, with the whole extension under sanitizers.
"""

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

from hardcase_edge.errors import SessionError
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.kernel.machine import KERNEL, decide, has_kernel, open_machine
from hardcase_edge.kernel.sources import EXTENSION, FOLDER
from tests.helpers.edge.joint_programs import random_joint
from tests.helpers.edge.strategies import random_program

from .outcome import Attack, Odd, Outcome, apart, each

CALLS = 200  # on one program


class OddError(Exception):
    """What an object of the attack raises."""


def odd(rng: random.Random, depth: int = 0) -> Any:
    """Any object."""
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 4:
        return rng.choice([0, 1, 2, 5, -1, 10_000, 10_001, 2**31, -(2**31), 2**63, 2**64, -(2**63) - 1, 2**200, True])
    if kind < 8:
        return rng.choice([
            None, 0.5, float("nan"), float("inf"), "x", "\ud800", b"12", bytearray(8), memoryview(b"12345678"),
            object(), Odd(rng, OddError, OddError, None), SessionError, len,
        ])  # fmt: skip
    several = [odd(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return several
    if kind == 9:
        return {key: odd(rng, depth + 1) for key in several if type(key) in (int, str, float)}
    return tuple(several)


def _calls(rng: random.Random) -> list[Callable[..., Any]]:
    """Functions of C on one random program, of its image, sessions and chain; and of items, which drive them."""
    from hardcase_edge.kernel import _kernel as kernel  # type: ignore[attr-defined]

    machine = open_machine(random_program(rng.getrandbits(30), rng.randrange(5)), KERNEL)
    part, joint = random_joint(rng.getrandbits(30), rng.randrange(3))
    items = open_joint(part, joint, KERNEL)
    session, item = machine.session(), items.session(rng.randint(1, joint.max_parts))
    row = [rng.choice([0.5, 1.0, None]) for _ in machine.program.features]
    image: Any = machine.image  # type: ignore[union-attr]
    calls = [
        image.session, image.decide, image.move, kernel.Image, kernel.Chain, kernel.Chain(2, bytes(64)).decode,
    ]  # fmt: skip
    calls += [getattr(one, name) for one in (session, item) for name in dir(one) if not name.startswith("_")]

    def forwarded(reply: Any = None, **more: Any) -> Any:
        return decide(machine, row, reply, **more)

    def fed(what: Any = None, costs: Any = None) -> Any:
        """Feed what was asked for, with odd readings."""
        keys = getattr(session.next_action(), "sensors", ())
        return session.feed(dict.fromkeys(keys, what), costs)

    def fed_item(what: Any = None) -> Any:
        return item.feed(dict.fromkeys(getattr(item.next_action(), "sensors", ()), what))

    return [*calls, *[forwarded, fed, fed_item] * 3, session.next_action, item.next_action]


def odd_calls(rng: random.Random) -> Generator[Callable[[], Any], None, None]:
    """Calls of all functions with odd arguments."""
    names = ("budget", "item_size", "dead", "cloud", "reply", "costs")
    while True:
        calls = _calls(rng)
        for _ in range(CALLS):
            keywords = {rng.choice(names): odd(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))}
            arguments = [odd(rng) for _ in range(rng.choice([0, 1, 1, 2, 3, 4]))]
            yield partial(rng.choice(calls), *arguments, **keywords)


DECLARED = (OddError, SessionError, TypeError, ValueError, OverflowError, LookupError, AttributeError)
odd_arguments = Attack(
    "odd arguments of the kernel's functions", odd_calls, lambda call: call(), lambda *_: True, DECLARED, is_timed=False
)


def functions(seconds: float, seed: int) -> list[Outcome]:
    """A crash is an exception that does not say what is wrong with an argument."""
    return odd_arguments(seconds, seed) if has_kernel() else []


FLAGS = ["-std=c99", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Odd arguments and random items; without a compiler with sanitizers, odd arguments alone."""
    library = _library()
    if library is None:
        return functions(seconds, seed)
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
    rows = each(odd_arguments, hostile_calls)(float(seconds), int(seed))
    print(json.dumps([asdict(row) for row in rows]))


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
    for _ in range(30):
        action = session.next_action() if rng.random() < 0.7 else None
        sensors = getattr(action, "sensors", ())
        readings = {key: rng.choice([[1.0] * 3, [odd(rng)] * 2, odd(rng), odd(rng)]) for key in sensors}
        call = rng.choice(["feed", "feed", "odd", "reply", "no_reply", "resend"])
        with suppress(*DECLARED):
            if call == "feed":
                session.feed(readings)
            elif call == "odd":
                session.feed(rng.choice([odd(rng), {rng.choice([1, (0, 0), "x"]): None}]))
            elif call == "reply":
                session.reply(*(odd(rng) for _ in range(rng.choice([2, 3, 3, 3]))))
            else:
                getattr(session, call)(odd(rng))
    return True
