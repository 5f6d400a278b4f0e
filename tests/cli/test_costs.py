# SPDX-License-Identifier: Apache-2.0
"""hardcase costs: polynomials from above, of least excess, in whole micro-units; and bad files in one line."""

from __future__ import annotations

import json
import random
import tomllib
from itertools import product
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase.verbs.costs.fit import fit
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import evaluate_polynomial
from hardcase_train.settings.toml import read_config

SIZES = (2, 3, 4, 6, 8, 12, 16)


def exactly(*coefficients: float) -> dict[int, list[float]]:
    return {s: [sum(c * s**k for k, c in enumerate(coefficients))] * 3 for s in SIZES}


@pytest.mark.parametrize("coefficients", [(0.5,), (0.1, 0.02), (0.1, 0.0, 0.003), (0.0, 0.25), (0.05, 0.01, 0.001)])
def test_times_that_are_a_polynomial_are_found_to_the_micro_unit(coefficients: tuple[float, ...]) -> None:
    found = fit(exactly(*coefficients), 0.5)
    padded = [*coefficients, 0.0, 0.0][: len(found.micro)]
    assert found.micro == pytest.approx([c * 1e6 for c in padded], abs=2)
    assert 0 <= found.largest_excess < 1e-3
    assert (found.step, found.spread) == (1, 1.0)


def test_no_polynomial_of_the_grid_lies_above_the_times_with_less_excess() -> None:
    rng = random.Random(19)
    for _ in range(5):
        times = {s: [rng.uniform(0.5, 1.5) * (1 + 0.1 * s)] for s in SIZES}
        found = fit(times, 0.5)
        assert all(evaluate_polynomial(found.micro, s) >= 1e6 * times[s][0] - 1e-3 for s in SIZES)
        assert min(found.micro) >= 0
        steps = [k / 8 for k in range(0, 33)]
        for c0, c1, c2 in product(steps, [s / 8 for s in steps], (0.0, 0.005, 0.01)):
            p = {s: c0 + c1 * s + c2 * s * s for s in SIZES}
            if all(p[s] >= times[s][0] for s in SIZES):
                excess = sum(p[s] / times[s][0] - 1 for s in SIZES) / len(SIZES)
                assert excess >= found.mean_excess - 1e-4


def test_the_quantile_says_which_times_a_cost_does_not_fall_below() -> None:
    times = {4: [1.0, 2.0, 3.0, 4.0]}
    assert [fit(times, q).cost for q in (0.25, 0.5, 1.0)] == [[1.0], [2.0], [4.0]]
    assert fit(times, 0.5, more=0.25).cost == [2.25]
    assert fit(times, 0.5).spread == 2.0


