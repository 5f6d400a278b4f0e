# SPDX-License-Identifier: Apache-2.0
"""From a build folder to a signed bundle: pick a point, quantise it, compare it with its draft, check it, write it.

``make_bundle`` computes and checks everything in memory. Targets are made of its result; ``Checked.write`` writes the
bundle when nothing but the disk can still fail.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.file import Bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.bundle.value import Value
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import HPC_METHOD
from hardcase_edge.more.fronts.pick import ONE_WISH, nearest_local
from hardcase_edge.program.definition import Program
from hardcase_edge.program.encode import encode
from hardcase_edge.program.inner import inner_sensors

from .checked import Asked, Checked, Exported, ExportedCases, Made, Weights
from .drafts.front import Front, Point
from .drafts.rows import Rows
from .integers.compress import n_weights
from .integers.decide import results_of
from .integers.golden_cases import make_golden
from .integers.point import Build, IntegerPoint
from .integers.quantise import quantise
from .integers.sensor_claims import measure_without, ranges_of_rows
from .joint.point import of_items
from .picking.atypical import Scored, atypical_shares
from .picking.audit_claim import audit_claim
from .picking.held_out import BuildTrial, HeldOut, by_column, check_unseen, count, read_held_out
from .picking.monitors import measure_monitors
from .picking.optimism import selection_of
from .picking.pick import Chosen, candidates, mix_that_agrees, pick_that_agrees, why_no_mix
from .picking.price_table import price_table
from .picking.promise_words import BY_CLASS, BY_TRUTH
from .picking.risk_choice import RiskTerms, choose
from .publish import check_out, checked, read_key
from .targets import Built

MIN_AGREEMENT = 0.999  # share of rows on which a program must decide as its draft


class NoPricesError(InputError):
    """The picked policy has no threshold that running budgets could move: export it without prices."""


def export_bundle(build: str | Path | Build, out: str | Path | None, *, force: bool = False, **wish: Any) -> Exported:
    """Write the bundle of one point of a build's Pareto front; the same build always gives the same bytes.

    Parameters
    ----------
    build : the folder that ``hardcase train`` wrote, or what is in memory of it
    out : path of the bundle; its signature goes beside it. None: the bundle is made and checked, but not written
    force : whether the bundle may replace a file that is not a bundle
    wish : as for ``make_bundle``

    Raises
    ------
    InputError, BundleError
        As for ``make_bundle``; or another file stands at ``out``, or it cannot be written.
    """
    check_out(out, force)
    made = make_bundle(build, **wish)
    return made.exported if out is None else made.write(Path(out))


def make_bundle(
    build: str | Path | Build,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
    hard_budget: float | None = None,
    key: str | Path | None = None,
    method: str | None = None,
    min_agreement: float | None = None,
    seed: int = 0,
    terms: RiskTerms | None = None,
    held_out: HeldOut | None = None,
    monitors: bool = False,
    prices: bool = False,
    of_best: bool = False,
    mix: bool = True,
    atypical: float | None = None,
    allow_constant: bool = False,
) -> Checked:
    """The bundle of one point of a build's Pareto front, checked and in memory.

    Parameters
    ----------
    build : the folder that ``hardcase train`` wrote, or what is in memory of it
    max_loss, budget, hard_budget, method, of_best : which point to pick, as for ``picking.pick.pick``; validation
        figures alone decide
    key : path of a private key, or None for a bundle without a signature
    min_agreement : share of the validation rows, and of the test rows, on which the program must decide exactly as its
        draft; this comparison uses no labels. None: ``MIN_AGREEMENT``, of items of several parts 0.99 of held-out parts
    seed : seed of the choice of golden cases
    terms : in place of ``max_loss`` and ``budget``: pick the cheapest point that keeps these terms on the ``held_out``
        rows; the manifest's claims then hold the promise
    held_out : rows that training has not seen; None for the build's own calibration rows
    monitors : whether the manifest gets what a device compares its readings with
    prices : whether running budgets may move its thresholds, by a table in the manifest
    mix : whether a ``budget`` may be met by a coin that mixes two points (``picking.pick.mix_for``), which is not done
        with ``prices``, nor where the measure is no mean over decisions or training had a limit on bytes
    atypical : share of the validation rows at each Answer that count as atypical; such cases are forwarded where the
        program may forward and no ``hard_budget`` is given, and have a lower confidence; None: no case does
    allow_constant : whether the policy may be one that reads nothing and answers every case alike

    Raises
    ------
    InputError
        The build cannot be used, no point of it fits what was asked for, or the policy is a constant;
        ``NoPricesError`` if ``prices`` cannot be had.
    BundleError
        The program differs from its draft on too many rows, or the verifier cannot prove it safe.
    """
    private_key = _check(key, min_agreement)
    build = build if isinstance(build, Build) else Build(build)
    build.check_unchanged()
    asked = Asked(
        wish={"max_loss": max_loss, "budget": budget, "hard_budget": hard_budget, "method": method, "of_best": of_best},
        min_agreement=min_agreement, seed=seed, terms=terms, held_out=held_out, monitors=monitors, prices=prices,
        mix=mix, atypical=atypical, allow_constant=allow_constant,
    )  # fmt: skip
    of_kind = of_items if build.front.is_joint else _of_cases
    return of_kind(build, asked).signed(build.front, private_key)


def _of_cases(build: Build, asked: Asked) -> Made:
    """A point whose draft is quantised, compared with the result, and assembled with all that its manifest says."""
    least = MIN_AGREEMENT if asked.min_agreement is None else asked.min_agreement
    wish, terms, front = asked.wish, asked.terms, build.front
    if terms is not None:
        _check_terms(terms, front)
    scored = None if asked.atypical is None else Scored(build, asked.atypical, wish["hard_budget"] is None)
    promise: dict[str, Any] = {}
    if terms is None:
        chosen = _by_wish(build, asked, least, scored)
    else:
        chosen, promise = _by_promise(build, asked, terms, least, scored)
    refusal = "" if asked.allow_constant else constant_refusal(chosen.integers)
    if refusal:
        raise InputError(refusal)
    claims = promise | _atypical(chosen.integers, asked.atypical)
    claims |= {} if chosen.mix is None else {"mix": chosen.mix.to_json()}
    return _assemble(front, chosen, claims, asked.seed, asked.monitors, asked.prices, build)


def _by_wish(build: Build, asked: Asked, least: float, scored: Scored | None) -> Chosen:
    wish, front = asked.wish, build.front
    mean = wish["budget"] if asked.mix and (wish["max_loss"], wish["hard_budget"]) == (None, None) else None
    reason = "" if mean is None else why_no_mix(front, asked.prices)
    if mean is not None and not reason:
        return mix_that_agrees(build, mean, wish["method"], least, scored)
    point, integers, passed_over = pick_that_agrees(build, wish, least)
    return Chosen(point, integers if scored is None else scored(integers), passed_over, single=reason)


def _by_promise(
    build: Build, asked: Asked, terms: RiskTerms, least: float, scored: Scored | None
) -> tuple[Chosen, dict[str, Any]]:
    """The cheapest point that keeps the terms on held-out rows, and the promise as a claim."""
    if any(asked.wish[key] is not None for key in ("max_loss", "budget", "hard_budget")):
        raise InputError(ONE_WISH)
    points = candidates(build.front, asked.wish["method"])
    manifest = build.draft(points[0])[1]
    held_out = read_held_out(build.folder, manifest) if asked.held_out is None else asked.held_out
    held_out = by_column(held_out, manifest, terms)
    check_unseen(held_out, build.folder, manifest)
    trial = BuildTrial(build, held_out, least, terms, scored)
    point, promise = choose(points, terms, trial)
    integers = trial.integers(point)
    claim = {**promise.to_json(), "rows": held_out.to_json(), "test": _on_test(integers, terms)}
    return Chosen(point, integers, 0), {"promise": claim}


def export_point(
    front: Front,
    point: Point,
    integers: IntegerPoint,
    out: str | Path,
    *,
    key: str | Path | None = None,
    seed: int = 0,
    force: bool = False,
    prices: bool = False,
) -> Exported:
    """As ``export_bundle``, for a point of a front that the caller has picked, and has in integers."""
    check_out(out, force)
    private_key = None if key is None else read_key(Path(key))
    made = _assemble(front, Chosen(point, integers, 0), {}, seed, prices=prices)
    return made.signed(front, private_key).write(Path(out))


def _check_terms(terms: RiskTerms, front: Front) -> None:
    """Refuse terms that the answers of this build cannot have."""
    if front.measure.kind == "ndcg":
        raise InputError("a promise bounds the share of wrong answers, but this build ranks; use --max-loss")
    if front.measure.is_of_values and terms.tolerance is None:
        raise InputError(
            "this build answers values, and --risk bounds the share of those that are far off: say how far with "
            "--risk-tolerance, in the target's unit"
        )
    if terms.tolerance is not None and not front.measure.is_of_values:
        raise InputError("--risk-tolerance is for values, but this build answers classes; leave it out")
    if front.measure.is_of_values and terms.per in (BY_CLASS, BY_TRUTH):
        raise InputError(f"--risk-per {terms.per} is for classes, but this build answers values; name a column")


def _atypical(integers: IntegerPoint, share: float | None) -> dict[str, Any]:
    """What the claims say of the score of atypical cases."""
    return {} if share is None else {"atypical": {"share": share, **atypical_shares(integers)}}


def _on_test(integers: IntegerPoint, terms: RiskTerms) -> dict[str, int]:
    """What the promised point does on the test rows: the local answers, and those of them that are wrong."""
    counts = count(integers, integers.test, replace(terms, per=None))
    return {"n": counts.rows, "local": counts.local, "errors": counts.errors}


def _check(key: str | Path | None, min_agreement: float | None) -> bytes | None:
    """The private key; both arguments are checked before the long work begins."""
    if min_agreement is not None and not 0 <= min_agreement <= 1:
        raise InputError(f"--min-agreement is {min_agreement}; give a share from 0 to 1")
    return None if key is None else read_key(Path(key))


def _assemble(
    front: Front,
    chosen: Chosen,
    claims: dict[str, Any],
    seed: int,
    monitors: bool = False,
    prices: bool = False,
    build: Build | None = None,
) -> Made:
    """The point's bundle with all that its manifest says, loaded as a device does."""
    point, integers = chosen.point, chosen.integers
    program, valid, steps = integers.quantised.program, integers.valid, integers.quantised.steps
    manifest = _finish(front, point, integers, claims)
    inner = tuple(inner_sensors(program, manifest.features, manifest.sensors).values())
    if prices:
        manifest = replace(manifest, prices=_prices(program, valid, inner, integers.atypical))
    manifest = replace(manifest, monitors=measure_monitors(program, valid, steps, inner) if monitors else None)
    replies = valid.hpc if steps is None else results_of(valid.hpc, steps)
    golden = make_golden(program, valid.X, replies, valid.confidence, seed)
    data, loaded = checked(Bundle(manifest.to_json(), program, golden))
    report = partial(
        ExportedCases,
        target_unit=None if manifest.value is None else manifest.value.unit,
        intervals=len(integers.intervals),
        valid=integers.on_valid,
        test=integers.on_test,
        selection=selection_of(front, point, integers.draft, inner),
        nearest=nearest_local(front, point),
        promise=claims.get("promise"),
        weights=_weights(integers.draft, program, len(data)),
        passed_over=chosen.passed_over,
        mix=chosen.mix,
        single=chosen.single,
        program=program,
        sensors=manifest.sensors,
        costs=front.costs,
    )
    return Made(point, data, loaded, report, None if build is None else Built(build, integers))


