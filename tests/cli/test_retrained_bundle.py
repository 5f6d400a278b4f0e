# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud retrain`` on window sensors: the new bundle runs in the old one's place, and truth decides.

Devices' records are written into a store as they would have come; everything else goes through the command line.
"""

from __future__ import annotations

import csv
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from subprocess import run as run_process
from typing import Any, NamedTuple

import numpy as np
import pytest

from hardcase.cli import main
from hardcase.verbs.retrain.rows import read_rows
from hardcase_cloud.keep.records.cases import case_of
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.program.window import window_features
from hardcase_export.integers.decide import decisions
from tests.helpers.train.problems import run, toml, write_csv

Capture = pytest.CaptureFixture[str]
CLASSES = ("cold", "warm", "hot")
COSTS = (
    '[cost]\nunit = "mJ"\n[[sensor]]\nname = "near"\nfeatures = ["near.*"]\ncost = 1\n[[sensor]]\nname = "far"\n'
    'features = ["far.*"]\ncost = 20\n[cost.uplink]\nper_request = 30\n[policy]\nmethods = ["cascade"]\n'
)
SAMPLES = 8
PARTS = ("train", "valid", "calibration", "test")


class Plant(NamedTuple):
    config: Path
    hpc: Path
    bundle: Path  # asks f0 about some cases; has prices and monitors
    silent: Path  # asks nobody


class Field(NamedTuple):
    """What devices read, and the truth: windows (n, 2, SAMPLES), readings of a request, and classes."""

    windows: np.ndarray
    readings: list[list[float]]
    truth: list[str]


def drawn(n: int, seed: int, moved: float = 0.0, classes: int = 3) -> Field:
    """Sensor near tells a class roughly, and far for certain; in the field both are higher by ``moved``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    mean = np.column_stack([y * 2.0 - 2 + rng.normal(size=n) * 0.6, y * 2.0 - 2 + rng.normal(size=n) * 0.2]) + moved
    windows = np.round(mean[:, :, None] + rng.normal(size=(n, 2, SAMPLES)) * 0.1, 3)
    features = [[x for window in row for x in window_features(window.tolist())] for row in windows]
    return Field(windows, np.array(features).astype(np.float32).astype(float).tolist(), [CLASSES[k] for k in y])


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory, brief_effort: None) -> Plant:
    folder = tmp_path_factory.mktemp("plant")
    field = drawn(300, 0)
    names = {"sensor_names": np.array(["near", "far"]), "y": np.array(field.truth)}
    np.savez(folder / "plant.npz", X=field.windows, **names)
    config, build = toml(folder, COSTS, file="plant.npz"), folder / "build"
    assert main(["train", str(config), "--out", str(build), "--quiet"]) == 0
    bundles = folder / "asks.hcb", folder / "silent.hcb"
    for path, more in zip(bundles, (["cascade", "--prices", "--monitors"], ["static"]), strict=True):
        assert main(["export", str(build), "--max-loss", "0.2", "--out", str(path), "--method", *more]) == 0
    return Plant(config, build / "hpc.onnx", *bundles)


def audits(bundle: Path, field: Field, *, device: str = "d", devices: int = 5, first: int = 1) -> list[Incoming]:
    """Audits of a bundle, whose rows come from these devices in turn."""
    digest = sha256(bundle.read_bytes()).hexdigest()
    return [
        Incoming(f"{device}{k % devices}", 1, k + first, "audit",
                 json.dumps({"bundle": digest, "label": "warm", "readings": readings}), digest, "local", "warm")
        for k, readings in enumerate(field.readings)
    ]  # fmt: skip


def keep(path: Path, records: Sequence[Incoming], secret: str = "5e" * 32) -> str:
    """A store with these records, whose secret is known so that each run deals rows to the same parts."""
    database = Database(path)
    database.write("INSERT INTO secrets VALUES ('parts', ?)", (secret,))
    database.keep(records, 60.0)
    database.close()
    return f"sqlite:{path}"


