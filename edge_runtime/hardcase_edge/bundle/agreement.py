# SPDX-License-Identifier: Apache-2.0
"""Whether f0 agrees with a bundle's local answers less often than the bundle promises, by betting on each audit.

The hypothesis is that each audit differs with a probability of at most 1 minus the promised share, whatever came
before; a device on trial bets against it (``base/betting.py``; docs/math.md (109) to (111)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.betting import FEW, Bets

if TYPE_CHECKING:
    from collections.abc import Mapping

ALPHA = 0.001  # probability at most that a start of a bundle that keeps its promise fails by audits


class Agreement:
    """What audits have said.

    Parameters
    ----------
    promised : share of audits that agree at least, above 0 and below 1

    Attributes
    ----------
    agreed, differed : int

    Examples
    --------
    >>> agreement = Agreement(0.95)
    >>> for agrees in (True, False, False, False):
    ...     agreement.audited(agrees)
    >>> agreement.is_broken
    False
    >>> agreement.audited(False)
    >>> agreement.is_broken
    True
    """

    def __init__(self, promised: float) -> None:
        self.promised = promised
        self.agreed = self.differed = 0
        self._bets = Bets(1 - promised, ALPHA, stakes=FEW)

    @property
    def n(self) -> int:
        """Audits so far."""
        return self.agreed + self.differed

    @property
    def is_broken(self) -> bool:
        """Whether the promise was once as good as refuted."""
        return self._bets.is_rejected

    def audited(self, agrees: bool) -> None:
        """One more audit."""
        self.agreed += agrees
        self.differed += not agrees
        self._bets.see(0.0 if agrees else 1.0)


def promised_share(claims: Mapping[str, Any]) -> float | None:
    """The share that a manifest's claims promise; None if they promise none, or anything else than a share."""
    claim = claims.get("audits")
    share = claim.get("at_least") if isinstance(claim, dict) else None
    return share if type(share) is float and 0 < share < 1 else None


def above_shipped(decision: Mapping[str, Any], shipped: int | None) -> float:
    """How far the price of a decision lies above the bundle's shipped level; 0 where no price moves.

    A bundle's promises and comparisons hold for its shipped thresholds. The price of a decision follows from those
    before it, not from its own case; so a test by betting may leave out decisions by their price.

    Parameters
    ----------
    decision : a line of ``Device.run``, or its record in the cloud
    shipped : level of the bundle's prices; None: it has none

    >>> above_shipped({"price": 3.5}, 4), above_shipped({"price": None}, 4), above_shipped({"price": 3.5}, None)
    (-0.5, 0.0, 0.0)
    """
    price = decision.get("price")
    return 0.0 if shipped is None or not isinstance(price, int | float) else price - shipped