def constant_refusal(integers: IntegerPoint) -> str:
    """Why this policy is refused: it reads nothing and answers all rows alike, some wrongly; empty if it does not."""
    both = (integers.on_valid, integers.valid.y), (integers.on_test, integers.test.y)
    if any(bought or requests for rows, _ in both for _, bought, requests in rows.paths):
        return ""
    answers = {answer for rows, _ in both for answer in rows.local.answers}
    if len(answers) != 1 or all(bool((y == min(answers)).all()) for _, y in both):
        return ""
    (answer,) = answers
    classes = integers.manifest.classes
    said = repr(str(classes[int(answer)])[:40]) if classes else f"{answer:.4g}"
    return (
        f"this policy reads nothing and answers {said} to every case; ask for less loss (--max-loss) or allow more "
        "cost (--budget), say what errors cost in [cost.errors], or write it all the same with --force"
    )


def _prices(program: Program, valid: Rows, inner: Sequence[int], fixed: Collection[int]) -> Prices:
    if inner:
        raise NoPricesError(
            "a policy that remembers has no table of prices: another threshold changes what it remembers, and the rows "
            "hold what this one does; leave --prices out"
        )
    table = price_table(program, valid, fixed)
    if table is None:
        raise NoPricesError("no threshold of this point moves its cost on validation rows: leave --prices out")
    return table


