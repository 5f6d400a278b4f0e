# SPDX-License-Identifier: Apache-2.0
"""A bundle's promise, tested again on the device as audits and decisions come; without a clock and without I/O.

Two things can be tested where nobody knows the truth. F0 agrees with at least a share of what the device answers alone
(the manifest's claim ``audits``), which each audit tests; and at most a share of cases is forwarded (``max_forward`` of
the promise that Learn-then-Test has shown), which each decision tests. Of each there are two tests by betting, which
may be looked at at any time: one notices that it is broken (``base/change.py``), and of the agreement one shows that it
holds (``base/betting.py``). A broken promise stays broken until another bundle runs. With the rule ``FORWARD`` a device
then learns which answers it may still give alone (``reaction.py``); these are tested anew, and if they fail, learned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.betting import Bets, interval
from ...base.change import Change
from ...bundle.agreement import promised_share
from ...settings.values import ALARM, FORWARD
from .reaction import Rest

if TYPE_CHECKING:
    from collections.abc import Mapping

HOLDS, UNKNOWN, BROKEN = "holds", "not yet enough", "broken"
ALPHA = 0.01  # probability at most that a promise that holds is ever called broken, over the life of a bundle
DELTA = 0.05  # probability at most that a promise is said to hold that does not
MOST_BREAKS = 32  # after which audits test no further: a test for each has half of what the last one had of ALPHA


class Promise:
    """What a bundle promises, and what has become of it.

    Parameters
    ----------
    agreement : share of the local answers with which f0 agrees at least, above 0 and below 1; None: not promised
    max_forward : share of the cases that are forwarded at most, above 0 and below 1; None: not promised
    rule : what to do when the agreement is broken

    Attributes
    ----------
    agreed, n : int
        Audits since the last break, and those of them with which f0 agrees.
    decisions : int
    breaks : int
        How often the agreement was found broken.
    rest : Rest or None
        Which answers the device still gives alone, once the rule ``FORWARD`` is at work.

    Examples
    --------
    >>> promise = Promise(0.95, None, FORWARD)
    >>> for _ in range(9):
    ...     promise.audited(False)
    >>> promise.state, promise.breaks, promise.forwarded_share
    ('broken', 2, 1.0)
    """

    def __init__(self, agreement: float | None, max_forward: float | None, rule: str = ALARM) -> None:
        self.agreement, self.max_forward, self.rule = agreement, max_forward, rule
        self.decisions = self.breaks = self.since = 0
        n_tests = (agreement is not None) + (max_forward is not None)
        self._alpha = ALPHA / max(1, n_tests)
        self._forward = None if max_forward is None else Change(max_forward, self._alpha)
        self.rest: Rest | None = None
        self._begin()

    def _begin(self) -> None:
        """Test the agreement anew, of what the device answers alone from now on."""
        self.agreed = self.n = 0
        if self.agreement is not None:
            share = self._alpha / 2 ** (self.breaks + 1) if self.rule == FORWARD else self._alpha
            self._broken = Change(1 - self.agreement, share)
            self._holds = Bets(self.agreement, DELTA)
            if self.breaks and self.rule == FORWARD:
                self.rest = self.rest or Rest(self.agreement)
                self.rest.forget()

    # ------------------------------------------------------------ what happens

    def audited(self, agrees: bool) -> None:
        """F0 has answered what the device had answered alone."""
        if self.agreement is None:
            return
        self.n += 1
        self.agreed += agrees
        self._holds.see(float(agrees))
        self._broken.see(float(not agrees), self.decisions)
        can_react = self.breaks == 0 or (self.rule == FORWARD and self.breaks < MOST_BREAKS)
        if self._broken.is_noticed and can_react:
            self.since = self.since or max(1, self._broken.since)
            self.breaks += 1
            if self.rule == FORWARD:
                self._begin()

    def decided(self, *, is_forwarded: bool | None) -> None:
        """A decision was made, and the program wanted to forward it or did not; None: it may forward more than that."""
        self.decisions += 1
        if self._forward is not None and is_forwarded is not None:
            self._forward.see(float(is_forwarded), self.decisions)

    # ------------------------------------------------------------ what is known

    @property
    def state(self) -> str:
        """``BROKEN``, ``HOLDS`` or ``UNKNOWN``: of the agreement, and broken too if more is forwarded than promised."""
        if self.breaks or (self._forward is not None and self._forward.is_noticed):
            return BROKEN
        return HOLDS if self._is_shown else UNKNOWN

    @property
    def _is_shown(self) -> bool:
        return self.agreement is not None and self._holds.is_rejected

    @property
    def broken_since(self) -> int:
        """The decision from which on one of the two seems to be broken; 0: none."""
        forward = self._forward.since if self._forward is not None and self._forward.is_noticed else 0
        return min(x for x in (self.since, forward) if x) if self.since or forward else 0

    @property
    def forwarded_share(self) -> float:
        """The share of its own answers that the device forwards by the rule, as cases have been lately."""
        return 0.0 if self.rest is None else self.rest.forwarding

    def facts(self) -> dict[str, Any]:
        """The state of the promise, for the facts; docs/drift.md lists the keys."""
        facts: dict[str, Any] = {"state": self.state, "since": self.broken_since or None, "decisions": self.decisions}
        if self.agreement is not None:
            low, high = interval(self.n, self.agreed)
            facts |= {
                "agreement": {
                    "promised": self.agreement, "audits": self.n, "agreed": self.agreed, "low": round(low, 4),
                    "high": round(high, 4),
                },
            }  # fmt: skip
        if self._forward is not None:
            is_more = self._forward.is_noticed
            facts["forward"] = {"promised": self.max_forward, "since": self._forward.since if is_more else None}
        if self.rest is not None:
            facts |= {"now": HOLDS if self._is_shown else UNKNOWN, "rest": self.rest.facts()}
        return {**facts, "rule": self.rule, "forwarding": round(self.forwarded_share, 4)}

    # ------------------------------------------------------------ from one sitting to the next

    def to_json(self) -> dict[str, Any]:
        """What ``restore`` takes."""
        state: dict[str, Any] = {"decisions": self.decisions, "breaks": self.breaks, "since": self.since, "n": self.n}
        state |= {"agreed": self.agreed, "rule": self.rule}
        if self.agreement is not None:
            state |= {"broken": self._broken.to_json(), "holds": [*self._holds.logs, self._holds.is_rejected]}
        if self.rest is not None:
            state["rest"] = self.rest.to_json()
        return state if self._forward is None else {**state, "forward": self._forward.to_json()}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from an earlier ``to_json`` of the same promise; False, and nothing is changed, if it is not one."""
        fresh = Promise(self.agreement, self.max_forward, self.rule)
        if not fresh._take(state):
            return False
        self.__dict__.update(fresh.__dict__)
        return True

    def _take(self, state: Mapping[str, Any]) -> bool:
        counts = [state.get(key) for key in ("decisions", "breaks", "since", "n", "agreed")]
        rule = state.get("rule")
        if not all(type(x) is int and 0 <= x < 2**53 for x in counts) or rule not in (ALARM, FORWARD):
            return False
        self.decisions, breaks, self.since, n, agreed = (int(x) for x in counts if x is not None)
        if breaks > MOST_BREAKS or agreed > n:
            return False
        self.breaks = breaks
        self._begin()
        if breaks and rule != self.rule:  # broken it stays, but what was tested since was under the other rule
            return self._forward is None or self._forward.restore(state.get("forward"))
        self.n, self.agreed = n, agreed
        if self.agreement is not None:
            holds = state.get("holds")
            if not isinstance(holds, list):
                return False
            is_whole = len(holds) == len(self._holds.logs) + 1 and type(holds[-1]) is bool
            if not is_whole or not all(type(x) is float and -1e15 < x < 1e15 for x in holds[:-1]):
                return False
            self._holds.logs, self._holds.is_rejected = holds[:-1], holds[-1]
            if not self._broken.restore(state.get("broken")):
                return False
        if self.rest is not None and "rest" in state and not self.rest.restore(state["rest"]):
            return False  # a state of an earlier version has none, and all cells rest
        return self._forward is None or self._forward.restore(state.get("forward"))


def promise_of(claims: Mapping[str, Any], rule: str = ALARM) -> Promise | None:
    """What a manifest's claims promise and a device can test; None if there is nothing."""
    promise = claims.get("promise")
    most = promise.get("max_forward") if isinstance(promise, dict) else None
    max_forward = most if type(most) is float and 0 < most < 1 else None
    agreement = promised_share(claims)
    return None if agreement is None and max_forward is None else Promise(agreement, max_forward, rule)
