# SPDX-License-Identifier: Apache-2.0
"""``hardcase evaluate`` and ``inspect`` of joint bundles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.model import decide_floats
from tests.helpers.export.joint_models import small_chain, small_items

MODEL = small_chain()
ITEMS, _ = small_items(40)
TRUTH = [decide_floats(MODEL, item).labels for item in ITEMS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    export_chain(MODEL, ITEMS, ITEMS, TRUTH, name="codes", unit="ms", max_parts=6, out=folder / "codes.hcb")
    names = ["item", "label", *MODEL.cheap.features, *MODEL.dear.features]
    rows = [names]
    for k, (item, labels) in enumerate(zip(ITEMS, TRUTH, strict=True)):
        rows += [[str(k), "abcd"[y], *map(repr, row)] for y, row in zip(labels, item.tolist(), strict=True)]
    rows += [["long", "a", *rows[1][2:]]] * 7
    (folder / "items.csv").write_text("\n".join(",".join(row) for row in rows))
    return folder


def test_evaluate_measures_parts_and_items(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", str(folder / "codes.hcb"), str(folder / "items.csv"), "--json", "--each-dead"]
    assert main(command) == 0
    r = json.loads(capsys.readouterr().out)
    bought = [decide_floats(MODEL, item).bought for item in ITEMS]
    n = sum(map(len, ITEMS))
    assert (r["items"], r["parts"], r["refused"]) == (40, n, 1)
    assert r["right"] > 0.97
    assert r["right_95"][0] <= r["right"] <= r["right_95"][1]
    assert r["bought"]["hog"] == pytest.approx(np.concatenate(bought).mean(), abs=0.02)
    assert r["cost"] == pytest.approx((n + 4 * r["bought"]["hog"] * n) / 40)
    assert r["dead"]["pixels"]["right"] < r["dead"]["hog"]["right"] < r["right"]
    assert main(command[:3]) == 0
    assert "1 items were refused; why the first: an item has 7 parts; this bundle" in capsys.readouterr().out


def test_labels_that_are_numbers_are_compared_by_their_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_chain()
    object.__setattr__(model, "labels", (0, 1, 2, 3))
    export_chain(model, ITEMS, ITEMS, TRUTH, name="codes", unit="ms", max_parts=6, out=tmp_path / "codes.hcb")
    texts, found = ["false", "1.0", "2", "3"], []
    for names in (["0", "1", "2", "3"], texts):
        rows = [["item", "label", *model.cheap.features, *model.dear.features]]
        for k, (item, labels) in enumerate(zip(ITEMS, TRUTH, strict=True)):
            rows += [[str(k), names[y], *map(repr, row)] for y, row in zip(labels, item.tolist(), strict=True)]
        (tmp_path / "items.csv").write_text("\n".join(",".join(row) for row in rows))
        assert main(["evaluate", str(tmp_path / "codes.hcb"), str(tmp_path / "items.csv"), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["right"] > 0.97


def test_a_budget_holds_for_the_whole_item(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(folder / "codes.hcb"), str(folder / "items.csv"), "--json", "--budget", "6"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"] <= 6


def test_inspect_says_what_was_proved_of_items(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder / "codes.hcb"), "--svg", str(folder / "part.svg")]) == 0
    out = capsys.readouterr().out
    assert "1 to 6 parts, one-shot" in out
    assert "costs at most 30 ms" in out
    assert re.search(r" operations, 1 rounds and \d+ bytes of memory$", out, re.MULTILINE)
    assert "inner sensors decoder" in out
    assert (folder / "part.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "codes.hcb", "items.csv", "--hpc", "x.onnx"], "measured without the cloud"),
        (["evaluate", "codes.hcb", "plain.csv"], "has no column 'label'"),
        (["evaluate", "codes.hcb", "broken.csv"], "has a row with more or fewer cells than its header"),
        (["evaluate", "codes.hcb", "dear.csv"], "no item that this bundle decides; budget -1"),
        (["evaluate", "codes.hcb", "-"], "cannot be read twice, for readings and for labels"),
        (["inspect", "codes.hcb", "--svg", "x.svg", "--rows", "items.csv"], "draws rows of one part"),
    ],
)
def test_what_joint_bundles_do_not_have_is_one_line(
    folder: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    (folder / "plain.csv").write_text("item\n1\n")
    header, row = (folder / "items.csv").read_text().splitlines()[:2]
    (folder / "broken.csv").write_text(f"{header}\n{row}\n0,broken\n")
    (folder / "dear.csv").write_text(f"{header},budget\n{row},-1\n")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
