# SPDX-License-Identifier: Apache-2.0
"""How much cheaper a policy is than f0 for every case and than reading every sensor, and on what costs that rests.

Costs that ``hardcase init`` made up are placeholders. The same decisions, priced by the cost meter at ten times and a
tenth of these costs, say how much of the cut is theirs. The policy stays the same; trained for such costs, another one
would be picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import PLACEHOLDER, Priced
from hardcase_edge.program.definition import Costs, Sensor, Uplink
from hardcase_edge.program.inner import INNER
from hardcase_export.drafts.costs import Origins
from hardcase_export.integers.decide import Paths, mean_cost

FACTORS = (0.1, 10.0)  # by which placeholders are scaled


@dataclass(frozen=True)
class Headline:
    """Cuts of the mean cost on test rows, as shares of what they are compared with; None where that costs nothing.

    f0, every : mean cost of f0 for every case, and of reading every sensor without a request, in the user's unit
    cut, cut_every : against these
    sensors : number of sensors whose costs are placeholders, of ``n_sensors``
    request : whether a cost of the request is a placeholder
    if_sensors, if_request : the lowest and the highest ``cut`` if the placeholders of the sensors, and those of the
        request, are scaled by ``FACTORS``; None without such placeholders
    """

    f0: float
    every: float
    cut: float | None
    cut_every: float | None
    n_sensors: int
    sensors: int = 0
    request: bool = False
    if_sensors: tuple[float, float] | None = None
    if_request: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def headline_in(data: object, where: str) -> Headline:
    """The headline in these JSON values, as ``Headline.to_json`` makes them.

    Raises
    ------
    InputError
        A key is missing, or a value is not a number, a pair of numbers or null.
    """

    def is_number(value: object) -> bool:
        return isinstance(value, int | float) and isfinite(value)

    names = {field.name for field in fields(Headline)}
    given: dict[str, Any] = (
        {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()} if isinstance(data, dict) else {}
    )
    pairs = [given.pop(key, None) for key in ("if_sensors", "if_request")]
    is_whole = given.keys() | {"if_sensors", "if_request"} == names and all(
        value is None or is_number(value) for value in given.values()
    )
    are_pairs = all(p is None or (isinstance(p, tuple) and [*map(is_number, p)] == [True, True]) for p in pairs)
    if not (is_whole and are_pairs):
        raise InputError(f"{where} is {str(data)[:60]!r}, but the cuts of a cost are expected; train again")
    return Headline(**given, if_sensors=pairs[0], if_request=pairs[1])


def cut_lines(cuts: dict[str, Any], unit: str) -> list[str]:
    """How much cheaper the policy is than f0 for every case, and than reading every sensor."""
    against = (("cut", "f0", "f0 for every case"), ("cut_every", "every", "every sensor"))
    shown = [
        f"{cuts[key]:.1%} against {words} ({cuts[of]:g} {unit})" for key, of, words in against if cuts[key] is not None
    ]
    return [f"  cut        {', '.join(shown)}"] if shown else []


@dataclass(frozen=True)
class _Prices:
    """Costs that a meter can read."""

    sensors: tuple[Sensor, ...]
    uplink: Uplink
    costs: Costs


def headline(program: Priced, paths: Paths, names: Sequence[str], costs: Origins | None) -> Headline:
    """The headline of decisions.

    Parameters
    ----------
    program : whose costs they are
    paths : what rows bought and asked, as ``hardcase_export.integers.decide.paths_of`` counts them
    names : of the program's sensors
    costs : where costs are from; None: every one is a person's own
    """
    known = costs or Origins()
    outer = [k for k, name in enumerate(names) if name not in INNER or any(program.sensors[k].cost)]
    read = tuple(k for k in outer if not known.f0 or names[k] in known.f0)
    sizes: dict[int, float] = {}
    for (size, _, _), rows in paths.items():
        sizes[size] = sizes.get(size, 0.0) + rows
    asked: Paths = {(size, read, 1): rows for size, rows in sizes.items()}
    whole: Paths = {(size, tuple(outer), 0): rows for size, rows in sizes.items()}

    def cut(prices: Priced, against: Paths) -> float | None:
        most = mean_cost(prices, against)
        return 1 - mean_cost(prices, paths) / most if most else None

    def span(of: Mapping[str, Any]) -> tuple[float, float] | None:
        cuts = [cut(_scaled(program, factor, **of), asked) for factor in FACTORS]
        found = [c for c in (*cuts, cut(program, asked)) if c is not None]
        return (min(found), max(found)) if found else None

    marked = known.placeholders(names) & set(outer)
    terms = program.costs
    radio = known.uplink == PLACEHOLDER and bool(terms.per_request or terms.per_byte)
    cloud = known.cloud == PLACEHOLDER and bool(terms.cloud_per_request)
    return Headline(
        f0=mean_cost(program, asked),
        every=mean_cost(program, whole),
        cut=cut(program, asked),
        cut_every=cut(program, whole),
        n_sensors=len(outer),
        sensors=len(marked),
        request=radio or cloud,
        if_sensors=span({"sensors": marked}) if marked else None,
        if_request=span({"radio": radio, "cloud": cloud}) if radio or cloud else None,
    )


def _scaled(
    program: Priced, factor: float, sensors: frozenset[int] = frozenset(), radio: bool = False, cloud: bool = False
) -> _Prices:
    """The program's costs with some of them times a factor."""
    new = [
        replace(s, cost=tuple(round(c * factor) for c in s.cost)) if k in sensors else s
        for k, s in enumerate(program.sensors)
    ]
    names = ["per_request", "per_byte"] * radio + ["cloud_per_request"] * cloud
    costs = replace(program.costs, **{name: round(getattr(program.costs, name) * factor) for name in names})
    return _Prices(tuple(new), program.uplink, costs)
