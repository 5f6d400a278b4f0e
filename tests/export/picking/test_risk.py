# SPDX-License-Identifier: Apache-2.0
"""What is promised holds as often as it says: p-values, the sequence, the pick, the bundle's claim, and many draws."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.promise import N_ALIKE, flattered, gates, machines, simulate
from hardcase.verbs import export, inspect
from hardcase_edge.bundle.file import pack_bundle, unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.session.session import CLOUD
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.front import Front, Point
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions
from hardcase_export.picking.pick import pick
from hardcase_export.picking.promise_words import say_promise
from hardcase_export.picking.risk_choice import RiskTerms, choose
from hardcase_export.picking.risk_test import (
    QUANTILE,
    Counts,
    ValidationRates,
    best_bet,
    binomial_tail,
    fixed_sequence,
    forward_bet,
    forward_bound,
    order_of_tests,
    p_error,
    p_excess,
    p_forward,
    p_groups,
    rows_needed,
    standard_errors_to_spare,
)
from tests.export.test_bundle import run, write_csv
from tests.helpers.export.builds import make_build, save_rows

# ---------------------------------------------------------------- p-values


@given(st.integers(1, 3000), st.floats(1e-6, 1 - 1e-6), st.integers(-1, 3000))
def test_the_binomial_tail_is_scipys(n, p, k):
    assert binomial_tail(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-9, abs=1e-300)


def test_no_success_of_a_million_is_found_where_a_sum_would_vanish():
    assert binomial_tail(0, 1_000_000, 1e-5) == pytest.approx(math.exp(1e6 * math.log1p(-1e-5)))
    assert binomial_tail(500_000, 1_000_000, 0.5) == pytest.approx(stats.binom.cdf(500_000, 1_000_000, 0.5), rel=1e-6)


@pytest.mark.parametrize("rows", [148, 149])
def test_so_many_rows_without_an_error_are_needed_and_one_less_is_too_few(rows):
    assert rows_needed(0.02, 0.05) == 149
    assert (p_error(Counts(rows, rows, 0, 0, 0), 0.02) <= 0.05) == (rows == 149)


def test_where_nothing_is_answered_locally_nothing_is_shown():
    nothing = Counts(100, 0, 0, 0, 0)
    assert (p_error(nothing, 0.5), p_excess(nothing, 0.5, 1.0)) == (1.0, 1.0)
    assert p_forward(nothing, 1.0) == 0.0


def distribution(n, worse, better):
    """Chance of each (worse, better) among n local answers."""
    pairs = [(a, b) for a, b in product(range(n + 1), repeat=2) if a + b <= n]
    chances = stats.multinomial.pmf([(a, b, n - a - b) for a, b in pairs], n, [worse, better, 1 - worse - better])
    return zip(pairs, chances, strict=True)


@pytest.mark.parametrize("bet", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("worse", "better"), [(0.2, 0.0), (0.3, 0.1), (0.55, 0.35), (1.0, 0.0)])
def test_the_test_of_excess_rejects_a_truth_at_the_bound_no_oftener_than_its_level(bet, worse, better):
    """Exactly, over all outcomes of 25 rows whose true excess is the risk or more."""
    risk, n = 0.2, 25
    outcomes = [
        (p_excess(Counts(n, n, a, a, b), risk, bet / (1 - risk)), c) for (a, b), c in distribution(n, worse, better)
    ]
    for level in (0.01, 0.05, 0.2):
        assert sum(chance for p, chance in outcomes if p <= level) <= level + 1e-12


def test_without_an_error_beyond_f0s_the_full_bet_is_as_sharp_as_the_exact_tail():
    counts = Counts(200, 200, 0, 0, 0)
    assert p_excess(counts, 0.02, 1 / 0.98) == pytest.approx(p_error(counts, 0.02))


@given(st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0.005, 0.3), st.integers(10, 5000))
def test_the_best_bet_is_in_range_and_no_other_grows_faster(worse, better, risk, n):
    bet = best_bet(ValidationRates(0.1, worse, worse, better), risk, n)
    a, b = (worse * n + 1) / (n + 2), better * n / (n + 2)

    def growth(x):
        return a * math.log1p(-x * (1 - risk)) + (1 - a - b) * math.log1p(x * risk) + b * math.log1p(x * (1 + risk))

    most = 1 / (1 - risk)
    assert 0 < bet <= most
    if bet < most:
        assert growth(bet) >= max(growth(most * k / 200) for k in range(1, 200)) - 1e-9


@given(st.floats(0, 0.9), st.integers(50, 2000))
def test_a_policy_that_forwards_as_judged_keeps_its_bound_nearly_always(rate, rows):
    bound = forward_bound(rate, rows, 0.05)
    passing = [k for k in (int(rows * rate) - 1, stats.binom.ppf(QUANTILE, rows, rate)) if k >= 0]
    assert all(p_forward(Counts(rows, rows - int(k), 0, 0, 0), bound) <= 0.05 + 1e-9 for k in passing)
    assert bound > rate


# ---------------------------------------------------------------- groups

KINDS = ((0.0, 1.0), (1.0, 1.0), (0.0, 0.5), (0.5, 0.5), (0.1, 0.9))  # loss and base of a group


@pytest.mark.parametrize("bet", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("chances", [(0.8, 0.2, 0, 0, 0), (0.5, 0.1, 0.2, 0.1, 0.1), (0.2, 0.15, 0.5, 0.1, 0.05)])
def test_the_test_of_groups_rejects_a_truth_at_the_bound_no_oftener_than_its_level(bet, chances):
    """Exactly, over all outcomes of eight groups whose mean loss is the risk times their mean base, or more."""
    n, (loss, base) = 8, np.array(chances) @ np.array(KINDS)
    risk = loss / base
    counts = [c for c in product(range(n + 1), repeat=len(KINDS)) if sum(c) == n]
    likely = stats.multinomial.pmf(counts, n, chances)
    p_values = [p_groups([k for k, c in zip(KINDS, row, strict=True) for _ in range(c)], risk, bet) for row in counts]
    for level in (0.01, 0.05, 0.2, 0.5):
        assert sum(c for p, c in zip(p_values, likely, strict=True) if p <= level) <= level + 1e-12


def test_a_group_counts_as_one_row_at_most():
    """Of 149 groups without an error as many are needed as of rows; rows that agree add nothing."""
    one = Counts(1, 1, 0, 0, 0)
    for rows in (1, 50):
        counts = Counts(149 * rows, 149 * rows, 0, 0, 0, (Counts(rows, rows, 0, 0, 0),) * 149)
        assert p_error(counts, 0.02, 1 / 0.98) == pytest.approx(p_error(Counts(149, 149, 0, 0, 0), 0.02))
    half = (Counts(2, 1, 0, 0, 0),) * 149  # half forwarded says half as much
    assert p_error(Counts(298, 149, 0, 0, 0, half), 0.02, 1 / 0.98) == pytest.approx((1 + 0.01 / 0.98) ** -149)
    assert p_error(Counts(9, 0, 0, 0, 0, (Counts(3, 0, 0, 0, 0),) * 3), 0.5) == 1.0
    assert p_forward(Counts(2, 2, 0, 0, 0, (one, one)), 1.0) == 0.0


def test_one_group_that_is_wrong_as_a_whole_leaves_the_cautious_half_of_the_wealth():
    groups = [(0.0, 1.0)] * 199 + [(1.0, 1.0)]
    bet = best_bet(ValidationRates(0.0, 0.01, 0.01, 0.0), 0.05, 200)
    assert p_groups(groups, 0.05, 1 / 0.95) == 1.0
    assert p_groups(groups, 0.05, bet) == pytest.approx(2 / ((1 + bet * 0.05) ** 199 * (1 - bet * 0.95)))
    assert p_groups(groups, 0.05, bet) < 0.05


@given(st.floats(0, 0.8), st.integers(20, 300))
def test_a_policy_that_forwards_whole_groups_as_judged_keeps_its_bound_nearly_always(rate, n):
    bound = forward_bound(rate, n, 0.05, True)
    k = int(stats.binom.ppf(QUANTILE, n, rate))
    groups = tuple(Counts(4, 4 * (j >= k), 0, 0, 0) for j in range(n))
    counts = Counts(4 * n, 4 * (n - k), 0, 0, 0, groups)
    if bound < 1:
        assert p_forward(counts, bound, forward_bet(rate, bound, n)) <= 0.05 + 1e-6
    assert bound > forward_bound(rate, n * 4, 0.05)


# ---------------------------------------------------------------- the sequence


@pytest.mark.parametrize(
    ("p_values", "starts", "expected"),
    [
        pytest.param([0.01, 0.05, 0.06, 0.0], 1, [0, 1], id="stops-at-the-first-that-stays"),
        pytest.param([0.06, 0.0, 0.0, 0.0], 1, [], id="never-begins"),
        pytest.param([0.06, 0.0, 0.02, 0.03], 2, [2], id="a-second-start-at-half-the-level"),
        pytest.param([0.01, 0.02, 0.01, 0.02], 2, [0, 1, 2, 3], id="starts-meet"),
        pytest.param([0.02], 3, [0], id="no-more-starts-than-hypotheses"),
    ],
)
def test_a_sequence_goes_on_until_the_first_that_is_not_rejected(p_values, starts, expected):
    assert fixed_sequence(p_values.__getitem__, len(p_values), 0.05, starts) == expected


def test_what_is_not_reached_is_never_asked_for():
    asked = []
    fixed_sequence(lambda k: asked.append(k) or [0.01, 0.5, 0.0][k], 3, 0.05)
    assert asked == [0, 1]


def test_a_ladder_begins_with_the_surest_and_only_steps_down_in_cost():
    assert order_of_tests([3.0, 9.0, 5.0, 7.0, 1.0], [4.0, 50.0, 20.0, 60.0, 4.0]) == [1, 2, 0]
    assert order_of_tests([2.0, 2.0], [9.0, 3.0]) == [1]


def test_a_margin_counts_few_local_answers_and_much_forwarding_against_a_policy():
    wish = {"rows": 400, "risk": 0.05, "is_excess": False, "max_forward": None}
    sure = standard_errors_to_spare(ValidationRates(0.1, 0.01, 0, 0), **wish)
    assert (
        sure
        > standard_errors_to_spare(ValidationRates(0.1, 0.03, 0, 0), **wish)
        > 0
        > standard_errors_to_spare(ValidationRates(0.1, 0.06, 0, 0), **wish)
    )
    assert sure > standard_errors_to_spare(ValidationRates(0.9, 0.01, 0, 0), **wish)
    assert standard_errors_to_spare(ValidationRates(1.0, 0.0, 0, 0), **wish) == -math.inf
    assert standard_errors_to_spare(ValidationRates(0.3, 0.01, 0, 0), **{**wish, "max_forward": 0.2}) < 0


# ---------------------------------------------------------------- the pick


class Told:
    """A trial whose counts are given by name."""

    name, rows, groups = "told.npz", 400, 0

    def __init__(self, **counts):
        self.told, self.asked = counts, []

    def can_forward(self, point):
        return point.valid.forward_rate > 0

    def counts(self, point):
        self.asked.append(point.method)
        return self.told[point.method]


def point(method, cost, error, forward_rate=0.1):
    figures = Judged(1 - error, cost, forward_rate, 0.0, 0.0, error, error / 2, 0.0)
    return Point(method, {}, figures, figures, f"policies/{method}")


FRONT = Front(
    "mJ",
    (
        point("hpc", 900, 0.0, 1.0),
        point("sure", 300, 0.001),
        point("dear", 500, 0.002),
        point("fair", 100, 0.01),
        point("bold", 10, 0.04),
    ),
)
CLEAN, POOR = Counts(400, 360, 0, 0, 0), Counts(400, 360, 30, 20, 0)


def test_the_cheapest_point_that_is_shown_to_keep_the_terms_is_picked_and_dearer_ones_are_not_tried():
    trial = Told(sure=CLEAN, fair=CLEAN, bold=POOR)
    assert pick(FRONT, risk=0.05, delta=0.05, trial=trial).method == "fair"
    assert list(dict.fromkeys(trial.asked)) == ["sure", "fair", "bold"]


def test_a_cheap_point_that_looks_good_is_not_reached_over_one_that_fails():
    trial = Told(sure=CLEAN, fair=POOR, bold=CLEAN)
    assert pick(FRONT, risk=0.05, trial=trial).method == "sure"


def test_the_promise_says_what_was_tested():
    trial = Told(sure=CLEAN, fair=CLEAN, bold=POOR)
    found, promise = choose(FRONT.points[1:], RiskTerms(0.05), trial)
    assert (found.method, promise.counts, promise.tried) == ("fair", CLEAN, 3)
    assert promise.p == max(p_error(CLEAN, 0.05), p_forward(CLEAN, promise.max_forward)) <= 0.05


def test_a_point_that_forwards_too_much_is_not_promised():
    much = Counts(400, 200, 0, 0, 0)
    assert pick(FRONT, risk=0.05, trial=Told(sure=CLEAN, fair=much, bold=POOR)).method == "sure"
    assert pick(FRONT, risk=0.05, max_forward=0.6, trial=Told(sure=CLEAN, fair=much, bold=POOR)).method == "fair"


def test_excess_counts_only_what_f0_would_have_done_better():
    both_wrong = Counts(400, 360, 60, 0, 0)
    trial = Told(sure=both_wrong, fair=POOR, bold=POOR)
    assert pick(FRONT, risk=0.02, is_excess=True, trial=trial).method == "sure"
    with pytest.raises(InputError):
        pick(FRONT, risk=0.02, trial=trial)


FEW = SimpleNamespace(name="few.npz", rows=20, groups=0, can_forward=Told().can_forward)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        pytest.param({"risk": 0.1, "budget": 3}, "at most one", id="two-wishes"),
        pytest.param({"risk": 0.1, "trial": None}, "held-out rows", id="no-rows"),
        pytest.param({"risk": 0.0}, "--risk is 0; give a share between", id="no-risk"),
        pytest.param({"risk": float("nan")}, "--risk is nan", id="nan-risk"),
        pytest.param({"risk": 0.1, "delta": 1.0}, "--delta is 1", id="certain-to-fail"),
        pytest.param({"risk": 0.1, "max_forward": 1.1}, "--max-forward is 1.1", id="more-than-all"),
        pytest.param(
            {"risk": 0.1, "method": "hpc"}, "name one of: bold, dear, fair, sure", id="f0-answers-nothing-locally"
        ),
        pytest.param(
            {"risk": 0.01}, r"30 wrong; --risk 0\.\d+ would have passed; every program needs at least 299", id="none"
        ),
        pytest.param(
            {"risk": 0.1, "front": Front("mJ", (replace(FRONT.points[1], valid=Judged(0.9, 1.0, 0.1)),))},
            "no local_error",
            id="older-front",
        ),
        pytest.param(  # no point is quantised and no count is made
            {
                "risk": 0.005,
                "trial": SimpleNamespace(name="few.npz", rows=20, groups=0, can_forward=Told().can_forward),
            },
            r"needs 598 rows .* few.npz has 20 rows, which can show --risk 0.1392 at best",
            id="what-arithmetic-forbids",
        ),
        pytest.param({"risk": 0.2, "max_forward": 0.02}, r"--max-forward 0\.\d+ would have passed", id="forwards"),
    ],
)
def test_what_cannot_be_promised_is_one_line(wish, said):
    trial = Told(sure=POOR, dear=POOR, fair=POOR, bold=POOR)
    with pytest.raises(InputError, match=said) as found:
        pick(**{"front": FRONT, "trial": trial, **wish})
    assert "\n" not in str(found.value)


def test_the_risk_that_the_line_names_is_enough_and_the_next_is_not():
    trial = Told(sure=POOR, dear=POOR, fair=CLEAN, bold=POOR)
    with pytest.raises(InputError) as found:
        pick(FRONT, risk=0.01, trial=trial)
    named = float(str(found.value).partition("--risk 0.01")[2].partition("--risk ")[2].split()[0])
    assert pick(FRONT, risk=named, trial=trial)
    with pytest.raises(InputError):
        pick(FRONT, risk=named - 1e-4, trial=trial)


# ---------------------------------------------------------------- the bundle


@pytest.fixture(scope="module")
def shared_build(tmp_path_factory):
    build = make_build(tmp_path_factory.mktemp("promise") / "build")
    save_rows(build / "calibration.npz", build / "hpc.onnx", 400, 7)
    return build


@pytest.fixture
def build(shared_build, tmp_path):
    return Path(shutil.copytree(shared_build, tmp_path / "build"))


def test_a_bundle_carries_its_promise_and_the_rows_it_was_made_on(build, tmp_path, capsys):
    out = tmp_path / "m.hcb"
    assert run(export, build, "--risk", 0.2, "--delta", 0.1, "--out", out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    loaded = load_bundle(out)
    claim = loaded.manifest.claims["promise"]
    rows = read_rows(build / "calibration.npz", loaded.manifest)
    made = decisions(loaded.bundle.program, rows.X, rows.hpc, rows.confidence)
    local = [(d.result, y) for d, y in zip(made, rows.y.tolist(), strict=True) if d.route != CLOUD]
    counts = Counts(400, len(local), sum(a != b for a, b in local), 0, 0)
    assert (claim["counts"]["local"], claim["counts"]["errors"]) == (counts.local, counts.errors)
    assert claim["p"] == max(p_error(counts, 0.2), p_forward(counts, claim["max_forward"])) <= 0.1
    assert (claim["of"], claim["risk"], claim["delta"]) == ("error", 0.2, 0.1)
    sha256 = hashlib.sha256((build / "calibration.npz").read_bytes()).hexdigest()
    assert claim["rows"] == {"file": "calibration.npz", "sha256": sha256, "n": 400}
    assert said["promise"] == claim
    assert run(inspect, out) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("  promise "))
    assert "probability 0.9 over the draw of 400 rows: at most 0.2 of local answers wrong" in line


def test_the_same_promise_gives_the_same_bytes_and_other_wishes_make_none(build, tmp_path):
    for name in ("a.hcb", "b.hcb"):
        export_bundle(build, tmp_path / name, terms=RiskTerms(0.2, 0.1))
    assert (tmp_path / "a.hcb").read_bytes() == (tmp_path / "b.hcb").read_bytes()
    export_bundle(build, tmp_path / "c.hcb", max_loss=0.01)
    assert "promise" not in load_bundle(tmp_path / "c.hcb").manifest.claims


def test_a_users_own_table_may_be_the_rows(build, tmp_path, capsys):
    """Rows as a .csv give the counts of the build's own file: f0's answers are computed by the build's own HPC."""
    rows = read_rows(build / "calibration.npz", load_manifest(build))
    write_csv(tmp_path / "mine.csv", rows)
    argv = (export, build, "--risk", 0.2, "--excess", "--max-forward", 0.9, "--json", "--out", tmp_path / "m.hcb")
    run(*argv)
    own = json.loads(capsys.readouterr().out)["promise"]
    run(*argv, "--calibration", tmp_path / "mine.csv")
    theirs = json.loads(capsys.readouterr().out)["promise"]
    assert theirs.pop("rows")["file"] == "mine.csv"
    assert own.pop("rows")["file"] == "calibration.npz"
    assert theirs == own


