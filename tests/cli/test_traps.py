# SPDX-License-Identifier: Apache-2.0
"""No trap in silence: classes that a policy loses, costs that nobody stated, and where every cost is from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import hardcase
from hardcase.api.arguments import check_names
from hardcase.cli import main
from hardcase.measuring.headline import Headline, headline
from hardcase.measuring.picked import gaps_of, placeholder_warning, recall_warnings
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.per_class import FAR, Gap
from hardcase_edge.program.definition import Costs, Sensor, Uplink
from hardcase_export.bundle import constant_refusal
from hardcase_export.drafts.costs import Origins, costs_of, origin_words
from hardcase_train.settings.toml import read_config
from hardcase_train.tasks.target import target_values
from tests.helpers.places import ROOT
from tests.helpers.train.problems import ran, run, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

TRAIN = ("--effort", "quick", "--quiet", "--jobs", "1", "--method", "static", "--no-baselines")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose 10 % faults show in one reading alone, as ``hardcase init`` and ``train`` take it."""
    folder = tmp_path_factory.mktemp("traps")
    rng = np.random.default_rng(0)
    fault = np.arange(1200) % 10 == 0
    wear = np.where(np.arange(1200) % 2 == 0, 1.0, 0.0)  # two common classes, which a cheap reading tells
    write_csv(
        folder / "data.csv",
        {
            "light": (wear + rng.normal(0, 0.05, 1200)).round(3),
            "heat": (4 * fault + rng.normal(size=1200)).round(3),
            "state": np.where(fault, "fault", np.where(wear > 0, "worn", "new")),
        },
    )
    assert main(["init", str(folder / "data.csv"), "--out", str(folder / "hardcase.toml")]) == 0
    text = (folder / "hardcase.toml").read_text().replace("HistGradientBoostingClassifier", "LogisticRegression")
    text = text.replace(
        'features = ["light"]\ncost = 1.0\ncost_origin = "placeholder"',
        'features = ["light"]\ncost = 2.0\ncost_origin = "measured"',
    )
    (folder / "hardcase.toml").write_text(text)
    assert main(["train", str(folder / "hardcase.toml"), "--out", str(folder / "build"), *TRAIN]) == 0
    return folder / "build"


