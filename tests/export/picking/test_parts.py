# SPDX-License-Identifier: Apache-2.0
"""A promise of each class or of each value of a column: kept for all parts at once, and small parts are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from hardcase.verbs import export, inspect
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.session.session import CLOUD
from hardcase_export.drafts.front import Point
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions
from hardcase_export.picking.promise_words import say_parts, say_promise
from hardcase_export.picking.risk_choice import RiskTerms, choose, find, terms_in
from hardcase_export.picking.risk_test import Counts, ValidationRates, p_error, rows_needed
from tests.export.test_bundle import run, write_csv
from tests.helpers.export.builds import make_build, save_rows

RISK, N = 0.1, 300
SHARES = np.array([0.5, 0.3, 0.2])  # of the classes "a", "b" and "c"
RATES = np.array([  # of errors of each policy, by class; of those from the second on, some class breaks the promise
    [0.02, 0.03, 0.02], [0.02, 0.03, 0.11], [0.03, 0.11, 0.11], [0.01, 0.01, 0.2], [0.11, 0.02, 0.02],
])  # fmt: skip


class Drawn:
    """Held-out rows drawn anew; the policies' errors on them hang together."""

    name, rows, groups = "drawn.npz", N, 0

    def __init__(self, rng: np.random.Generator, rates: np.ndarray = RATES) -> None:
        self._of, self._hard, self._rates = rng.choice(3, N, p=SHARES), rng.random(N), rates

    def can_forward(self, point: Point) -> bool:
        return False

    def counts(self, point: Point) -> Counts:
        wrong = self._hard < self._rates[point.params["k"]][self._of]
        parts = [(name, self._of == k) for k, name in enumerate("abc")]
        of = tuple((name, Counts(N, int(is_in.sum()), *[int((is_in & wrong).sum())] * 2, 0)) for name, is_in in parts)
        return Counts(N, N, int(wrong.sum()), int(wrong.sum()), 0, parts=of)

    def expected(self, point: Point) -> dict[str, float]:
        return dict(zip("abc", (N * SHARES).tolist(), strict=True))

    def judged(self, point: Point) -> ValidationRates:
        raise AssertionError("classes have their rates in the front")


def point(k: int, cost: float, error: float) -> Point:
    figures = Judged(1 - error, cost, 0.0, 0.0, 0.0, error, error, 0.0)
    return Point("invented", {"k": k}, figures, figures, f"policy-{k}")


POINTS = [point(k, 10 - k, float(SHARES @ rates)) for k, rates in enumerate(RATES)]


def test_a_promise_of_each_class_breaks_no_oftener_than_delta_in_a_thousand_draws_and_one_of_all_does():
    """Four of five policies break it for some class, and all keep it on the mean over classes."""
    rng, broken, picked, of_all = np.random.default_rng(0), 0, 0, 0
    for _ in range(1_000):
        trial = Drawn(rng)
        found = find(POINTS, RiskTerms(RISK, per="class"), trial)
        picked += found is not None
        broken += found is not None and RATES[found[0].params["k"]].max() > RISK
        plain = find(POINTS, RiskTerms(RISK), trial)
        of_all += plain is not None and RATES[plain[0].params["k"]].max() > RISK
    assert broken <= stats.binom.ppf(0.999, 1_000, 0.05)
    assert picked > 300  # it is no promise that is never made
    assert of_all > 500


def test_no_correction_for_the_number_of_parts_is_needed_where_all_are_at_the_bound():
    """The hardest case for a union of hypotheses: each class is wrong a little oftener than promised."""
    rates, rng = np.full((1, 3), RISK + 1e-9), np.random.default_rng(1)
    found = [find(POINTS[:1], RiskTerms(RISK, per="class"), Drawn(rng, rates)) for _ in range(1_000)]
    assert sum(x is not None for x in found) <= stats.binom.ppf(0.999, 1_000, 0.05)


def test_the_error_names_the_part_that_fails_and_a_risk_that_would_have_passed():
    bad = np.array([[0.0, 0.0, 0.5]])
    with pytest.raises(InputError, match=r'of "c": \d+, \d+ wrong\); --risk 0\.\d+ would have passed'):
        choose(POINTS[:1], RiskTerms(RISK, per="class"), Drawn(np.random.default_rng(2), bad))
    with pytest.raises(InputError, match=r'no part has the 299 draws that each needs \(the largest, "a", has 150\)'):
        choose(POINTS[:1], RiskTerms(0.01, per="class"), Drawn(np.random.default_rng(2), np.zeros((1, 3))))


# ---------------------------------------------------------------- the bundle


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    build = make_build(tmp_path_factory.mktemp("parts") / "build")
    save_rows(build / "calibration.npz", build / "hpc.onnx", 400, 7)
    return build


