# SPDX-License-Identifier: Apache-2.0
"""The loop closes: the world moves, a person labels, and the bundle of a retraining is right by the truth on devices.

``benchmarks/flywheel.py`` does the same on real tables.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.program.window import WINDOW_FEATURES, window_features
from tests.helpers.cloud.flywheel import Rows, flywheel

N_SAMPLES = 8
CONFIG = """\
[data]
file = "first.npz"
target = "state"
[cost.uplink]
per_request = 30
[hpc]
estimator = "ExtraTreesClassifier"
params = {n_estimators = 30}
[policy]
methods = ["cascade"]
[[sensor]]
name = "near"
features = ["near.*"]
cost = 1
[[sensor]]
name = "far"
features = ["far.*"]
cost = 20
"""


def made(n: int, seed: int, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """Windows of both sensors, (n, 2, N_SAMPLES), and whether the plant was hot; ``moved`` is added to all samples."""
    rng = np.random.default_rng(seed)
    hot = rng.random(n) < 0.5
    noise = rng.normal(size=(n, 2, N_SAMPLES)) * np.array([1.0, 0.3])[:, None]
    return np.round((hot * 2.0 - 1)[:, None, None] + moved + noise, 3), hot


def later(n: int, seed: int, moved: float) -> Rows:
    """Windows of ``made`` as rows that devices read."""
    X, hot = made(n, seed, moved)
    names = ("near", "far")
    of = np.array([[window_features(window) for window in row] for row in X.tolist()])
    return Rows(
        ",".join(f"{name}[{k}]" for name in names for k in range(N_SAMPLES)),
        [",".join(f"{v:.3f}" for v in row.ravel()) for row in X],
        {f"{name}.{f}": of[:, s, k] for s, name in enumerate(names) for k, f in enumerate(WINDOW_FEATURES)},
        [str(int(h)) for h in hot],
    )


def right(decisions: list[dict[str, object]], rows: Rows) -> float:
    return sum(str(d["label"]) == y for d, y in zip(decisions, rows.truth, strict=True)) / len(rows)


def test_people_label_what_came_back_and_devices_then_run_a_bundle_that_is_right(
    tmp_path: Path, brief_effort: None
) -> None:
    X, hot = made(300, 0, 0.0)
    np.savez(
        tmp_path / "first.npz", X=X, sensor_names=["near", "far"], Y=hot[:, None].astype(int), target_names=["state"]
    )
    config, build, bundle = tmp_path / "hardcase.toml", tmp_path / "build", tmp_path / "model.hcb"
    config.write_text(CONFIG)
    assert main(["train", str(config), "--out", str(build), "--effort", "quick", "--no-baselines", "--quiet"]) == 0
    assert main(["export", str(build), "--monitors", "--out", str(bundle)]) == 0
    rows, fresh = later(480, 1, 1.5), later(150, 2, 1.5)
    with flywheel(tmp_path, bundle, build / "hpc.onnx") as loop:
        assert right(loop.meet(rows, np.arange(len(rows)) % 3, interval_s=0.005), rows) < 0.7
        came = loop.in_store()
        assert came["audit"] + came["case"] <= len(rows)
        labelled = loop.people_label(rows)
        assert len(labelled) > 200
        for k, device in enumerate(loop.devices):
            loop.start(device, rows.some(np.arange(k, len(rows), 3)), interval_s=0.05, times=50)
        ran = loop.retrain(config, tmp_path / "next", "--effort", "quick", "--no-baselines", here=True)
        assert ran.status == 0, ran.err
        (serving,) = (each for each in ran.objects if each.get("event") == "serving")
        assert "agreement" not in serving  # with an f0 that is wrong, which would never be certain
        new = tmp_path / "next" / "model.hcb"
        for device in loop.devices:
            device.stop()
            slots = device.slots()
            assert slots[f"slot_{slots['current']}"] == f"good {sha256(new.read_bytes()).hexdigest()}", device.said
        truth = right(loop.meet(fresh, np.arange(len(fresh)) % 3, interval_s=0.005), fresh)
    assert truth >= 0.95
    said = ran.objects[0]
    assert said["by_person"] >= len(labelled)
    assert abs(said["new"]["right"] - truth) < 0.1
    old, now = load_bundle(bundle).manifest, load_bundle(new).manifest
    assert (now.windows, now.name) == (old.windows, old.name)
    assert now.monitors is not None