def _n_bytes(program: Program) -> int:
    """Length of the program in a bundle, without the header."""
    return sum(len(values) * values.itemsize for values in encode(program).values())


def _weights(draft: Program, program: Program, n_bytes: int) -> Weights | None:
    if not n_weights(draft):
        return None
    saved = _n_bytes(quantise(draft).program) - _n_bytes(program)
    return Weights(n_weights(draft), n_weights(program), n_bytes + saved)


# ---------------------------------------------------------------- the manifest


def _finish(front: Front, point: Point, integers: IntegerPoint, promise: dict[str, Any]) -> Manifest:
    """The draft's manifest with all that was measured, the promise, the method, its parameters and values' scale."""
    manifest, measured = integers.manifest, {"valid": integers.on_valid, "test": integers.on_test}
    if manifest.unit != front.unit:
        raise InputError(f"the draft states costs in {manifest.unit!r}, but front.json in {front.unit!r}; train again")
    claims: dict[str, Any] = {name: p.after.to_json() for name, p in measured.items()} | promise
    claims |= {"quality": front.quality, "measure": front.measure.to_json()}
    claims["agreement"] = {name: p.agreement for name, p in measured.items()}
    claims |= {"audits": audits} if manifest.hpc and (audits := audit_claim(integers, manifest.classes)) else {}
    claims |= {} if front.costs is None else {"costs": front.costs.to_json()}
    claims["hpc"] = {
        name: getattr(p, name).quality for p in front.points if p.method == HPC_METHOD for name in ("valid", "test")
    }
    trained = {"method": point.method, "params": point.params, **manifest.trained}
    steps = integers.quantised.steps
    unit = "" if manifest.value is None else manifest.value.unit
    value = None if steps is None else Value(unit, steps, integers.intervals)
    program, rows = integers.quantised.program, integers.valid
    without, ranges = measure_without(program, rows, steps), ranges_of_rows(program, rows.limits)
    manifest = replace(manifest, claims=claims, trained=trained, atypical=integers.atypical)
    return replace(manifest, without=without, ranges=ranges, value=value)
