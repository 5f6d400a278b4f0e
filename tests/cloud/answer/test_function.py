# SPDX-License-Identifier: Apache-2.0
"""A legacy system as f0, second half: a user's function answers devices, and nothing it does ends the worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from hardcase.cli import main, make_parser
from hardcase_cloud.answer.function import LIMIT_S, MAX_ABANDONED, FunctionHpc, function_for
from hardcase_cloud.answer.service import Outgoing, Service
from hardcase_cloud.commands.worker import _standstill_s
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.errors import BundleError, HpcStuckError, HpcTimeoutError, InputError
from hardcase_edge.link.wire import BUSY, OK, REFUSED, request_topic, unpack_reply

from ...helpers.cloud.brokers import running_mosquitto, until
from ...helpers.cloud.clients import asking
from ...helpers.cloud.requests import PATIENT_MS, ask, command, half_forwarding
from ...helpers.train.problems import legacy_columns, legacy_toml, run, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

SHA = "ab" * 32
ROWS = [(1.0, 2.0), (None, 3.0)]


@pytest.fixture
def loaded():
    """A bundle of the readings x0 and x1 (f32) and the classes red, green and blue."""
    return half_forwarding(SHA)


@pytest.fixture
def made(tmp_path, monkeypatch, loaded):
    """Makes the HPC of a module's text, with a minute for a call; every module has a name of its own."""
    monkeypatch.chdir(tmp_path)
    names = iter(f"legacy_{tmp_path.name}_{k}".replace("-", "_") for k in range(100))

    def make(text: str, **more) -> FunctionHpc:
        name = next(names)
        (tmp_path / f"{name}.py").write_text(text)
        return FunctionHpc(f"{name}:answer", loaded.bundle.program, loaded.manifest, **{"limit_s": 60.0, **more})

    return make


def returning(expression: str) -> str:
    return f"import numpy as np\ndef answer(X, names):\n    return {expression}\n"


# ---------------------------------------------------------------- what a function is given and may give


def test_a_function_is_given_readings_in_order_with_nan_for_missing_and_their_names(made):
    hpc = made("given = []\ndef answer(X, names):\n    given.append((X, names))\n    return ['red'] * len(X)\n")
    hpc.answer(ROWS)
    ((X, names),) = sys.modules[hpc._name.partition(":")[0]].given
    assert (X.dtype, names) == (np.float64, ("x0", "x1"))
    np.testing.assert_array_equal(X, [[1.0, 2.0], [np.nan, 3.0]])
    assert (hpc.sha256, hpc.dtypes) == (SHA, ("f32", "f32"))


@pytest.mark.parametrize(
    ("expression", "answers"),
    [
        pytest.param("[[0.25, 0.5, 0.25], [1, 0, 0]]", [(1, 5000), (0, 10_000)], id="lists"),
        pytest.param("np.array([[0.3, 0.3, 0.4], [0, 0.5, 0.5]], np.float32)", [(2, 4000), (1, 5000)], id="array"),
        pytest.param("['blue', 'green']", [(2, 10_000), (1, 10_000)], id="labels"),
        pytest.param("np.array(['blue', 'red'])", [(2, 10_000), (0, 10_000)], id="array-of-labels"),
        pytest.param("np.array(['blue', 'red'], dtype=object)", [(2, 10_000), (0, 10_000)], id="objects"),
    ],
)
def test_probabilities_and_labels_are_answers(made, expression, answers):
    assert made(returning(expression)).answer(ROWS) == answers


def test_no_rows_are_not_asked(made):
    assert made("def answer(X, names):\n    raise RuntimeError\n").answer([]) == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        pytest.param("None", "shape (), probabilities of shape (2, 3) are expected", id="none"),
        pytest.param("[[0.5, 0.5], [0.5, 0.5]]", "shape (2, 2), probabilities of shape (2, 3)", id="two-classes"),
        pytest.param("[[1, 0, 0]]", "shape (1, 3)", id="one-row"),
        pytest.param("[[1, 0, 0], [1, 0]]", "fails on a batch of 2: ValueError", id="ragged"),
        pytest.param("[['1', '0', '0']] * 2", "returns <U1 of shape (2, 3)", id="text"),
        pytest.param("[[1, 0, float('nan')]] * 2", "not from 0 to 1", id="nan"),
        pytest.param("[[1, 0, float('inf')]] * 2", "not from 0 to 1", id="infinite"),
        pytest.param("[[1.5, 0, 0]] * 2", "not from 0 to 1", id="beyond-1"),
        pytest.param("[[1, -0.1, 0]] * 2", "not from 0 to 1", id="below-0"),
        pytest.param("['red']", "returns 1 labels for 2 rows", id="one-label"),
        pytest.param("['red', 'pink']", "not a class: 'pink'; classes are 'red', 'green', 'blue'", id="no-such-class"),
        pytest.param("[0, 1]", "not a class: 0;", id="places-of-classes"),
        pytest.param("1 / 0", "fails on a batch of 2: ZeroDivisionError: division by zero", id="raises"),
        pytest.param("exit(3)", "fails on a batch of 2: SystemExit: 3", id="exits"),
        pytest.param("np.zeros((2, 3))[:, names.index('pressure')]", "ValueError", id="no-such-name"),
    ],
)
def test_what_is_no_answer_is_one_line(made, expression, said):
    with pytest.raises(InputError) as found:
        made(returning(expression)).answer(ROWS)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