def label(plant: Plant, store: str, folder: Path, said: Sequence[tuple[Incoming, str]]) -> None:
    """Have a person say these labels of these records."""
    lines = "".join(f"{r.device},{r.boot},{r.sequence},{text}\n" for r, text in said)
    (folder / "labels.csv").write_text(f"device,boot,sequence,label\n{lines}")
    words = ["label", "--store", store, "--bundle", str(plant.bundle), "--labels", str(folder / "labels.csv")]
    assert main(["cloud", *words]) == 0


def label_by_f0(plant: Plant, store: str) -> None:
    words = ["--store", store, "--bundle", str(plant.bundle), "--hpc", str(plant.hpc), "--once"]
    assert main(["cloud", "label", *words]) == 0


def retrain(plant: Plant, store: str, out: Path, *more: object) -> list[object]:
    return ["cloud", "retrain", plant.config, "--store", store, "--bundle", plant.bundle, "--hpc", plant.hpc,
            "--out", out, *more]  # fmt: skip


def table(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "rows.csv").read_text().splitlines()))


def asked(capsys: Capture, *argv: object) -> tuple[int, dict[str, Any], str]:
    """As ``run``, whatever was printed before."""
    capsys.readouterr()
    return run(capsys, *argv)


def right(bundle: Path, field: Field) -> float:
    """The share of these rows that a bundle answers with the truth, without f0."""
    loaded = load_bundle(bundle)
    found = decisions(loaded.machine.program, np.array(field.readings), None)
    return float(np.mean([str(loaded.manifest.classes[int(d.result)]) for d in found] == np.array(field.truth)))


# ---------------------------------------------------------------- in the old one's place