def load_manifest(build):
    export_bundle(build, build / "any.hcb", budget=1e6)
    return load_bundle(build / "any.hcb").manifest


@pytest.mark.parametrize(
    ("flag", "file", "said"),
    [
        pytest.param("--calibration", "valid.npz", "valid.npz holds rows that training has seen", id="judged-rows"),
        pytest.param("--calibration", "train.npz", "train.npz holds rows that training has seen", id="training-rows"),
        pytest.param("--hpc", "hpc.onnx", "--hpc requires --calibration", id="an-hpc-without-rows"),
    ],
)
def test_files_that_cannot_show_a_promise_are_refused(build, tmp_path, flag, file, said):
    with pytest.raises(InputError, match=said):
        run(export, build, "--risk", 0.2, "--out", tmp_path / "m.hcb", flag, build / file)


def test_a_build_without_calibration_rows_says_how_to_give_some(build, tmp_path):
    (build / "calibration.npz").unlink()
    with pytest.raises(InputError, match=r"no calibration.npz.*--calibration"):
        run(export, build, "--risk", 0.2, "--out", tmp_path / "m.hcb")
    assert not (tmp_path / "m.hcb").exists()


@pytest.mark.parametrize("flag", [["--delta", "0.1"], ["--max-forward", "0.1"], ["--excess"], ["--calibration", "x"]])
def test_terms_without_a_risk_are_refused(build, tmp_path, flag):
    with pytest.raises(InputError, match=f"{flag[0]} requires --risk"):
        run(export, build, "--budget", 20, "--out", tmp_path / "m.hcb", *flag)


