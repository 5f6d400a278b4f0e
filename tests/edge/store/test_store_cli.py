# SPDX-License-Identifier: Apache-2.0
"""hardcase-edge with a store, as a user meets it: put, run, trial, roll-back, metadata."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.signature import make_keys, sign
from hardcase_edge.fleet.diagnosis import storage
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import saw_cloud
from hardcase_edge.program.definition import MICRO, Costs
from hardcase_edge.running import beside
from tests.helpers.edge.device import EASY, FEATURES, make_bundle_bytes, make_manifest, make_program, write_replay
from tests.helpers.edge.repository import Repository

PATIENT = ("--sensor-timeout-ms", 60_000)  # a time limit that a busy machine keeps, where a sensor must answer


@pytest.fixture(autouse=True)
def _a_device_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in the tests' own process, whose memory the tests before have filled; a device's is its own."""
    monkeypatch.setattr(beside, "resident_bytes", lambda: 16_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def replay(tmp_path: Path) -> str:
    return f"replay:{write_replay(tmp_path / 'r.csv', [EASY] * 6)}"


@pytest.fixture
def put(edge, store, tmp_path):
    """Puts a bundle into the store that differs from others by its name, or by more."""

    def put(name, *words, **more):
        return edge("store", "put", store.folder, write_bundle(tmp_path, name, **more), *words)

    return put


@pytest.fixture
def run(edge, store, replay):
    """Runs the store over six rows; four decisions pass a trial."""
    return lambda *words: edge("run", "--store", store.folder, "--sensors", replay, "--trial-decisions", 4, *words)


def write_bundle(tmp_path: Path, name: str, **more: object) -> Path:
    path = tmp_path / f"{name}.hcb"
    path.write_bytes(make_bundle_bytes(name=name, **more))
    return path


def states(store: Store) -> tuple[str, str, str]:
    slots = store.slots()
    return slots.a.state, slots.b.state, slots.current


def test_a_bundle_is_put_tried_and_stays(store, put, run):
    status, _, errors = put("first")
    digest = sha256(make_bundle_bytes(name="first")).hex()
    assert (status, errors) == (
        0, f"hardcase-edge: the bundle {digest[:16]} is in slot a, for a trial at the next start\n",
    )  # fmt: skip
    assert states(store) == ("ready", "empty", "")
    status, records, errors = run()
    assert (status, len(records), errors) == (0, 6, "hardcase-edge: the bundle in slot a has passed its trial\n")
    assert states(store) == ("good", "empty", "a")
    assert run()[::2] == (0, "")
    assert put("first").errors.endswith("is in the store already\n")


def test_a_run_that_ends_early_leaves_the_trial_for_the_next(store, put, run):
    put("first")
    for _ in range(5):
        status, records, errors = run("--count", 2)
        assert (status, len(records), errors) == (0, 2, "")
    assert (states(store), store.slots().a.starts) == (("trial", "empty", ""), 0)


def test_a_bundle_whose_sensors_are_not_here_makes_way_for_the_good_one(store, put, run):
    put("first")
    run()
    put("other", "--replace-program", features=("elsewhere", *FEATURES[1:]))
    status, records, errors = run()
    assert (status, len(records)) == (0, 6)
    assert errors.startswith("hardcase-edge: the trial of slot b has failed: ")
    assert errors.endswith("; slot a runs again\n")
    assert states(store) == ("good", "bad", "a")


START = Costs(per_decision=2 * MICRO)


@pytest.mark.parametrize(
    ("first", "other", "unit", "words", "why"),
    [
        pytest.param({}, {"costs": START}, "J", ("--budget", 1), "the budget is 1, but", id="budget"),
        pytest.param({}, {"costs": START}, "J", ("--budget-per-hour", 9), "each decision of", id="running-budget"),
        pytest.param({"max_item_size": 2}, {}, "J", ("--item-size", 2), "the item size is 2;", id="item-size"),
        pytest.param({}, {}, "cents", ("--battery", 9, "--until", "2999-01-01"), "--battery is an", id="battery"),
    ],
)
def test_a_bundle_whose_costs_the_flags_refuse_makes_way_for_the_good_one(
    first, other, unit, words, why, tmp_path, store, edge, run
):
    for k, (name, program, its_unit) in enumerate([("first", first, "J"), ("other", other, unit)]):
        manifest = make_manifest(unit=its_unit, trained={"build": name})
        (tmp_path / "x.hcb").write_bytes(
            pack_bundle(Bundle(manifest.to_json(), replace(make_program(), **program), ()))
        )
        edge("store", "put", store.folder, tmp_path / "x.hcb", "--replace-program")
        status, records, errors = run(*words)
        assert (status, len(records)) == (0, 6)
        assert states(store) == ("good", ("empty", "bad")[k], "a")
    assert f"the trial of slot b has failed: {why}" in errors


PLUGIN = """
def read(sensor):
    return {"x": 3.0, "vib": [1.0] * 5}[sensor]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store_plugin.py").write_text(PLUGIN)


@pytest.mark.usefixtures("plugin")
def test_a_bundle_whose_sensors_a_plug_in_does_not_know_makes_way_for_the_good_one(store, put, edge):
    run = (
        "run",
        "--store",
        store.folder,
        "--sensors",
        "store_plugin:read",
        *PATIENT,
        "--trial-decisions",
        4,
        "--count",
        8,
    )
    put("first")
    edge(*run)
    put("other", "--replace-program", sensors=("y", "noise"), windows={"noise": 5})
    status, records, errors = edge(*run)
    why = "no sensor gave a reading in 4 decisions, and these failed: y"
    first, *_, last = errors.splitlines()
    assert (status, first) == (0, "hardcase-edge: sensor y fails: KeyError: 'y'")
    assert last == f"hardcase-edge: the trial of slot b has failed: {why}; slot a runs again"
    assert [bool(record["failed"]) for record in records] == [True] * 4 + [False] * 8
    assert (states(store), store.slots().b.reason) == (("good", "bad", "a"), why)


def test_a_damaged_file_makes_way_for_the_other_slot(store, put, run):
    for name in ("first", "second"):
        put(name)
        run()
    assert states(store) == ("good", "good", "b")
    path = store.folder / "b" / "bundle.hcb"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert run().status == 0
    assert states(store) == ("good", "bad", "a")
    os.unlink(store.folder / "a" / "bundle.hcb")
    status, records, errors = run()
    assert (status, records) == (2, [])
    assert "the store has no bundle to run (slot a is bad its file is damaged; slot b is bad" in errors


def test_a_bundle_that_is_killed_three_times_makes_way(store, put, run, replay):
    put("first")
    run()
    put("second")
    words = ["run", "--store", str(store.folder), "--sensors", replay, "--trial-decisions", "4"]
    code = "import os, hardcase_edge.device.device as d; d.Device.decide = lambda s: os._exit(9); "
    code += "import sys; from hardcase_edge.cli import main; main(sys.argv[1:])"
    for starts in (1, 2, 3):
        killed = subprocess.run([sys.executable, "-c", code, *words], check=False)
        assert (killed.returncode, states(store), store.slots().b.starts) == (9, ("good", "trial", "a"), starts)
    line = "hardcase-edge: the trial of slot b has failed: 3 starts did not end well; slot a runs again\n"
    assert run()[::2] == (0, line), "from a process that did not see the kills"
    assert (states(store), store.slots().b.reason) == (("good", "bad", "a"), "3 starts did not end well")


def start(*words):
    command = [sys.executable, "-m", "hardcase_edge.cli", "run", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_trial_that_hangs_fails_at_its_deadline_and_the_good_one_runs(store, put, run, tmp_path):
    put("first")
    run()
    put("second")
    rows = f"replay:{write_replay(tmp_path / 'many.csv', [EASY] * 100)}"
    words = ("--store", store.folder, "--sensors", rows, "--trial-decisions", 4, "--trial-s", 1, "--interval", 0.6)
    process = start(*words)
    began = time.monotonic()
    assert re.search(r"after 1 s it had made [0-3] decisions; slot a runs again", process.stderr.readline())
    assert time.monotonic() - began < 60
    process.terminate()
    out, errors = process.communicate()
    assert (errors, process.returncode) == ("", 0)
    assert out.count("\n") < 3 + 100  # it was told to end while one bundle followed the other, and did
    assert states(store) == ("good", "bad", "a")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("replay:-", ",".join(FEATURES) + "\n" + "3,1,0,0,0\n" * 10, id="table"),
        pytest.param("senml:-", '[{"n":"x","v":3}]\n' * 10, id="packs"),
    ],
)
def test_what_came_through_a_pipe_is_not_lost_when_the_good_one_runs_again(source, text, store, put, run):
    put("first")
    run()
    put("other", "--replace-program", features=("elsewhere", *FEATURES[1:]))
    words = ["--store", str(store.folder), "--sensors", source, "--trial-decisions", "4"]
    command = [sys.executable, "-m", "hardcase_edge.cli", "run", *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n"), states(store)) == (0, 10, ("good", "bad", "a")), done.stderr


@pytest.mark.usefixtures("plugin")
def test_a_first_bundle_without_one_reading_fails_and_without_a_broker_the_run_ends(store, put, edge):
    put("first", sensors=("y", "noise"), windows={"noise": 5})
    run = ("run", "--store", store.folder, "--sensors", "store_plugin:read", *PATIENT, "--trial-decisions", 4)
    status, records, errors = edge(*run)
    why = "no sensor gave a reading in 4 decisions, and these failed: y"
    assert (status, len(records), states(store)) == (2, 4, ("bad", "empty", ""))
    assert errors.splitlines()[-2:] == [
        f"hardcase-edge: the trial of slot a has failed: {why}; the store has no other bundle",
        f"hardcase-edge: the store has no bundle to run (slot a is bad {why}; slot b is empty); put one into it",
    ]
    put("second")
    assert edge(*run, "--count", 5).status == 0
    assert "good" in states(store)


def test_the_only_bundle_that_has_worked_runs_on_beyond_the_deadline_of_its_trial(store, put, replay):
    put("first")
    store.apply(saw_cloud)
    words = ["--store", store.folder, "--sensors", replay, "--trial-decisions", 2, "--trial-s", 1]
    process = start(*words, "--interval", 0.3, "--broker", "mqtt://127.0.0.1:1", "--device-id", "pi-1")
    try:
        for line in process.stderr:
            if "goes on" in line:
                break
        goes_on = "slot a goes on, because no other bundle has worked here; its trial does not pass: "
        assert line.startswith(f"hardcase-edge: {goes_on}after 1 s it had made ")
        while "goes on" not in process.stderr.readline():
            assert process.poll() is None, "the trial begins again, in the same process"
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()
    assert states(store) == ("trial", "empty", "")
    assert store.slots().a.has_worked


def test_a_wrong_key_on_the_command_line_turns_no_bundle_bad(tmp_path, store, edge, run):
    path = write_bundle(tmp_path, "first")
    private, public = make_keys()
    (tmp_path / "ours.pub").write_bytes(public)
    (tmp_path / "other.pub").write_bytes(make_keys()[1])
    put = ("store", "put", store.folder, path, "--trust")
    assert edge(*put, tmp_path / "ours.pub")[0] == 2
    Path(f"{path}.sig").write_bytes(sign(path.read_bytes(), private))
    assert edge(*put, tmp_path / "other.pub")[0] == 2
    assert not store.folder.exists()
    assert edge(*put, tmp_path / "ours.pub")[0] == 0
    for _ in range(4):
        status, _, errors = run("--trust", tmp_path / "other.pub")
        assert (status, errors) == (2, "hardcase-edge: the bundle is not signed by the trusted key; do not use it\n")
    assert states(store) == ("trial", "empty", "")
    assert run("--trust", tmp_path / "ours.pub").status == 0
    assert states(store) == ("good", "empty", "a")


def test_a_damaged_bundle_leaves_the_store_as_it_was(tmp_path, store, edge, put):
    put("first")
    before = store.slots()
    bad = write_bundle(tmp_path, "second")
    bad.write_bytes(bad.read_bytes()[:-1])
    assert edge("store", "put", store.folder, bad)[0] == 2
    assert store.slots() == before


@pytest.mark.parametrize("action", ["show", "put", "trust", "run", "doctor"])
def test_a_store_of_another_user_is_told_in_one_line_and_is_no_empty_store(
    action, tmp_path, store, replay, edge, put, monkeypatch
):
    put("first")
    (tmp_path / "root.json").write_bytes(Repository().roots[0])
    real, hidden = os.stat, f"{store.folder}/"

    def stat(path, *args, **more):  # as of a folder that its owner alone may enter
        if str(path).startswith(hidden):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "stat", stat)
    words = {
        "show": ("store", "show", store.folder),
        "put": ("store", "put", store.folder, tmp_path / "first.hcb"),
        "trust": ("store", "trust", store.folder, tmp_path / "root.json"),
        "run": ("run", "--store", store.folder, "--sensors", replay),
        "doctor": ("doctor", "--json", "run", "--store", store.folder, "--sensors", replay),
    }[action]
    status, records, errors = edge(*words)
    if action == "doctor":
        errors = "; ".join(records[0]["faults"][0].values()) + "\n"
    assert status == (1 if action == "doctor" else 2)
    assert "cannot be read: Permission denied; " in errors
    assert errors.count("\n") == 1


def test_a_store_that_cannot_even_be_looked_at_is_a_fault(tmp_path, monkeypatch):
    def stat(path, *args, **more):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", stat)
    (fault,) = storage.disk(tmp_path)
    assert "cannot look at the store: Permission denied" in str(fault)


def test_a_store_with_a_root_takes_only_what_signed_targets_list(tmp_path, store, edge):
    repository = Repository()
    first, second = write_bundle(tmp_path, "first"), write_bundle(tmp_path, "second")
    (tmp_path / "root.json").write_bytes(repository.roots[0])
    trust = ("store", "trust", store.folder, tmp_path / "root.json")
    assert edge(*trust)[::2] == (0, "hardcase-edge: the store trusts root 1\n")
    assert "trusts a root already" in edge(*trust)[2]
    put = ("store", "put", store.folder)
    assert "has a root and no targets yet" in edge(*put, first)[2]
    metadata = repository.write(tmp_path / "tuf", first.read_bytes())
    assert edge(*put, first, "--metadata", metadata)[0] == 0
    assert "do not list the bundle" in edge(*put, second)[2]
    repository.rotate("targets")
    repository.write(tmp_path / "tuf", second.read_bytes())
    assert edge(*put, second, "--metadata", metadata)[0] == 0
    status, (report,), _ = edge("store", "show", store.folder, "--json")
    digest = sha256(second.read_bytes()).hex()
    assert (status, report) == (0, {
        "runs": "b", "current": None, "slot_a": "empty", "slot_b": f"ready {digest}", "starts": 0, "root": 2,
        "targets": 2,
    })  # fmt: skip


def test_metadata_need_a_root_first_and_a_lost_trust_file_is_noticed(tmp_path, store, edge):
    repository, first = Repository(), write_bundle(tmp_path, "first")
    metadata = repository.write(tmp_path / "tuf", first.read_bytes())
    put = ("store", "put", store.folder, first)
    assert "trusts no root" in edge(*put, "--metadata", metadata)[2]
    (tmp_path / "root.json").write_bytes(repository.roots[0])
    edge("store", "trust", store.folder, tmp_path / "root.json")
    assert edge(*put, "--metadata", metadata)[0] == 0
    os.unlink(store.folder / "trust")
    assert "trusts no root" in edge(*put)[2]


def test_older_metadata_put_back_beside_a_newer_state_are_refused(tmp_path, store, edge):
    repository = Repository()
    first, second = write_bundle(tmp_path, "first"), write_bundle(tmp_path, "second")
    (tmp_path / "root.json").write_bytes(repository.roots[0])
    edge("store", "trust", store.folder, tmp_path / "root.json")
    old = repository.write(tmp_path / "old", first.read_bytes())
    assert edge("store", "put", store.folder, first, "--metadata", old)[0] == 0
    trust = (store.folder / "trust").read_bytes()
    new = repository.write(tmp_path / "new", second.read_bytes())
    assert edge("store", "put", store.folder, second, "--metadata", new)[0] == 0
    (store.folder / "trust").write_bytes(trust)
    before = store.slots()
    message = "the bundle has release 1.1, and the store has had 1.2; sign it again in newer metadata"
    assert edge("store", "put", store.folder, first)[::2] == (2, f"hardcase-edge: {message}\n")
    assert store.slots() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--sensors", "none"), "name either a bundle or a store with --store"),
        (("run", "x.hcb", "--store", "y", "--sensors", "none"), "name either a bundle or a store with --store"),
        (("run", "--store", "nowhere", "--sensors", "x=none"), "no bundle to run (slot a is empty; slot b"),
        (("run", "--store", "x", "--sensors", "x=none", "--trial-decisions", "0"), "a trial has 0 decisions; use 1 to"),
        (("run", "--store", "x", "--sensors", "x=none", "--trial-s", "1e9"), "the trial's deadline is 1000000000.0 s"),
        (("store", "put", "/proc/store", "toy.hcb"), "cannot be made"),
        (("store", "trust", "s", "toy.hcb"), "the root metadata cannot be used"),
    ],
)
def test_a_mistake_is_one_line(words, message, tmp_path, edge, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    status, records, errors = edge(*words)
    assert (status, records, errors.count("\n")) == (2, [], 1)
    assert message in errors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.hcb"]


def test_a_trial_that_takes_too_much_memory_fails(store, put, run, monkeypatch):
    put("first")
    run()
    put("second")
    monkeypatch.setattr(beside, "resident_bytes", lambda: 300_000_000)
    assert "it took 300000000 bytes of memory" in run().errors
    assert states(store)[2] == "a"


def test_another_program_is_put_only_if_somebody_says_so(store, put, run):
    other = {"program": "wine", "classes": ("red", "white")}
    assert put("first").status == 0
    assert put("other", **other).status == 0, "nothing runs yet"
    put("first")
    run()
    before = store.slots()
    status, _, errors = put("other", **other)
    assert (status, store.slots()) == (2, before)
    [line] = errors.splitlines()
    assert "other program: its name is 'wine', and 'toy' runs here; it answers the classes 'red', 'white'" in line
    assert "--replace-program" in line
    assert put("other", "--replace-program", **other).status == 0


def test_a_trial_without_the_trusted_signature_makes_way_for_the_bundle_that_has_it(tmp_path, store, put, edge, run):
    private, public = make_keys()
    (tmp_path / "ours.pub").write_bytes(public)
    path = write_bundle(tmp_path, "first")
    Path(f"{path}.sig").write_bytes(sign(path.read_bytes(), private))
    trust = ("--trust", tmp_path / "ours.pub")
    edge("store", "put", store.folder, path, *trust)
    run(*trust)
    assert put("second").status == 0, "put without --trust checks no signature"
    status, records, errors = run(*trust)
    assert (status, len(records), errors.count("; slot a runs again")) == (0, 6, 1)
    assert states(store) == ("good", "bad", "a")
