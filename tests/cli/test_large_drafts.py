# SPDX-License-Identifier: Apache-2.0
"""A policy that is too large for a bundle does not end a training: it is left out, and that is said."""

from __future__ import annotations

import json

import pytest

from hardcase.cli import main
from hardcase.training import runs
from tests.cli.test_constant_answers import rare_faults


def test_a_draft_that_is_too_large_is_left_out(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    toml, words = rare_faults(tmp_path), ["--no-baselines", "--jobs", "1"]
    assert main(["train", str(toml), "--out", str(tmp_path / "all"), *words, "--quiet"]) == 0
    monkeypatch.setattr(runs, "MAX_DRAFT_BYTES", 2000)
    assert main(["train", str(toml), "--out", str(tmp_path / "small"), *words]) == 0
    assert "policies that are too large for a device; try size" in capsys.readouterr().err
    n_all, n_small = (
        len(json.loads((tmp_path / name / "front.json").read_text())["points"]) for name in ("all", "small")
    )
    assert 1 <= n_small < n_all