def test_a_class_that_is_lost_is_named_with_a_wish_that_keeps_it(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran(capsys, "export", build, "--max-loss", "0.2", "--out", tmp_path / "m.hcb")
    (line,) = [line for line in said["warnings"] if "WHERE f0 FINDS" in line]
    assert line.startswith("WARNING: THIS POLICY FINDS 0.0% OF 'fault' WHERE f0 FINDS ")
    assert "--risk-per truth" in line
    wish = line.partition("95 %); ")[2].partition(" picks a policy that keeps it")[0].split()
    assert wish[0] in ("--max-loss", "--budget")
    said = ran(capsys, "export", build, *wish, "--out", tmp_path / "kept.hcb")
    assert [line for line in said["warnings"] if "WHERE f0 FINDS" in line] == []
    assert next(c for c in said["classes"] if c["class"] == "fault")["recall"] > 0.8


def test_far_is_decided_by_an_interval_and_not_by_a_few_rows() -> None:
    def beside(losses: list[tuple[float, tuple[float, float]] | None]) -> Any:
        counts = [SimpleNamespace(n=40, right=10) for _ in losses]
        return SimpleNamespace(classes=counts, recall_losses=losses)

    few, far, farther = (0.5, (FAR, 0.9)), (0.3, (FAR + 0.01, 0.5)), (0.6, (0.4, 0.8))
    mixed: Any = SimpleNamespace(valid=SimpleNamespace(gaps=None))  # of which the front says nothing
    gaps = gaps_of(mixed, beside([few, far, None, farther]))
    assert [gap.number for gap in gaps] == [3, 1]
    assert gaps[0] == Gap(3, 40, 0.25, 0.85, 0.4)
    assert gaps_of(mixed, None) == ()
    lines = recall_warnings([Gap(k, 9, 0.1, 0.9, 0.5) for k in range(5)], "abcde", "")
    assert len(lines) == 4
    assert "no cheaper point than f0 is known to keep it" in lines[0]
    assert "2 MORE CLASSES, AMONG THEM 'd', 'e'" in lines[3]


def test_costs_and_their_origins_stand_in_front_report_bundle_and_inspect(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = json.loads((build / "front.json").read_text())["costs"]
    assert costs == {
        "sensors": {"light": "measured", "heat": "placeholder"},
        "uplink": "placeholder", "cloud": "placeholder", "every_sensor": 3.0,
    }  # fmt: skip
    page = (build / "report.html").read_text()
    assert "measured" in page
    assert "RESTS ON PLACEHOLDER COSTS (1 of 2 sensors and the request)" in page
    table = (build / "front.md").read_text()
    assert "RESTS ON PLACEHOLDER COSTS" in table
    (f0,) = {line for line in table.splitlines() if line.startswith("| f0 ")}
    assert f0.endswith("| 100.0 % | 100.0 % | 766.7 % |"), "23 of the 3 that every sensor costs"
    assert run(capsys, "export", build, "--max-loss", "0.2", "--out", tmp_path / "m.hcb")[0] == 0
    claimed = load_bundle(tmp_path / "m.hcb").manifest.claims["costs"]
    assert claimed == {k: costs[k] for k in ("sensors", "uplink", "cloud")}
    assert main(["inspect", str(tmp_path / "m.hcb")]) == 0
    said = capsys.readouterr().out
    assert "  costs from  1 of 2 sensors measured, 1 placeholder; radio placeholder, cloud placeholder\n" in said


def test_the_cut_is_given_against_every_sensor_and_with_other_placeholders(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(capsys, "export", build, "--max-loss", "0.2", "--out", tmp_path / "m.hcb")[1]
    cuts, cost = said["headline"], said["test"]["cost"]
    assert (cuts["f0"], cuts["every"]) == (23.0, 3.0)  # light 2, heat 1, and 10 for each sensor's request
    assert cuts["cut"] == pytest.approx(1 - cost / 23)
    assert cuts["cut_every"] == pytest.approx(1 - cost / 3)
    light = 2.0 * said["test"]["cost"] / cost  # what it buys is light, which was measured: no placeholder of a sensor
    assert cost == pytest.approx(light)
    assert cuts["if_sensors"] == pytest.approx([1 - cost / 22.1, 1 - cost / 32])
    assert cuts["if_request"] == pytest.approx([1 - cost / 5, 1 - cost / 203])
    assert main(["export", str(build), "--max-loss", "0.2", "--out", str(tmp_path / "m.hcb")]) == 0
    out = capsys.readouterr().out
    assert "  cut        91.3% against f0 for every case (23 unit), 33.3% against every sensor (3 unit)\n" in out
    assert "60.0% to 99.0% if a request costs a tenth or ten times as much" in out


def test_the_headline_is_priced_by_the_meter() -> None:
    program = SimpleNamespace(
        sensors=(Sensor((0,), (1_000_000, 500_000)), Sensor((1,), (4_000_000,)), Sensor((2,), (0,))),
        uplink=Uplink(request_bytes=1_000),
        costs=Costs(per_request=8_000_000, per_byte=1_000, cloud_per_request=1_000_000),
    )
    paths = {(2, (0,), 0): 3.0, (4, (0, 1), 1): 1.0}  # 2 units three times; 3 + 4 + 10 units once
    names = ("a", "b", "memory")
    own = headline(program, paths, names, None)
    assert (own.f0, own.every, own.n_sensors) == (16.25, 6.25, 2)
    assert own.cut == pytest.approx(1 - 5.75 / 16.25)
    assert (own.if_sensors, own.if_request, placeholder_warning(own)) == (None, None, None)
    marked = headline(program, paths, names, Origins({"a": "placeholder"}, cloud="placeholder"))
    assert (marked.sensors, marked.request) == (1, True)
    assert marked.if_sensors == pytest.approx(
        (1 - (5.75 + 9 * 2.25) / (16.25 + 9 * 2.25), 1 - (5.75 - 0.9 * 2.25) / (16.25 - 0.9 * 2.25))
    )
    assert marked.if_request == pytest.approx((1 - (5.75 - 0.225) / 15.35, 1 - (5.75 + 2.25) / 25.25))
    assert "(1 of 2 sensors and the request)" in str(placeholder_warning(marked))
    fewer = headline(program, paths, names, Origins(f0=("b",)))
    assert fewer.f0 == 14.0
    costless = SimpleNamespace(sensors=(Sensor((0,), (0,)),), uplink=Uplink(), costs=Costs())
    free = headline(costless, {(1, (0,), 0): 2.0}, ("a",), None)
    assert (free.cut, free.cut_every) == (None, None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "is '3', but a table of origins is expected"),
        ({"sensors": "guessed"}, "sensors is 'guessed', but one of measured, modelled, declared, placeholder"),
        ({"sensors": {"a": 1}}, "sensors is '1'"),
        ({"uplink": ["x"]}, "uplink is"),
        ({"f0": [1]}, "f0 is '[1]', but names of sensors are expected"),
    ],
)
def test_origins_from_outside_are_checked(data: object, said: str) -> None:
    with pytest.raises(InputError) as told:
        costs_of(data, "front.json: costs")
    assert said in str(told.value)


def test_an_origin_that_is_none_is_one_line_of_the_toml(tmp_path: Path) -> None:
    head = '[data]\nfile = "t.csv"\ntarget = "y"\n'
    for text, where in (
        ('[cost]\ncost_origin = "guessed"\n', "[cost] cost_origin"),
        ('[cost.uplink]\ncost_origin = "guessed"\n', "[cost.uplink] cost_origin"),
        ('[[sensor]]\nname = "a"\ncost = 1\ncost_origin = "guessed"\n', "the cost_origin of sensor 'a'"),
    ):
        (tmp_path / "h.toml").write_text(head + text)
        with pytest.raises(InputError) as told:
            read_config(tmp_path / "h.toml")
        assert f"{where} is 'guessed'; use one of measured, modelled, declared, placeholder" in str(told.value)
    (tmp_path / "h.toml").write_text(head + '[cost.cloud]\nper_request = 2\ncost_origin = "modelled"\n')
    config = read_config(tmp_path / "h.toml")
    assert (config.default_origin, config.uplink_origin, config.cloud_origin) == ("declared", "declared", "modelled")


def test_python_says_where_costs_are_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = y[:, None] + rng.normal(size=(300, 2)) * (1.0, 0.3)
    given: dict[str, Any] = {"names": ["a", "b"], "methods": ["static"], "effort": "quick", "forward_cost": 5.0}
    policy = hardcase.train(X, y, cost_origin={"b": "measured", "forward_cost": "modelled"}, **given)
    policy.save(tmp_path / "build")
    costs = json.loads((tmp_path / "build" / "front.json").read_text())["costs"]
    assert (costs["sensors"], costs["uplink"]) == ({"a": "declared", "b": "measured"}, "modelled")
    with pytest.warns(UserWarning, match="RESTS ON PLACEHOLDER COSTS"):
        hardcase.train(X, y, cost_origin="placeholder", **given)
    with pytest.raises(InputError, match="cost_origin is 'guess'; use one of measured"):
        hardcase.train(X, y, cost_origin="guess", **given)
    with pytest.raises(InputError, match="cost_origin names 'c', which is neither a sensor nor a column"):
        hardcase.train(X, y, cost_origin={"c": "measured"}, **given)


class Said(NamedTuple):
    """A message of the program, and what stands before it in a cell of docs/benchmarks/traps.md."""

    after: str
    text: str


def messages() -> Iterator[Said]:
    """Each with the figures of the page, by the functions that make them."""
    gap = Gap(0, 68, 0.0, 0.485, 0.35)
    yield Said("| also: ", recall_warnings([gap], ["cottonwood"], "--budget 1.07 --no-mix")[0])
    answered = SimpleNamespace(paths=[((), (), ())], local=SimpleNamespace(answers=[0]))
    part = SimpleNamespace(y=np.array([0, 1]))
    integers: Any = SimpleNamespace(
        on_valid=answered,
        on_test=answered,
        valid=part,
        test=part,
        manifest=SimpleNamespace(classes=("other", "douglas")),
    )
    yield Said("| status 2, no file: ", constant_refusal(integers))
    cuts = Headline(165.0, 15.0, 0.988, 0.870, 15, 15, True, (0.935, 0.999), (0.935, 0.999))
    yield Said("every sensor (15 unit); ", str(placeholder_warning(cuts)))
    names = [f"s{k}" for k in range(15)]
    origins = Origins(dict.fromkeys(names, "placeholder"), uplink="placeholder", cloud="placeholder")
    yield Said("costs from  ", origin_words(origins, names))
    with pytest.raises(InputError) as told:
        check_names("train", ["group"], ["X", "y", "groups"])
    yield Said("InputError: ", str(told.value))
    table: Any = SimpleNamespace(labels={"cover": np.array(["other"], dtype=object)})
    with pytest.raises(InputError) as told:
        target_values(table, "cover")
    yield Said("unrecognized arguments: --task rank | ", str(told.value))


def test_the_page_of_traps_has_what_the_program_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "benchmarks" / "traps.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["train", "t.toml", "--out", "b", "--max-forwards", "0.1"])
    flag = Said("unrecognized arguments: --max-forwards 0.1 | the same, and: ", capsys.readouterr().err)
    for after, text in (*messages(), flag):
        shown = page.partition(after)[2].partition(" |")[0]
        assert shown
        for piece in shown.split("..."):
            assert piece.strip() in text