def test_another_hpc_than_the_builds_does_not_answer(build, tmp_path):
    """Rows of the build hold answers, but who is named must be the build's f0."""
    argv = (export, build, "--risk", 0.2, "--calibration", build / "test.npz", "--out", tmp_path / "m.hcb")
    with pytest.raises(InputError, match=r"other.onnx does not exist"):
        run(*argv, "--hpc", tmp_path / "other.onnx")
    assert not (tmp_path / "m.hcb").exists()


@pytest.fixture(scope="module")
def promised(shared_build, tmp_path_factory):
    out = tmp_path_factory.mktemp("promised") / "m.hcb"
    export_bundle(shared_build, out, terms=RiskTerms(0.2, 0.1))
    return unpack_bundle(out.read_bytes())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: 7, id="a-number"),
        pytest.param(lambda c: None, id="null"),
        pytest.param(lambda c: [c], id="a-list"),
        pytest.param(lambda c: {}, id="empty"),
        pytest.param(lambda c: {**c, "risk": "\x1b[31m0"}, id="text-for-a-share"),
        pytest.param(lambda c: {**c, "risk": 2}, id="a-share-of-two"),
        pytest.param(lambda c: {**c, "of": ["error"]}, id="of-a-list"),
        pytest.param(lambda c: {**c, "rows": 3}, id="rows-that-are-none"),
        pytest.param(lambda c: {**c, "rows": {**c["rows"], "sha256": 5}}, id="a-hash-that-is-none"),
        pytest.param(lambda c: {**c, "rows": {**c["rows"], "n": 10**400}}, id="too-many-rows"),
        pytest.param(lambda c: {**c, "counts": {**c["counts"], "errors": 10**6}}, id="more-errors-than-answers"),
        pytest.param(lambda c: {**c, "counts": {**c["counts"], "local": True}}, id="true-answers"),
    ],
)
def test_a_promise_of_another_shape_is_printed_as_the_claim_it_is(promised, tmp_path, capsys, change):
    out, bundle = tmp_path / "m.hcb", promised
    claims = {**bundle.manifest["claims"], "promise": change(bundle.manifest["claims"]["promise"])}
    out.write_bytes(pack_bundle(replace(bundle, manifest={**bundle.manifest, "claims": claims})))
    capsys.readouterr()
    assert run(inspect, out) == 0
    text = capsys.readouterr().out
    assert "claims      promise: " in text
    assert "\n  promise " not in text
    assert text.replace("\n", "").isprintable()