def test_pixels_are_too_fine_for_micro_units_and_their_side_is_not() -> None:
    pixels = {s * s: [0.02 + 3e-8 * s**4] for s in (24, 32, 48, 96)}
    found = fit(pixels, 0.5)
    assert found.step == 32, "a micro-unit of the square of 9,216 pixels is 85 ms"
    coarse = fit({-(-s // found.step): t for s, t in pixels.items()}, 0.5)
    assert coarse.largest_excess < 0.2
    assert fit({s: [0.02 + 3e-5 * s**2] for s in (24, 32, 48, 96)}, 0.5).step == 1


def test_times_that_are_too_short_for_micro_units_get_no_step_of_sizes() -> None:
    assert fit({5: [4.5e-6], 9: [4.5e-6]}, 0.5).step == 0
    assert fit({5: [4.5e-3], 9: [4.5e-3]}, 0.5).step == 1


@pytest.mark.parametrize("times", [{1: 1e9}, {1: 1e-6, 1000: 1e9}, {1: 1e9, 2: 1e-6}, {3: 1e-3, 4: 1e7, 9: 2.0}])
def test_no_range_of_times_is_too_wide_and_none_is_above_its_cost(times: dict[int, float]) -> None:
    found = fit({s: [t] for s, t in times.items()}, 0.5)
    for s, t in times.items():
        assert evaluate_polynomial(found.micro, s) >= round(t * 1e6)


def line(**more: object) -> str:
    return json.dumps({"sensor": "a", "size": 4, "ms": 1.5, **more}) + "\n"


def test_the_command_prints_lines_of_a_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.jsonl"
    own = json.dumps({"readings": 2, "size": 4, "ms": 0.5}) + "\n"
    file.write_text(line() * 3 + line(size=8, ms=2.5) * 3 + own)
    assert main(["costs", str(file), "--degree", "1"]) == 0
    out = capsys.readouterr().out
    assert "the decision itself takes 0.25 ms a reading" in out
    assert 'name = "a"\ncost = [0.75, 0.25]' in out
    assert "2 sizes from 4 to 8: excess 0.0% in the mean, 0.0% at most; p90 is 1.00 times the median" in out
    assert main(["costs", str(file), "--json", "--degree", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["sensors"]["a"]["cost"] == [0.75, 0.25]


def test_the_lines_are_toml_whatever_the_sensors_name_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\U0001f98a\x7f\x9b2J"
    (tmp_path / "times.jsonl").write_text(line(sensor=name) * 3 + line(sensor=name, size=8) * 3)
    assert main(["costs", str(tmp_path / "times.jsonl"), "--degree", "1"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["sensor"][0]["name"] == name


def test_the_command_says_that_no_step_helps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "times.jsonl").write_text(line(ms=4.5e-6))
    assert main(["costs", str(tmp_path / "times.jsonl")]) == 0
    assert "adds over 1 % with coarser sizes too: the times are short" in capsys.readouterr().out


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", "3", '"a"', "null", line(size=0), line(size=2.5), line(size=True), line(ms=-1), line(ms=1e400),
        line(ms="1"), line(sensor=""), line(sensor=3), line(sensor="a" * 201), '{"sensor": "a", "size": 4}', "[" * 5000,
        '{"readings": 0, "size": 4, "ms": 1}', "\xff\xfe", line(ms=10**400),
        json.dumps({"readings": 10**400, "size": 4, "ms": 0.5}),
    ],
)  # fmt: skip
def test_a_line_that_is_no_time_is_refused_in_one_line(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "times.jsonl"
    file.write_bytes(line().encode() + bad.encode("latin-1"))
    assert main(["costs", str(file)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{file}, line 2: this is no time of hardcase-edge measure" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quantile", "0"], "--quantile is 0; use more than 0, up to 1"),
        (["--quantile", "1.5"], "--quantile is 1.5"),
        (["--degree", "8"], "--degree is 8; use 0 to 7"),
    ],
)
def test_a_wrong_word_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "times.jsonl").write_text(line())
    assert main(["costs", str(tmp_path / "times.jsonl"), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cost", "is_refused"), [("1.5", False), ("[0.5, 0.25]", False), ("1.4", True), ("[0, 0.3]", True)]
)
def test_a_declared_cost_below_the_measured_times_is_refused(
    cost: str, is_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "times.jsonl").write_text(line() * 2)
    (tmp_path / "hardcase.toml").write_text(
        f'[data]\nfile = "d.csv"\ntarget = "y"\nitem_size = "s"\n[cost]\nclock = true\n'
        f'[cost.uplink]\nper_request = 40\n[[sensor]]\nname = "a"\ncost = {cost}\n'
    )
    status = main(["costs", str(tmp_path / "times.jsonl"), "--check", str(tmp_path / "hardcase.toml")])
    assert status == 2 * is_refused
    assert ("ms at size 4, but 1.5 ms were measured; state more" in capsys.readouterr().err) == is_refused


def test_a_declared_cost_covers_the_decisions_own_time_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = json.dumps({"readings": 2, "size": 4, "ms": 0.5}) + "\n"
    (tmp_path / "times.jsonl").write_text(line() + own)
    toml = '[data]\nfile = "d.csv"\ntarget = "y"\n[cost]\nunit = "ms"\n[[sensor]]\nname = "a"\ncost = '
    for cost, status in (("1.75", 0), ("1.7", 2)):
        (tmp_path / "hardcase.toml").write_text(f"{toml}{cost}\n")
        assert main(["costs", str(tmp_path / "times.jsonl"), "--check", str(tmp_path / "hardcase.toml")]) == status
    assert "is 1.7 ms at size 4, but 1.75 ms were measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("default", "drop", "is_refused"),
    [("1.4", "[]", True), ("1.5", "[]", False), ("0", '["a"]', False), ("0", '["b*"]', True)],
)
def test_a_sensor_of_the_default_cost_is_checked_too(
    default: str, drop: str, is_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "times.jsonl").write_text(line())
    (tmp_path / "hardcase.toml").write_text(
        f'[data]\nfile = "d.csv"\ntarget = "y"\ndrop = {drop}\n[cost]\nunit = "ms"\ndefault_sensor = {default}\n'
    )
    status = main(["costs", str(tmp_path / "times.jsonl"), "--check", str(tmp_path / "hardcase.toml")])
    assert status == 2 * is_refused
    assert ("the cost of sensor 'a' is " in capsys.readouterr().err) == is_refused


def test_costs_in_another_unit_are_not_compared_with_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "times.jsonl").write_text(line())
    (tmp_path / "hardcase.toml").write_text('[data]\nfile = "d.csv"\ntarget = "y"\n[cost]\nunit = "mJ"\n')
    assert main(["costs", str(tmp_path / "times.jsonl"), "--check", str(tmp_path / "hardcase.toml")]) == 2
    assert "counts costs in 'mJ', but times are in ms" in capsys.readouterr().err


def test_by_the_clock_a_request_has_a_declared_round_trip(tmp_path: Path) -> None:
    (tmp_path / "hardcase.toml").write_text('[data]\nfile = "d.csv"\ntarget = "y"\n[cost]\nclock = true\n')
    with pytest.raises(InputError, match=r"a request costs its round trip.* state in \[cost.uplink\] per_request"):
        read_config(tmp_path / "hardcase.toml")


def test_a_clock_counts_in_milliseconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "times.jsonl").write_text(line())
    (tmp_path / "hardcase.toml").write_text('[data]\nfile = "d.csv"\ntarget = "y"\n[cost]\nunit = "mJ"\nclock = true\n')
    assert main(["costs", str(tmp_path / "times.jsonl"), "--check", str(tmp_path / "hardcase.toml")]) == 2
    assert "the clock counts in ms, but the unit of costs is 'mJ'; change one" in capsys.readouterr().err