HANGING = """
import threading
free = threading.Event()
threads = set()
def answer(X, names):
    threads.add(threading.get_ident())
    if (X[:, 0] == 13).any():
        free.wait(60)
    return ["red"] * len(X)
"""
POISON = [(13.0, 0.0)]


def test_a_call_that_hangs_is_abandoned_and_the_next_has_a_new_thread(made):
    hpc = made(HANGING, limit_s=20.0)
    module = sys.modules[hpc._name.partition(":")[0]]
    assert [hpc.answer(ROWS) for _ in range(3)] == [[(0, 10_000)] * 2] * 3
    assert len(module.threads) == 1
    hpc._limit_s = 0.05
    with pytest.raises(HpcTimeoutError, match="took more than 50 ms for 1 rows"):
        hpc.answer(POISON)
    hpc._limit_s = 20.0
    assert hpc.answer(ROWS) == [(0, 10_000)] * 2
    assert len(module.threads) == 2
    module.free.set()


def test_without_a_thread_a_batch_has_no_answer_until_there_is_one(made, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    hpc = made(HANGING, limit_s=20.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(InputError, match="gets no thread; the system has too many"):
            hpc.answer(ROWS)
    assert hpc.answer(ROWS) == [(0, 10_000)] * 2


def test_abandoned_threads_are_bounded_and_those_that_return_make_room(made):
    hpc = made(HANGING, limit_s=20.0)
    module = sys.modules[hpc._name.partition(":")[0]]
    hpc._limit_s = 0.02
    for _ in range(MAX_ABANDONED):
        with pytest.raises(HpcTimeoutError):
            hpc.answer(POISON)
    with pytest.raises(HpcStuckError, match="16 calls have not returned"):
        hpc.answer(ROWS)
    module.free.set()
    until(lambda: not module.threads & {thread.ident for thread in threading.enumerate()})
    hpc._limit_s = 20.0
    assert hpc.answer(ROWS) == [(0, 10_000)] * 2


def patient(hpc: FunctionHpc) -> Callable[[list[tuple[float, ...]]], list[tuple[int, int]]]:
    """``answer`` with its limit for what hangs, and with a minute for what does not, as a busy machine may need."""
    answer, limit_s = hpc.answer, hpc._limit_s

    def ask_for(rows: list[tuple[float, ...]]) -> list[tuple[int, int]]:
        hpc._limit_s = limit_s if any(row[0] == POISON[0][0] for row in rows) else 60.0
        return answer(rows)

    return ask_for


def runs(service: Service) -> list[Outgoing]:
    """The replies of all runs until nothing waits."""
    replies = []
    while service.due(0.1) is not None:
        replies += service.run(0.1)
    return replies


def test_a_row_that_hangs_costs_itself_alone(made, monkeypatch):
    hpc = made(HANGING, limit_s=0.3)
    monkeypatch.setattr(hpc, "answer", patient(hpc))
    service = Service(hpc)
    for k, x in enumerate((1.0, 13.0, 2.0)):
        assert service.receive(request_topic(f"d{k}"), ask(k, (x, 0.0), SHA), 0.0) is None
    replies = {out.device: unpack_reply(out.payload, bytes.fromhex(SHA), 3).status for out in runs(service)}
    assert replies == {"d0": OK, "d1": REFUSED, "d2": OK}
    assert (service.counters.served, service.counters.refused, service.counters.hung) == (2, 1, 1)
    again = service.receive(request_topic("d1"), ask(1, (13.0, 0.0), SHA), 0.2)  # from memory
    assert unpack_reply(again.payload, bytes.fromhex(SHA), 3).status == REFUSED
    assert service.due(0.2) is None


def test_a_row_that_it_cannot_answer_costs_its_neighbours_nothing(made):
    hpc = made("def answer(X, names):\n    assert (X[:, 0] > 0).all()\n    return ['green'] * len(X)\n")
    service = Service(hpc)
    for k, x in enumerate((1.0, -1.0, 2.0)):
        assert service.receive(request_topic("d"), ask(k, (x, 0.0), SHA), 0.0) is None
    replies = [unpack_reply(out.payload, bytes.fromhex(SHA), 3) for out in service.run(0.1)]
    assert [(r.status, r.result) for r in replies] == [(OK, 1), (REFUSED, 0), (OK, 1)]
    assert (service.counters.served, service.counters.refused) == (2, 1)


def test_requests_of_another_length_or_for_another_system_do_not_reach_it(made):
    service = Service(made("def answer(X, names):\n    raise RuntimeError\n"))
    good = ask(1, (1.0, 2.0), SHA)
    for payload in (good[:-1], good + b"x" * 70_000, ask(2, (1.0, 2.0), "00" * 32)):
        service.receive(request_topic("d"), payload, 0.0)
    counters = service.counters
    assert (counters.malformed, counters.oversized, counters.other_hpc) == (1, 1, 1)
    assert service.run(1.0) == []


# ---------------------------------------------------------------- what is named wrongly


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--hpc", "legacy:answer"], "name a bundle that forwards to it with --bundle", id="no-bundle"),
        pytest.param(["--hpc", "hpc.onnx", "--bundle", "m.hcb"], "--bundle requires --hpc module:function", id="file"),
        pytest.param(["--hpc", "hpc.onnx", "--limit-ms", "5"], "--limit-ms requires --hpc module:function", id="limit"),
        pytest.param(["--hpc", "no_such:answer", "--bundle", "m.hcb"], "no_such cannot be imported", id="no-module"),
        pytest.param(["--hpc", "json:answer", "--bundle", "m.hcb"], "json has no function answer", id="no-function"),
        pytest.param(["--hpc", "json:loads", "--bundle", "none.hcb"], "none.hcb cannot be read", id="no-bundle-file"),
        pytest.param(["--hpc", "json:loads", "--bundle", "local.hcb"], "'half' never forwards", id="never-forwards"),
    ],
)
def test_a_function_or_bundle_that_cannot_be_used_is_one_line(tmp_path, monkeypatch, capsys, loaded, flags, said):
    monkeypatch.chdir(tmp_path)
    bundle = loaded.bundle
    (tmp_path / "m.hcb").write_bytes(pack_bundle(bundle))
    answering = [bundle.program.nodes[2]]
    local = Bundle({**bundle.manifest, "hpc": ""}, replace_nodes(bundle.program, answering), ())
    (tmp_path / "local.hcb").write_bytes(pack_bundle(local))
    assert main(["cloud", "worker", "--broker", "mqtt://127.0.0.1:1", *flags]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def replace_nodes(program, nodes):
    from dataclasses import replace

    return replace(program, nodes=tuple(nodes), columns=(), scorers=(program.scorers[1],) * 2)


def test_a_damaged_bundle_is_refused(tmp_path, loaded):
    data = bytearray(pack_bundle(loaded.bundle))
    data[len(data) // 2] ^= 1
    (tmp_path / "m.hcb").write_bytes(data)
    with pytest.raises(BundleError, match="damaged"):
        function_for("json:loads", tmp_path / "m.hcb")


# ---------------------------------------------------------------- end to end

BOILER = """
def answer(X, names):
    return [[0.05, 0.95] if row[names.index("a")] > 0 else [0.95, 0.05] for row in X]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A build of a legacy system, its bundle that forwards all, and its function, in one folder."""
    folder = tmp_path_factory.mktemp("legacy")
    data, table = legacy_columns()
    write_csv(folder / "data.csv", data)
    write_csv(folder / "legacy.csv", table)
    (folder / "boiler.py").write_text(BOILER)
    return folder


def export(folder, capsys):
    status, _, err = run(capsys, "train", legacy_toml(folder), "--out", folder / "build", "--method", "static")
    assert status == 0, err
    argv = ("export", folder / "build", "--budget", 1e6, "--method", "hpc", "--out", folder / "model.hcb")
    status, _, err = run(capsys, *argv)
    assert status == 0, err


def decisions(url: str, n: int) -> list[dict]:
    """What a device says of the first rows of data.csv in this folder."""
    flags = ["run", "model.hcb", "--sensors", "replay:data.csv", "--count", str(n), "--broker", url]
    flags += ["--deadline-ms", str(PATIENT_MS)]
    made = subprocess.run(
        [sys.executable, "-m", "hardcase_edge.cli", *flags, "--device-id", "pi-1"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_trained_from_a_table_exported_and_served_by_its_function(built, tmp_path, capsys, monkeypatch):
    export(built, capsys)
    monkeypatch.chdir(built)
    _, table = legacy_columns()
    wanted = [("hot" if p > 0.5 else "cold", "cloud", 36.0, ["a", "b"]) for p in table["p:hot"][:20]]
    served = ("--hpc", "boiler:answer", "--bundle", "model.hcb", "--limit-ms", "60000", "--json")
    with running_mosquitto(tmp_path) as broker, command("cloud", "worker", *served, "--broker", broker.url) as worker:
        worker.wait_for("ready")
        made = decisions(broker.url, 20)
        assert [(d["label"], d["route"], d["cost"], d["sensors"]) for d in made] == wanted
        assert {d["confidence"] for d in made} == {0.95}
        assert worker.finish() == 0
        stopped = worker.wait_for("stopped")
        assert (stopped["served"], stopped["refused"]) == (20, 0)
    with command("cloud", "up", *served, "--bind", "127.0.0.1:0") as up:
        made = decisions(up.wait_for("ready")["broker"], 3)
        assert [(d["label"], d["route"]) for d in made] == [w[:2] for w in wanted[:3]]
        assert up.finish() == 0


def test_two_calls_that_hang_fit_into_the_time_that_devices_wait_and_no_thread_is_made_before_a_call(made):
    before = threading.active_count()
    made(returning("None"))
    assert threading.active_count() == before
    assert RuntimeConfig().deadline_ms / 1000 > 2 * LIMIT_S


PATIENT = """
from hardcase_cloud.answer.function import FunctionHpc
ask = FunctionHpc._ask
def patient(self, X):
    self._limit_s = 0.04 if (X[:, 0] == 13).any() else 60.0  # a busy machine may take a while over the others
    return ask(self, X)
FunctionHpc._ask = patient
"""


def test_when_too_many_calls_hang_up_starts_a_new_worker_and_only_their_rows_go_without_an_answer(tmp_path):
    bundle = half_forwarding(SHA).bundle
    (tmp_path / "m.hcb").write_bytes(pack_bundle(bundle))
    (tmp_path / "hanging.py").write_text(HANGING.replace("free.wait(60)", "free.wait(); ") + PATIENT)
    flags = ("--hpc", "hanging:answer", "--bundle", str(tmp_path / "m.hcb"), "--limit-ms", "40", "--json")
    environment = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with (
        running_mosquitto(tmp_path) as broker,
        command("cloud", "up", *flags, "--broker", broker.url, environment=environment) as up,
    ):
        up.wait_for("ready")
        with asking(broker.url, "+") as (client, heard):
            for k in range(MAX_ABANDONED):
                client.publish(request_topic(f"bad-{k}"), ask(k, (13.0, 0.0), SHA, PATIENT_MS), 1)
                status = unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(SHA), 3).status
                assert status == (BUSY if k else REFUSED), "from the second device on the function is at fault"
            good = ask(99, (1.0, 0.0), SHA, PATIENT_MS)
            client.publish(request_topic("good"), good, 1)
            assert up.wait_for("worker-died")["status"] == 75
            assert up.wait_for("worker-stopped")["hung"] == MAX_ABANDONED
            up.wait_for("worker-ready", 2)
            client.publish(request_topic("good"), good, 1)  # as a device does that has no answer yet
            assert unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(SHA), 3).status == OK
        assert up.finish() == 0
        assert "16 calls have not returned, so no more are made" in up.stderr()


LOCKED = """
import ctypes
def answer(X, names):
    ctypes.PyDLL(None).sleep(60)  # in C, with the interpreter's lock
"""


def test_a_worker_whose_loop_stands_still_ends_itself(tmp_path):
    script = (
        "import sys\nfrom hardcase_cloud.answer.supervisor import Watchdog\n"
        "dog = Watchdog(0.3)\ndog.feed()\nsys.path.insert(0, sys.argv[1])\nimport locked\nlocked.answer(0, 0)\n"
    )
    (tmp_path / "locked.py").write_text(LOCKED)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert b"locked.py" in ended.stderr
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [
        (["f0.onnx", "--max-batch", "1000"], 30.0),
        (["m:f", "--bundle", "m.hcb"], 30.0),
        (["m:f", "--bundle", "m.hcb", "--max-batch", "98"], 70.0),
        (["m:f", "--bundle", "m.hcb", "--limit-ms", "2000"], 68.0),
    ],
)
def test_a_worker_may_ask_a_batch_that_fails_row_by_row_before_it_counts_as_standing_still(flags, seconds):
    args = make_parser().parse_args(["cloud", "worker", "--broker", "mqtt://127.0.0.1", "--hpc", *flags])
    assert _standstill_s(args) == pytest.approx(seconds)