def test_a_file_name_cannot_write_to_the_terminal():
    counts = {"local": 9, "errors": 0, "worse": 0, "better": 0}
    claim = {"of": "error", "risk": 0.1, "delta": 0.1, "max_forward": 0.1, "counts": counts}
    said = say_promise({**claim, "rows": {"file": "\x1b[2J\n", "sha256": "0" * 64, "n": 10}})
    assert said is not None
    assert said.isprintable()


# ---------------------------------------------------------------- many draws

DRAWS = 200
MOST = int(stats.binom.ppf(0.999, DRAWS, 0.05))  # a promise that fails one time in twenty fails oftener once in 1,000


@pytest.fixture(scope="module")
def gate():
    return gates()


@pytest.mark.parametrize(
    ("terms", "n"),
    [
        pytest.param(RiskTerms(0.05), 500, id="error"),
        pytest.param(RiskTerms(0.02, is_excess=True), 1000, id="excess"),
        pytest.param(RiskTerms(0.05, max_forward=0.75), 800, id="forward-rate"),
    ],
)
def test_the_promise_holds_as_often_as_it_says_and_the_naive_rule_does_not(gate, terms, n):
    found = simulate(gate, terms, n, DRAWS)
    assert found["promise"]["broken"] <= MOST < found["naive"]["broken"]
    assert found["promise"]["picked"] > DRAWS // 2  # it is no promise that is never made


def test_where_a_machines_cases_are_alike_the_promise_holds_if_machines_are_counted_and_not_if_rows_are():
    population, terms = machines(), RiskTerms(0.1)
    found = simulate(population, terms, 200 * N_ALIKE, 60, N_ALIKE, is_grouped=True)
    assert found["promise"]["broken"] <= stats.binom.ppf(0.999, 60, 0.05)
    assert found["promise"]["picked"] > 30
    as_rows = simulate(population, terms, 200 * N_ALIKE, 60, N_ALIKE)
    assert as_rows["promise"]["broken"] > 12


@pytest.mark.parametrize("is_excess", [False, True])
def test_figures_that_flatter_every_policy_do_not_break_the_promise(is_excess):
    found = simulate(flattered(0.05), RiskTerms(0.05, is_excess=is_excess), 400, DRAWS)
    assert found["promise"]["broken"] <= MOST < found["naive"]["broken"]