def test_the_new_bundle_has_what_the_old_one_has_and_passes_its_trial_on_a_device(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    field = drawn(500, 1, moved=0.6)
    store = keep(tmp_path / "s.sqlite", (records := audits(plant.bundle, field)))
    label(plant, store, tmp_path, list(zip(records, field.truth, strict=True)))
    out, what = tmp_path / "out", "name unit target classes sensors features windows categories hpc"
    status, said, err = asked(capsys, *retrain(plant, store, out, "--method", "cascade"))
    assert status == 0, err
    old, new = load_bundle(plant.bundle).manifest, load_bundle(out / "model.hcb").manifest
    assert new.windows == {"near": SAMPLES, "far": SAMPLES}
    assert [getattr(new, key) for key in what.split()] == [getattr(old, key) for key in what.split()]
    assert new.monitors is not None
    assert new.prices is not None
    assert "audits" in new.claims
    assert (said["by_person"], said["by_f0"], said["judged_by"]) == (500, 0, "people")
    fresh = drawn(300, 2, moved=0.6)
    columns = [f"{sensor}[{k}]" for sensor in ("near", "far") for k in range(SAMPLES)]
    rows = [",".join(columns), *(",".join(map(str, w.ravel())) for w in fresh.windows[:40])]
    (tmp_path / "r.csv").write_text("\n".join(rows) + "\n")
    folder = Store(tmp_path / "store")
    folder.put(plant.bundle.read_bytes())
    device = ["run", "--store", tmp_path / "store", "--sensors", f"replay:{tmp_path / 'r.csv'}", "--trial-decisions", 3]
    for bundle in (plant.bundle, out / "model.hcb"):
        folder.put(bundle.read_bytes())
        command = [sys.executable, "-m", "hardcase_edge.cli", *map(str, device)]
        ran = run_process(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
    slots = folder.slots()
    assert slots.current
    now = slots[slots.current]
    assert (now.sha256, now.state) == (sha256((out / "model.hcb").read_bytes()).hexdigest(), "good")
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert not any(answer["failed"] for answer in answers)


def test_a_policy_that_asks_nobody_is_retrained_and_compared_without_f0(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    assert load_bundle(plant.silent).manifest.hpc == ""
    field = drawn(500, 3, moved=0.6)
    store = keep(tmp_path / "s.sqlite", (records := audits(plant.silent, field)))
    label(plant, store, tmp_path, list(zip(records, field.truth, strict=True)))
    words = ["--store", store, "--bundle", plant.silent, "--out", tmp_path / "out", "--method", "static"]
    status, said, err = asked(capsys, "cloud", "retrain", plant.config, *words)
    assert status == 0, err
    assert load_bundle(tmp_path / "out" / "model.hcb").manifest.hpc == ""
    assert said["new"]["forward_rate"] == said["old"]["forward_rate"] == 0
    assert said["gain"] > 0.1


def test_a_class_that_did_not_come_back_is_taken_from_the_old_table_or_named_with_its_flag(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    field = drawn(400, 4, classes=2)
    store = keep(tmp_path / "s.sqlite", (records := audits(plant.bundle, field)))
    label(plant, store, tmp_path, list(zip(records, field.truth, strict=True)))
    capsys.readouterr()
    assert main([*map(str, retrain(plant, store, tmp_path / "a", "--with-old", "none"))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no row of class 'hot' came back" in line
    assert "--with-old missing" in line
    assert main([*map(str, retrain(plant, store, tmp_path / "b", "--anyway", "--method", "cascade"))]) == 0
    old = np.load(plant.config.parent / "plant.npz")["y"]
    assert f"{(old == 'hot').sum()} of hot" in capsys.readouterr().out
    assert load_bundle(tmp_path / "b" / "model.hcb").manifest.classes == load_bundle(plant.bundle).manifest.classes
    new = [row for row in table(tmp_path / "b") if row["y"] == "hot"]
    assert {row["hardcase split"] for row in new} == {"train"}
    assert sum(float(row["hardcase weight"]) for row in new) == pytest.approx(10)


def test_the_promise_of_the_old_bundle_is_renewed_on_rows_that_weigh_the_same_or_its_lack_is_told(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    old = tmp_path / "promised.hcb"
    words = ["--risk", "0.1", "--delta", "0.1", "--method", "cascade"]
    assert main(["export", str(plant.hpc.parent), "--out", str(old), *words]) == 0
    ours, model = (
        plant._replace(bundle=old),
        load_bundle(old).manifest.hpc or sha256(plant.hpc.read_bytes()).hexdigest(),
    )
    field, forwarded = drawn(450, 15), drawn(100, 16)
    records = [*audits(old, field)]
    ids = [sha256(b"%d" % k).digest()[:16] for k in range(100)]
    cases = [case_of(f"d{k % 5}", ids[k], model, forwarded.readings[k], 0, 1.0) for k in range(100)]
    store = keep(tmp_path / "s.sqlite", [*records, *cases])
    label(ours, store, tmp_path, list(zip([*records, *cases], field.truth + forwarded.truth, strict=True)))
    words = ["--audited", "50%", "--method", "cascade", "--anyway"]
    status, _, err = asked(capsys, *retrain(ours, store, tmp_path / "out", *words))
    assert status == 0, err
    claims = load_bundle(tmp_path / "out" / "model.hcb").manifest.claims
    assert (claims["promise"]["risk"], claims["promise"]["delta"]) == (0.1, 0.1)
    rows = table(tmp_path / "out")
    weights = {part: {row["hardcase weight"] for row in rows if row["hardcase split"] == part} for part in PARTS}
    assert weights == {"train": {"1.0", "2.0"}, "valid": {"1.0", "2.0"}, "calibration": {"2.0"}, "test": {"2.0"}}
    status, _, err = asked(capsys, *retrain(ours, store, tmp_path / "few", *words, "--rows", "200"))
    assert status == 2
    assert "the promise of the old bundle cannot be renewed: " in err


def test_categories_and_types_are_those_of_the_old_bundle_whatever_a_device_says(
    tmp_path: Path, capsys: Capture, brief_effort: None
) -> None:
    rng = np.random.default_rng(14)
    n, place = 300, rng.choice(["attic", "cellar", "roof"], 300)
    load = rng.integers(0, 50, n)
    y = np.where((load > 25) ^ (place == "roof"), "hot", "cold").tolist()
    write_csv(tmp_path / "data.csv", {"place": place.tolist(), "load": load.tolist(), "y": y})
    policy = '[hpc]\nestimator = "DecisionTreeClassifier"\n[policy]\nmethods = ["static"]\n'
    config, build, old = toml(tmp_path, policy), tmp_path / "build", tmp_path / "old.hcb"
    assert main(["train", str(config), "--out", str(build), "--quiet", "--no-baselines"]) == 0
    assert main(["export", str(build), "--out", str(old), "--method", "hpc"]) == 0
    manifest, digest = load_bundle(old).manifest, sha256(old.read_bytes()).hexdigest()
    code = {text: k for k, text in enumerate(manifest.categories["place"])}
    at = [manifest.features[f] for f in load_bundle(old).machine.program.uplink.features]
    odd = [[0.5, 1e299], [7e9, -0.25]]  # no device of this bundle reads such numbers
    told = [dict(zip(("place", "load"), (code[p], int(x)), strict=True)) for p, x in zip(place, load, strict=True)]
    rows = [[row[name] for name in at] for row in told] + odd
    cases = [case_of(f"d{k % 3}", sha256(b"%d" % k).digest()[:16], manifest.hpc, r, 0, 1.0) for k, r in enumerate(rows)]
    store = keep(tmp_path / "s.sqlite", cases)
    said = [(case, y[k] if k < n else "hot") for k, case in enumerate(cases)]
    plant = Plant(config, build / "hpc.onnx", old, old)
    label(plant, store, tmp_path, said)
    status, values, err = asked(
        capsys, *retrain(plant, store, tmp_path / "out", "--max-loss", "0.1", "--no-baselines", "--anyway")
    )
    assert status == 0, err
    assert (values["rows"], values["trained"]) == (302, True)
    new = load_bundle(tmp_path / "out" / "model.hcb")
    assert (new.manifest.categories, new.manifest.features) == (manifest.categories, manifest.features)
    assert [f.dtype for f in new.machine.program.features] == ["i32", "i32"]
    assert digest != new.bundle.sha256
    assert {row["place"] for row in table(tmp_path / "out")} <= {"", *code}


# ---------------------------------------------------------------- whose labels


@pytest.mark.parametrize("n_by_f0_alone", [300, 0])
def test_people_show_that_f0_is_wrong_and_the_new_bundle_learns_what_its_teacher_never_said(
    plant: Plant, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, n_by_f0_alone: int
) -> None:
    field, fresh = drawn(600 + n_by_f0_alone, 5, moved=1.3), drawn(400, 6, moved=1.3)
    store = keep(tmp_path / "s.sqlite", (records := audits(plant.bundle, field)))
    label_by_f0(plant, store)
    label(plant, store, tmp_path, list(zip(records, field.truth, strict=True))[:600])
    capsys.readouterr()
    begun: list[Any] = []
    monkeypatch.setattr("hardcase_cloud.commands.rollout.run", lambda settings: begun.append(settings) or 0)
    words = ["--method", "cascade", "--group", "pumps", "--broker", "mqtt://127.0.0.1:1", "--canary", "7"]
    assert main([*map(str, retrain(plant, store, tmp_path / "out", *words))]) == 0
    (settings,) = begun  # agreement with an f0 that is wrong says nothing
    assert (settings.agreement, settings.canary, settings.group) == ("none", "7", "pumps")
    text = capsys.readouterr().out
    assert "600 labels are people's and 0 are f0's" in text
    assert f"when it was trained): {n_by_f0_alone} rows with its label alone are left out" in text
    assert "by people's labels" in text
    assert right(plant.bundle, fresh) < 0.6
    assert right(tmp_path / "out" / "model.hcb", fresh) > 0.9


def test_hard_cases_that_f0_has_wrong_do_not_show_that_it_is_wrong_in_all(plant: Plant, tmp_path: Path) -> None:
    easy, hard, model = drawn(300, 14), drawn(100, 15), load_bundle(plant.bundle).manifest.hpc
    ids = [sha256(b"h%d" % k).digest()[:16] for k in range(100)]
    cases = [case_of(f"d{k % 5}", ids[k], model, hard.readings[k], 1, 1.0) for k in range(100)]
    store = keep(tmp_path / "s.sqlite", [*audits(plant.bundle, easy), *cases])
    label_by_f0(plant, store)
    said = ["warm" if k % 3 else text for k, text in enumerate(hard.truth)]
    label(plant, store, tmp_path, list(zip(cases, said, strict=True)))
    settings = Namespace(store=store, hpc=plant.hpc, audited="5%", rows=1_000, per_device=1_000)
    found = read_rows(settings, [load_bundle(plant.bundle)])  # where 300 audits stand for 6,000 decisions
    assert (found.f0_of, found.f0_has_fallen, found.by_person, len(found.rows)) == (100, False, 100, 400)
    assert found.f0_right is not None
    assert found.f0_right < 0.7


def test_with_few_labels_of_people_all_labels_count_and_the_command_says_so(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    field = drawn(400, 7, moved=0.3)
    store = keep(tmp_path / "s.sqlite", (records := audits(plant.bundle, field)))
    label_by_f0(plant, store)
    label(plant, store, tmp_path, [(records[k], field.truth[k]) for k in range(20)])
    capsys.readouterr()
    words = retrain(plant, store, tmp_path / "out", "--method", "cascade", "--anyway")
    assert main([*map(str, words)]) == 0
    text = capsys.readouterr().out
    assert "20 labels are people's and 380 are f0's" in text
    assert "by all labels, of which" in text
    status, said, _ = asked(capsys, *words)  # nothing is trained again, and --json says the same
    assert (status, said["trained"], said["by_person"], said["by_f0"], said["judged_by"]) == (0, False, 20, 380, "all")


def test_a_case_is_labelled_by_what_the_export_of_the_store_says_of_it(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    model, readings = load_bundle(plant.bundle).manifest.hpc, drawn(1, 8).readings[0]
    store = keep(tmp_path / "s.sqlite", [case_of("d0", bytes(range(16)), model, readings, 0, 1.0, 1_700_000_000.25)])
    assert main(["cloud", "store", "--store", store, "--export", str(tmp_path / "all.csv")]) == 0
    (row,) = csv.DictReader((tmp_path / "all.csv").read_text().splitlines())
    assert (row["kind"], row["boot"], row["time"]) == ("case", "0", "1700000000.25")
    assert json.loads(row["readings"]) == readings
    (tmp_path / "l.csv").write_text(
        f"device,boot,sequence,label\n{row['device']},{row['boot']},{row['sequence']},hot\n"
    )
    words = ["label", "--store", store, "--bundle", str(plant.bundle), "--labels", str(tmp_path / "l.csv"), "--json"]
    capsys.readouterr()
    assert main(["cloud", *words]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1


# ---------------------------------------------------------------- each row once, in a part that nobody chooses


def test_an_audit_that_was_kept_as_a_case_too_counts_once_and_the_persons_label_wins(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    field, model = drawn(500, 9, moved=0.6), load_bundle(plant.bundle).manifest.hpc
    records = audits(plant.bundle, field)
    ids = [sha256(b"%d" % k).digest()[:16] for k in range(500)]
    twins = [case_of(f"d{k % 5}", ids[k], model, field.readings[k], 0, 1.0) for k in range(250)]
    forwarded = drawn(100, 10, moved=0.6)
    cases = [case_of("d0", sha256(b"c%d" % k).digest()[:16], model, forwarded.readings[k], 1, 1.0) for k in range(100)]
    store = keep(tmp_path / "s.sqlite", [*records, *twins, *cases])
    label_by_f0(plant, store)
    said = [(twins[k] if k < 100 else records[k], field.truth[k]) for k in range(300)]  # of some, the case was labelled
    label(plant, store, tmp_path, said)
    words = ["--audited", "100%", "--method", "cascade", "--anyway"]
    _, values, err = asked(capsys, *retrain(plant, store, tmp_path / "out", *words))
    assert (values["rows"] + values["left_out"], values["by_person"]) == (600, 300), err
    rows = table(tmp_path / "out")
    parts: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        parts.setdefault(tuple(row.values())[:8], set()).add(row["hardcase split"])
    assert len(parts) == len(rows)
    truth = {tuple(map(str, r)): t for r, t in zip(field.readings[:300], field.truth[:300], strict=True)}
    learned = {tuple(row.values())[:8]: row["y"] for row in rows}
    assert all(learned[key] == truth[key] for key in learned.keys() & truth.keys())
    assert len(learned.keys() & truth.keys()) > 200


def test_a_device_chooses_no_part_by_its_numbers_and_gives_no_more_of_the_test_than_others(
    plant: Plant, tmp_path: Path, capsys: Capture
) -> None:
    field, flood = drawn(300, 11), drawn(900, 12)
    tables = []
    for name, first, secret in (
        ("a", 1, "5e"),
        ("b", 70_001, "5e"),
        ("c", 1, "6f"),
    ):  # the device's numbers differ in b
        records = [*audits(plant.bundle, field), *audits(plant.bundle, flood, device="x", devices=1, first=first)]
        store = keep(tmp_path / f"{name}.sqlite", records, secret * 32)
        label_by_f0(plant, store)
        words = ["--method", "cascade", "--anyway"]
        status, said, err = asked(capsys, *retrain(plant, store, tmp_path / name, *words))
        assert status == 0, err
        tables.append({tuple(row.values())[:8]: row["hardcase split"] for row in table(tmp_path / name)})
    learned = [{k for k, part in t.items() if part == "train"} for t in tables]
    assert learned[0] == learned[1]
    assert learned[0] != learned[2]
    ours = {tuple(map(str, r)) for r in field.readings}
    of_flood = Counter(k not in ours for t in tables for k, part in t.items() if part == "test")
    assert of_flood[True] / of_flood.total() < 0.25  # 900 of 1,200 rows are the device's
    assert said["n_test"] < 100
    assert said["n_beyond_share"] > 100


def test_the_secret_of_a_store_is_neither_printed_nor_exported(plant: Plant, tmp_path: Path, capsys: Capture) -> None:
    field = drawn(300, 13)
    path = tmp_path / "s.sqlite"
    store = f"sqlite:{path}"
    database = Database(path)
    database.keep(audits(plant.bundle, field), 60.0)
    database.close()
    label_by_f0(plant, store)
    assert (
        main(
            [*map(str, retrain(plant, store, tmp_path / "out", "--method", "cascade", "--max-loss", "0.5", "--anyway"))]
        )
        == 0
    )
    assert main(["cloud", "store", "--store", store, "--export", str(tmp_path / "all.csv")]) == 0
    database = Database(path)
    ((name, secret),) = database.read("SELECT * FROM secrets")
    assert (name, database.secret(name).hex(), len(secret)) == ("parts", secret, 64)
    database.close()
    said = "".join(capsys.readouterr())
    written = [p.read_bytes() for p in [tmp_path / "all.csv", *(tmp_path / "out").rglob("*")] if p.is_file()]
    assert secret not in said
    assert not any(secret.encode() in data or bytes.fromhex(secret) in data for data in written)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (('unit = "mJ"', 'unit = "mAh"'), "has the unit of cost 'mAh', and the bundle 'mJ'"),
        (('target = "y"', 'target = "z"'), "has the target 'z', and the bundle 'y'"),
        (('target = "y"', 'target = "y"\nitem_size = "n"'), "has [data] item_size, which requests of audits and cases"),
    ],
)
def test_a_toml_of_another_bundle_is_one_line(
    plant: Plant, tmp_path: Path, capsys: Capture, change: tuple[str, str], line: str
) -> None:
    (tmp_path / "other.toml").write_text(plant.config.read_text().replace(*change))
    other: Any = plant._replace(config=tmp_path / "other.toml")
    assert main([*map(str, retrain(other, "sqlite:none", tmp_path / "out"))]) == 2
    assert line in capsys.readouterr().err
