# SPDX-License-Identifier: Apache-2.0
"""MAPIE's risk controller under the promise of ``promise.py``, on the same draws of calibration rows.

Its predictions are 1 where a local answer is right, 0 where it is wrong, and NaN, which MAPIE takes for an abstention,
where a case is forwarded. Its risk is then the share of wrong ones among the local answers, and of all policies whose
risk it controls it takes the one that abstains least. It learns its order of tests ("split_fixed_sequence") from rows
that are known before any is drawn, as our order comes from figures on such rows.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pages import markdown

if TYPE_CHECKING:
    from benchmarks.promise import Population
    from hardcase_export.picking.risk_choice import RiskTerms


def can_be_asked(terms: RiskTerms, is_grouped: bool) -> bool:
    """Whether MAPIE has such terms: no excess over f0, which is no share of yes and no, and no groups."""
    return not (terms.is_excess or is_grouped)


class Controller:
    """Picks a policy of a population from drawn rows."""

    def __init__(self, population: Population, terms: RiskTerms) -> None:
        from mapie.risk_control import BinaryClassificationController
        from mapie.risk_control.risks import BinaryRisk, abstention_rate

        wrong = BinaryRisk(lambda _, said: said == 0, lambda _, said: ~np.isnan(said), higher_is_better=False)
        bounds = {wrong: terms.risk} | ({} if terms.max_forward is None else {abstention_rate: terms.max_forward})
        n = population.local.shape[1]
        local, right = (
            np.hstack(pair) for pair in zip((population.local, population.right), population.known, strict=True)
        )
        said = np.where(local, right.astype(float), np.nan)
        self._asked = BinaryClassificationController(
            lambda rows, k: said[int(k), rows],
            risk=list(bounds),
            target_level=list(bounds.values()),
            confidence_level=1 - terms.delta,
            best_predict_param_choice=abstention_rate,
            list_predict_params=np.arange(len(said))[:, None],
            fwer_method="split_fixed_sequence",
        )
        known = np.arange(n, said.shape[1])
        self._asked.learn_fixed_sequence_order(known, np.zeros(len(known), dtype=int), binary=True)

    def pick(self, drawn: np.ndarray) -> int | None:
        """The number of a policy; None if none is controlled."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that none is controlled
            best = self._asked.calibrate(drawn, np.zeros(len(drawn), dtype=int)).best_predict_param
        return None if best is None else int(best[0])


def peer_section(measured: dict[str, Any]) -> str:
    """The section of the page."""
    rows, behind, versions = [], [], set[str]()
    for name, r in measured.items():
        if "mapie" in r:
            versions.add(r["with"]["mapie"])
            behind += [name] * (_alone(r["mapie"]) >= _alone(r["promise"]) + 0.01)
            terms = r["terms"]
            most = f", forwarded {terms['max_forward']:g}" if terms["max_forward"] is not None else ""
            bounds = f"error {terms['risk']:g}{most}"
            rows.append([name, bounds, f"{terms['delta']:g}", *_cells(r["promise"]), *_cells(r["mapie"])])
    head = ("population", "terms", "delta", *("promised", "broken", "answered alone"),
            *(f"MAPIE: {x}" for x in ("promised", "broken", "answered alone")))  # fmt: skip
    return (
        "\n## Beside MAPIE's risk control\n\n"
        f"`BinaryClassificationController` of MAPIE {' and '.join(sorted(versions))} promises the same on the "
        "same draws, where it can be asked: it knows neither an excess over f0 nor groups.\n"
        "A forwarded case is an abstention to it; *answered alone* is a share of all cases, none where nothing is "
        "promised.\n"
        f"MAPIE answers more alone by a point or more on: {', '.join(behind) or 'none'}.\n\n"
        + markdown(head, rows, lambda row: row[0] not in behind, "populations on which MAPIE does not")
    )


def _cells(of: dict[str, Any]) -> list[str]:
    return [f"{of['picked'] / of['draws']:.1%}", f"{of['broken'] / of['draws']:.1%}", f"{_alone(of):.1%}"]


def _alone(of: dict[str, Any]) -> float:
    return float(of["picked"] / of["draws"] * (1 - (of["forward_rate"] or 0.0)))
