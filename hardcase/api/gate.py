# SPDX-License-Identifier: Apache-2.0
"""``hardcase.Gate``: asks one's own functions in the order that a policy wants, and stops when it is sure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.more.audits.audits import Audit
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Acquire
from hardcase_edge.sensors.values import code_of
from hardcase_edge.session.actions import NeedSensors

from ..gate.answers import LABEL
from ..gate.calls import Call, Said, acall_all, call_all, call_aside, is_async
from ..gate.file import BUNDLE, MAX_PRICE, read_gate_file
from ..gate.running import Companions
from .arguments import names_checked
from .loaded import Loaded, budget_of, load

__all__ = ["Gate", "GateAnswer"]

MAX_DEADLINE_MS = 3_600_000.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GateAnswer:
    """One answer of a gate.

    label : a class of the gate, or the fallback if every API that was asked failed
    confidence : probability that the label is right, from 0 to 1; None if nobody measured it without what failed, or
        if the reference gave the label because the promise is broken
    asked : names of the APIs in the order in which they were asked, with those that failed
    failed : names of those that raised, were late, or gave something else than a pair with such a confidence, and of
        those that the policy wanted when the request's time was over, which are not asked and not paid
    price : of the calls in the gate's unit, by the mean prices of the log, or what a call says that is less; a call
        that failed is paid
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
    calls : by the API's name a function, plain or async, from a request to a pair (label, confidence), or three with
        what the call cost; a confidence is from 0 to 1, or None; ``asks`` adds further ones
    deadline_ms : of each step's calls, from 1; a call that is late counts as failed. None: all are waited for, and a
        step's last function runs in the caller's thread
    fallback : the label if every API that was asked failed; None: what the policy says when it knows nothing
    trust : a public key that must have signed the bundle
    budget_per_hour : what all requests together may cost, in the gate's unit, as for a device; ``budget.json`` in the
        folder keeps what is left
    audit : share of the requests about which the gate's reference is asked as well, aside, to test what it promises
    drift : "watch": what has moved since training is told; "act": the policy also does without an API that is
        suspected, where the export has measured that it does better so
    on_broken : once the promise is broken, "alarm" tells it; with "forward" the reference answers, but for those
        answers of which its own show that the policy keeps the promise with them
    note : called with each line that a user should read: a broken promise, a budget that is used up, readings that
        have moved; None: a warning of the log
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
        budget_per_hour: float | None = None,
        audit: float = 0.0,
        drift: str = "watch",
        on_broken: str = "alarm",
        note: Callable[[str], None] | None = None,
    ) -> None:
        if deadline_ms is not None and not 1 <= deadline_ms <= MAX_DEADLINE_MS:  # false of NaN
            raise InputError(f"deadline_ms is {deadline_ms}; expected 1 to {MAX_DEADLINE_MS:g}")
        folder = Path(folder)
        said = read_gate_file(folder)
        self._policy = policy = load(folder / BUNDLE, trust=trust, coin_seed=coin_seed)
        own = tuple(name for name in policy.sensors if name not in policy._inner)
        if said.bundle != policy._loaded.bundle.sha256 or own != tuple(api.name for api in said.apis):
            raise InputError(f"gate.json in {folder} is of another bundle; make the gate again with hardcase gate")
        self.apis, self.classes, self.unit, self.sha256 = said.apis, policy.classes, policy.unit, said.bundle
        nodes = policy._loaded.bundle.program.nodes
        bought = {policy.sensors[s] for node in nodes if isinstance(node, Acquire) for s in node.sensors}
        self._wanted = [name for name in own if name in bought]
        self._deadline_s, self._fallback = None if deadline_ms is None else deadline_ms / 1000, fallback
        rules = {"drift": drift, "on_broken": on_broken}
        self._companions = Companions(
            policy._loaded, folder, said, budget_per_hour, audit, note or log.warning, **rules
        )
        self._reference = next((api for api in said.apis if api.name == said.reference), None)
        if audit and self._reference is not None and self._reference.name not in self._wanted:
            self._wanted.append(self._reference.name)
        self._asides = set[asyncio.Task[None]]()
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

    def labels_of(self, name: str) -> tuple[str, ...]:
        """What this API may answer: the labels that the log has of it, and the classes."""
        return tuple(
            {**dict.fromkeys(self._policy.categories.get(name + LABEL, ())), **dict.fromkeys(map(str, self.classes))}
        )

    def check(self) -> None:
        """Refuse a gate of which the policy asks an API that has no function.

        Raises
        ------
        InputError
            There is one.
        """
        lacking = [name for name in self._wanted if name not in self._calls]
        if lacking:
            raise InputError(f"nothing asks {lacking[0]!r}; give the gate a function for it")

    def decide(self, request: Any, *, budget: float | None = None, within_ms: float | None = None) -> GateAnswer:
        """Ask until the policy is sure.

        Parameters
        ----------
        request : what the functions take
        budget : the most that this request may cost
        within_ms : of all steps together; then it answers with what it knows

        Raises
        ------
        InputError
            An API has no function, or one that must be awaited.
        """
        if self._awaited:
            raise InputError(f"what asks {min(self._awaited)!r} is a coroutine function; use adecide")
        steps = self._steps(budget, self._clock(within_ms))
        try:
            names, left_s = next(steps)
            while True:
                names, left_s = steps.send(call_all(self._of(names), request, left_s))
        except StopIteration as end:
            answer, audit = end.value
        finally:
            steps.close()
        if audit is not None and self._reference is not None:
            name, made = self._reference.name, self._companions.asked(audit, self._reference.price)
            call_aside(name, self._calls[name], request, lambda said: self._companions.heard(made, said and said[0]))
        return answer  # type: ignore[no-any-return]

    async def adecide(self, request: Any, *, budget: float | None = None, within_ms: float | None = None) -> GateAnswer:
        """As ``decide``, with functions of either kind; plain ones run in threads."""
        steps = self._steps(budget, self._clock(within_ms))
        try:
            names, left_s = next(steps)
            while True:
                answers = await acall_all(self._of(names), request, left_s)
                names, left_s = steps.send(answers)
        except StopIteration as end:
            answer, audit = end.value
        finally:
            steps.close()
        if audit is not None:
            self._asides.add(task := asyncio.create_task(self._ask_aside(audit, request)))
            task.add_done_callback(self._asides.discard)
        return answer  # type: ignore[no-any-return]

    async def _ask_aside(self, audit: Audit, request: Any) -> None:
        if self._reference is not None:
            name, made = self._reference.name, self._companions.asked(audit, self._reference.price)
            said = (await acall_all(self._of([name]), request, self._deadline_s))[name]
            self._companions.heard(made, said and said[0])

    def facts(self) -> dict[str, Any]:
        """How budget, audits, promise and drift monitors stand, as a device's status says it."""
        return self._companions.facts()

    def close(self) -> None:
        """No request follows: write down what is left of the budget, and how the promise stands."""
        self._companions.close()

    def _clock(self, within_ms: float | None) -> Callable[[], float | None]:
        """How long the calls of the next step may take; 0 when the request's time is over."""
        own = self._deadline_s
        if within_ms is None:
            return lambda: own
        if within_ms != within_ms:
            raise InputError("within_ms is NaN; give milliseconds, or None for no limit but the gate's")
        end = monotonic() + within_ms / 1000
        return lambda: max(0.0, end - monotonic() if own is None else min(own, end - monotonic()))

    def _of(self, names: list[str]) -> dict[str, Call]:
        return {name: self._calls[name] for name in names}

    def _steps(
        self, budget: float | None, clock: Callable[[], float | None]
    ) -> Generator[tuple[list[str], float | None], dict[str, Said | None], tuple[GateAnswer, Audit | None]]:
        """Yields the names of the APIs to ask next and their time, takes their answers, and returns the gate's.

        It calls nobody. When the request's time is over nobody is asked any more, and nothing more is paid.

        With it comes an audit, if one is to be made of which the reference does not know the answer yet.
        """
        self.check()
        begun, policy, asked, late = perf_counter(), self._policy, list[str](), list[str]()
        case = self._companions.begin(budget_of(budget))
        heard, seen = dict[str, Said | None](), dict[int, list[Any] | None]()
        try:
            session = policy._loaded.machine.session(cloud=False, budget=case.limit, dead=self._companions.dead)
            draw = 0 if policy._coin is None else policy._toss()
            while isinstance(action := session.next_action(), NeedSensors):
                names = {s: policy.sensors[s] for s in action.sensors}
                outer, left_s = [name for name in names.values() if name not in policy._inner], clock()
                (late if left_s == 0 else asked).extend(outer)
                heard |= (yield outer, left_s) if outer and left_s != 0 else {}
                prices = {s: one[2] for s, name in names.items() if (one := heard.get(name)) is not None}
                costs = {s: to_micro(min(price, MAX_PRICE)) for s, price in prices.items() if price is not None}
                costs |= {s: 0 for s, name in names.items() if name in late}
                readings = {s: self._readings(s, heard.get(name), draw) for s, name in names.items()}
                session.feed(readings, costs or None)
                seen |= readings
            line = policy._lines.line(action, perf_counter() - begun)  # type: ignore[arg-type]
            own, name = line, "" if self._reference is None else self._reference.name
            left_s = clock()
            forward = self._companions.forwards(case, action, line, is_over=left_s == 0)  # type: ignore[arg-type]
            if forward is not None and name not in heard:
                asked.append(name)
                heard |= yield [name], left_s
        except BaseException:  # such as a task that was cancelled
            self._companions.left(case, [policy.sensors.index(name) for name in asked])
            raise
        ms = (perf_counter() - begun) * 1000
        if forward is None:
            audit = self._companions.end(case, action, line, seen)  # type: ignore[arg-type]
        else:
            line = self._companions.forwarded(forward, line, heard[name])
            audit = self._companions.end(case, action, line, seen, own)  # type: ignore[arg-type]
        known = None if audit is None else heard.get(name)
        if audit is not None and known is not None:  # the policy has asked the reference itself
            self._companions.heard(self._companions.asked(audit, 0.0), known[0])
            audit = None
        failed = tuple(name for name in (*asked, *late) if name in line["failed"])
        label = line["label"]
        if self._fallback is not None and failed and failed[: len(asked)] == tuple(asked):
            label = self._fallback
        return GateAnswer(label, line["confidence"], tuple(asked), failed, line["cost"], ms), audit

    def _readings(self, sensor: int, said: Said | None, draw: int) -> list[Any] | None:
        """What the program reads of an answer, None if there is none; a coin's draw."""
        policy: Loaded = self._policy
        if policy._coin is not None and sensor == policy._coin.sensor:
            return [draw]
        if said is None:
            return None
        names = [policy.features[f] for f in policy._loaded.bundle.program.sensors[sensor].features]
        label, confidence, _ = said
        codes = {name: code_of(policy._codes[name], label) for name in names if name.endswith(LABEL)}
        if label is not None and None in codes.values():
            log.warning("%s gave the label %r, which it never gave in the log", policy.sensors[sensor], label[:40])
        return [codes.get(name, confidence) for name in names]