@pytest.mark.parametrize("per", ["class", "truth"])
def test_a_bundle_carries_the_promise_of_each_class(build, tmp_path, capsys, per):
    out = tmp_path / "m.hcb"
    assert run(export, build, "--risk", 0.35, "--risk-per", per, "--out", out, "--json") == 0
    capsys.readouterr()
    loaded = load_bundle(out)
    claim = loaded.manifest.claims["promise"]
    rows = read_rows(build / "calibration.npz", loaded.manifest)
    made = decisions(loaded.bundle.program, rows.X, rows.hpc, rows.confidence)
    local = [(d.result, y) for d, y in zip(made, rows.y.tolist(), strict=True) if d.route != CLOUD]
    assert (claim["per"]["by"], claim["per"]["needs"]) == (per, rows_needed(0.35, 0.05))
    for part in claim["per"]["parts"]:
        k = loaded.manifest.classes.index(part["name"])
        of = [a != b for a, b in local if (a if per == "class" else b) == k]
        assert (part["local"], part["errors"]) == (len(of), sum(of))
        assert part["p"] == p_error(Counts(400, len(of), sum(of), 0, 0), 0.35) <= 0.05
    assert len(claim["per"]["parts"]) + len(claim["per"]["small"]) == 3
    assert run(inspect, out) == 0
    text = capsys.readouterr().out
    word = "answered as" if per == "class" else "truly"
    assert text.count(f'{word} "') >= len(claim["per"]["parts"])
    assert terms_in(claim) == RiskTerms(0.35, per=per)


def test_a_column_of_a_table_or_a_feature_divides_the_rows_and_small_parts_are_named(build, tmp_path, capsys):
    export_bundle_at = tmp_path / "m.hcb"
    assert run(export, build, "--budget", 1e6, "--out", export_bundle_at) == 0
    rows = read_rows(build / "calibration.npz", load_bundle(export_bundle_at).manifest)
    write_csv(tmp_path / "mine.csv", rows)
    head, *lines = (tmp_path / "mine.csv").read_text().splitlines()
    sites = ["hill" if k % 40 == 0 else "lake" if k % 3 else "moor" for k in range(len(lines))]
    table = "\n".join([f"{head},site", *(f"{line},{site}" for line, site in zip(lines, sites, strict=True))])
    (tmp_path / "mine.csv").write_text(table + "\n")
    argv = (export, build, "--risk", 0.2, "--risk-per", "site", "--out", export_bundle_at)
    assert run(*argv, "--calibration", tmp_path / "mine.csv") == 0
    text = capsys.readouterr().out
    assert '"site" is "lake": at most 0.2' in text
    assert 'not promised, as each needs 14 answers: "site" is "hill" (10 answers)' in text
    with pytest.raises(InputError, match=r"calibration.npz has no column 'site'"):
        run(*argv)
    with pytest.raises(InputError, match="'x0' has 400 different values; a promise is made for 64 parts at most"):
        run(export, build, "--risk", 0.2, "--risk-per", "x0", "--out", export_bundle_at)


def test_a_part_of_which_no_case_is_answered_here_is_named_too(build, tmp_path, capsys):
    out, mine = tmp_path / "m.hcb", tmp_path / "mine.csv"
    argv = (export, build, "--risk", 0.3, "--risk-per", "site", "--method", "cascade", "--out", out)
    assert run(export, build, "--budget", 1e6, "--method", "cascade", "--no-mix", "--out", out) == 0
    loaded = load_bundle(out)
    rows = read_rows(build / "calibration.npz", loaded.manifest)
    made = decisions(loaded.bundle.program, rows.X, rows.hpc, rows.confidence)
    sent = [k for k, d in enumerate(made) if d.route == CLOUD][:5]
    assert len(sent) == 5
    write_csv(mine, rows)
    head, *lines = mine.read_text().splitlines()
    table = [f"{line},{'sea' if k in sent else 'lake'}" for k, line in enumerate(lines)]
    mine.write_text("\n".join([f"{head},site", *table]) + "\n")
    capsys.readouterr()
    assert run(*argv, "--calibration", mine) == 0
    assert 'answers: "site" is "sea" (0 answers)' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--budget", "20", "--risk-per", "class"], "--risk-per requires --risk"),
        (["--budget", "20", "--risk-tolerance", "0.5"], "--risk-tolerance requires --risk"),
        (["--risk", "0.2", "--risk-tolerance", "1"], "--risk-tolerance is for values, but this build answers classes"),
    ],
)
def test_terms_without_a_risk_or_for_values_are_refused(build, tmp_path, flags, said):
    with pytest.raises(InputError, match=said):
        run(export, build, "--out", tmp_path / "m.hcb", *flags)


CLAIM = {
    "of": "error", "risk": 0.1, "delta": 0.1, "max_forward": 0.1, "rows": {"file": "f", "sha256": "0" * 64, "n": 20},
    "counts": {"local": 9, "errors": 0, "worse": 0, "better": 0},
    "per": {"by": "class", "needs": 7, "small": [], "parts": [
        {"name": "a", "p": 0.1, "local": 9, "errors": 0, "worse": 0, "better": 0}
    ]},
}  # fmt: skip


@pytest.mark.parametrize(
    "per", [3, {}, {**CLAIM["per"], "by": 3}, {**CLAIM["per"], "parts": [{"name": 3}]}, {**CLAIM["per"], "needs": -1,
            "small": CLAIM["per"]["parts"]}, {**CLAIM["per"], "parts": CLAIM["per"]["parts"] * 65}]
)  # fmt: skip
def test_parts_of_another_shape_are_no_promise(per):
    assert say_promise(CLAIM) is not None
    assert say_parts(CLAIM) == ['answered as "a": at most 0.1; of 9 answered, 0 wrong']
    odd = json.loads(json.dumps({**CLAIM, "per": per}))
    assert (say_promise(odd), say_parts(odd)) == (None, [])
    with pytest.raises(InputError, match="the promise of the old bundle is malformed"):
        terms_in(odd)
