# SPDX-License-Identifier: Apache-2.0
"""``hardcase.Gate``: asks one's own functions in the order that a policy wants, and stops when it is sure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Acquire
from hardcase_edge.sensors.values import code_of
from hardcase_edge.session.session import NeedSensors

from ..gate.answers import LABEL
from ..gate.calls import Call, Said, acall_all, call_all, is_async
from ..gate.file import BUNDLE, read_gate_file
from .arguments import names_checked
from .loaded import Loaded, budget_of, load

__all__ = ["Gate", "GateAnswer"]

MAX_DEADLINE_MS = 3_600_000.0


@dataclass(frozen=True)
class GateAnswer:
    """One answer of a gate.

    label : a class of the gate, or the fallback if every API that was asked failed
    confidence : probability that the label is right, from 0 to 1; None if nobody measured it without what failed
    asked : names of the APIs in the order in which they were asked, with those that failed
    failed : names of those that raised, were late, or gave something else than a pair
    price : of the calls, by the mean prices of the log, in the gate's unit; a call that failed is paid
    ms : milliseconds from the request to this answer
    """

    label: Any
    confidence: float | None
    asked: tuple[str, ...]
    failed: tuple[str, ...]
    price: float
    ms: float


class Gate:
    """A gate that ``hardcase gate`` made.

    Parameters
    ----------
    folder : with ``model.hcb`` and ``gate.json``
    calls : by the API's name a function, plain or async, from a request to a pair (label, confidence); ``asks`` adds
        further ones
    deadline_ms : of each step's calls, from 1; a call that is late counts as failed. None: all are waited for, and a
        step's last function runs in the caller's thread
    fallback : the label if every API that was asked failed; None: what the policy says when it knows nothing
    trust : a public key that must have signed the bundle
    coin_seed : of a bundle that mixes two policies by a coin, as for ``hardcase.load``

    Raises
    ------
    InputError, BundleError
        A file cannot be used, the two files do not go together, or a name is none of the gate's.
    """

    @names_checked
    def __init__(
        self,
        folder: str | Path,
        calls: Mapping[str, Call] | None = None,
        *,
        deadline_ms: float | None = 10_000.0,
        fallback: Any = None,
        trust: str | Path | None = None,
        coin_seed: int | None = None,
    ) -> None:
        if deadline_ms is not None and not 1 <= deadline_ms <= MAX_DEADLINE_MS:  # false of NaN
            raise InputError(f"deadline_ms is {deadline_ms}; expected 1 to {MAX_DEADLINE_MS:g}")
        folder = Path(folder)
        said = read_gate_file(folder)
        self._policy = policy = load(folder / BUNDLE, trust=trust, coin_seed=coin_seed)
        own = tuple(name for name in policy.sensors if name not in policy._inner)
        if said.bundle != policy._loaded.bundle.sha256 or own != tuple(api.name for api in said.apis):
            raise InputError(f"gate.json in {folder} is of another bundle; make the gate again with hardcase gate")
        self.apis, self.classes, self.unit = said.apis, policy.classes, policy.unit
        nodes = policy._loaded.bundle.program.nodes
        bought = {policy.sensors[s] for node in nodes if isinstance(node, Acquire) for s in node.sensors}
        self._wanted = [name for name in own if name in bought]
        self._deadline_s, self._fallback = None if deadline_ms is None else deadline_ms / 1000, fallback
        self._calls: dict[str, Call] = {}
        self._awaited = set[str]()
        for name, call in (calls or {}).items():
            self.asks(name)(call)

    def asks(self, name: str) -> Callable[[Call], Call]:
        """A decorator: this function asks the API ``name``."""
        names = [api.name for api in self.apis]
        if name not in names:
            raise InputError(f"the gate asks no {name!r}; {did_you_mean(name, names, 'it asks ' + ', '.join(names))}")

        def kept(call: Call) -> Call:
            if not callable(call):
                raise InputError(f"what asks {name!r} is no function; give one that returns (label, confidence)")
            self._calls[name] = call
            (self._awaited.add if is_async(call) else self._awaited.discard)(name)
            return call

        return kept

    def decide(self, request: Any, *, budget: float | None = None) -> GateAnswer:
        """Ask until the policy is sure; ``budget`` is the most that this request may cost.

        Raises
        ------
        InputError
            An API has no function, or one that must be awaited.
        """
        if self._awaited:
            raise InputError(f"what asks {min(self._awaited)!r} is a coroutine function; use adecide")
        steps = self._steps(budget)
        try:
            names = next(steps)
            while True:
                names = steps.send(call_all(self._of(names), request, self._deadline_s))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def adecide(self, request: Any, *, budget: float | None = None) -> GateAnswer:
        """As ``decide``, with functions of either kind; plain ones run in threads."""
        steps = self._steps(budget)
        try:
            names = next(steps)
            while True:
                answers = await acall_all(self._of(names), request, self._deadline_s)
                names = steps.send(answers)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _of(self, names: list[str]) -> dict[str, Call]:
        return {name: self._calls[name] for name in names}

    def _steps(self, budget: float | None) -> Generator[list[str], dict[str, Said | None], GateAnswer]:
        """Yields the names of the APIs to ask next, takes their answers, and returns the gate's; calls nobody."""
        lacking = [name for name in self._wanted if name not in self._calls]
        if lacking:
            raise InputError(f"nothing asks {lacking[0]!r}; give the gate a function for it")
        begun, policy, asked = perf_counter(), self._policy, list[str]()
        session = policy._loaded.machine.session(cloud=False, budget=budget_of(budget))
        draw = 0 if policy._coin is None else policy._toss()
        while isinstance(action := session.next_action(), NeedSensors):
            names = {s: policy.sensors[s] for s in action.sensors}
            outer = [name for name in names.values() if name not in policy._inner]
            said = (yield outer) if outer else {}
            asked += outer
            session.feed({s: self._readings(s, said.get(name), draw) for s, name in names.items()})
        line = policy._lines.line(action, 0.0)  # type: ignore[arg-type]
        failed = tuple(name for name in asked if name in line["failed"])
        label = line["label"]
        if self._fallback is not None and asked and len(failed) == len(asked):
            label = self._fallback
        ms = (perf_counter() - begun) * 1000
        return GateAnswer(label, line["confidence"], tuple(asked), failed, line["cost"], ms)

    def _readings(self, sensor: int, said: Said | None, draw: int) -> list[Any] | None:
        """What the program reads of an answer, None if there is none; a coin's draw."""
        policy: Loaded = self._policy
        if policy._coin is not None and sensor == policy._coin.sensor:
            return [draw]
        if said is None:
            return None
        names = [policy.features[f] for f in policy._loaded.bundle.program.sensors[sensor].features]
        label, confidence = said
        return [code_of(policy._codes[name], label) if name.endswith(LABEL) else confidence for name in names]
