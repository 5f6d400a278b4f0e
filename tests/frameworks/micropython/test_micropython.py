# SPDX-License-Identifier: Apache-2.0
"""MicroPython decides as Python and C, on its port for Linux and on an emulated Cortex-M3, and forwards hard cases."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hardcase.cli import main
from hardcase_edge.bundle.file import pack_bundle, unpack_bundle
from hardcase_edge.bundle.load import load_bundle, load_bytes
from hardcase_edge.link.wire import OK, Reply, Request, pack_reply, unpack_request
from hardcase_export.to_micropython.folder import micropython_files
from hardcase_export.to_micropython.mpy import ARCHITECTURES, native_module
from tests.golden.make_golden import GOLDEN
from tests.helpers.cloud.brokers import Broker, running_mosquitto
from tests.helpers.edge.board import Board
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.places import ROOT

from .cases import write_cases
from .conftest import SOURCE

HERE = Path(__file__).parent
MICROPYTHON = ROOT / "build" / "micropython" / "run"
UMQTT = ROOT / "build" / "umqtt"
COUNT = 100  # random programs
FEW = 16  # golden cases, where another test has decided all of them
WITHOUT_TABLES = (
    "SECTIONS { /DISCARD/ : { *(.ARM.exidx*) } }"  # of exceptions, for which the board's script has no place
)
HEAP = 65_536  # bytes, of a board of which little is free


@pytest.fixture(scope="module")
def board(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``mip`` installs from it on Linux, and the scripts of these tests."""
    folder = tmp_path_factory.mktemp("board")
    install(exported, "x64", folder)
    (folder / "hardcase_kernel.mpy").write_bytes(native_module("x64"))  # for all programs
    for name in ("replay.py", "trace.py"):
        shutil.copyfile(HERE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A file of decisions, the golden program's first, and how many they are."""
    path = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    return path, write_cases(path, COUNT)


def install(exported: Path, architecture: str, folder: Path) -> None:
    """Copy what the architecture's list of ``mip`` names."""
    for target, source in json.loads((exported / f"{architecture}.json").read_text())["urls"]:
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exported / source, folder / target)


def micropython(folder: Path, *words: object) -> str:
    """What MicroPython's port for Linux prints."""
    if not MICROPYTHON.exists():
        pytest.skip("micropython: make toolchains")
    made = subprocess.run(
        [str(MICROPYTHON), *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-2000:]
    return made.stdout.strip()


@needs_kernel
def test_the_port_for_linux_decides_as_python_and_c(board: Path, cases: tuple[Path, int]) -> None:
    path, n = cases
    assert micropython(board, "replay.py", path) == str(2 * n)  # with numbers, and with bytes


def test_a_module_refuses_a_policy_that_needs_parts_it_lacks_and_decides_all_others(
    exported: Path, board: Path, cases: tuple[Path, int], tmp_path: Path
) -> None:
    shutil.copytree(board, tmp_path / "board")
    shutil.copyfile(exported / "native" / "x64.mpy", tmp_path / "board" / "hardcase_kernel.mpy")
    script = f"""
from replay import replay
refused = 0
for line in open({str(cases[0])!r}):
    try:
        replay(line, (True,))
    except ValueError as error:
        assert "lacks parts" in str(error), error
        refused += 1
print(refused)
"""
    assert 0 < int(micropython(tmp_path / "board", "-c", script)) < COUNT


def test_a_decision_that_differs_would_be_seen(board: Path, cases: tuple[Path, int], tmp_path: Path) -> None:
    first = json.loads(cases[0].read_text().splitlines()[0])
    first["cases"][7]["expected"]["cost"] += "0"
    (tmp_path / "one.jsonl").write_text(json.dumps(first) + "\n")
    with pytest.raises(AssertionError, match="is not"):
        micropython(board, "replay.py", tmp_path / "one.jsonl")


def on_board(firmware: Path, files: dict[str, bytes], cases: Path, most: int = 10_000) -> str:
    """How many decisions of the golden program, of ``most``, an emulated board makes as expected."""
    program = json.loads(cases.read_text().splitlines()[0])
    program["cases"] = program["cases"][:most]
    with Board(firmware) as board:
        board.put({**files, "replay.py": (HERE / "replay.py").read_bytes()})
        board.run("from replay import replay")
        done = 0
        for k in range(0, len(program["cases"]), 4):
            part = {**program, "cases": program["cases"][k : k + 4]}
            done += int(board.run(f"print(replay({json.dumps(part)!r}, (True,)))"))
    return f"{done} of {len(program['cases'])}"


@needs_kernel
@pytest.mark.parametrize(("architecture", "most"), [("armv7m", 10_000), ("armv6m", FEW)])
def test_a_cortex_m3_decides_golden_cases_as_python_and_c_with_its_module_and_a_cortex_m0s(
    exported: Path, firmware: Path, cases: tuple[Path, int], tmp_path: Path, architecture: str, most: int
) -> None:
    install(exported, architecture, tmp_path)
    files = {name: (tmp_path / name).read_bytes() for name in ("hardcase/__init__.py", "hardcase_kernel.mpy")}
    made, _, of = on_board(firmware, files, cases[0], most).partition(" of ")
    assert made == of
    assert int(of) >= min(most, 64)


@needs_kernel
def test_a_firmware_with_the_kernel_as_user_c_module_decides_alike(
    exported: Path, firmware: Path, cases: tuple[Path, int], tmp_path: Path
) -> None:
    modules = tmp_path / "modules"
    shutil.copytree(exported / "module", modules / "hardcase")
    out, script = SOURCE / "build-user-module", tmp_path / "board.ld"
    script.write_text((SOURCE / "ports" / "qemu" / "mcu" / "arm" / "mps2.ld").read_text() + WITHOUT_TABLES)
    command = ["make", "-s", "-j2", "-C", str(SOURCE / "ports" / "qemu"), "BOARD=MPS2_AN385", "FROZEN_MANIFEST="]
    subprocess.run(
        [*command, f"USER_C_MODULES={modules}", f"BUILD={out}", f"LDSCRIPT={script}"],
        check=True,
        capture_output=True,
        timeout=280,
    )
    files = {"hardcase/__init__.py": (exported / "hardcase" / "__init__.py").read_bytes()}
    made, _, of = on_board(out / "firmware.elf", files, cases[0], FEW).partition(" of ")
    assert made == of


@needs_kernel
def test_an_emulated_board_measures_the_memory_that_the_export_says(
    exported: Path, firmware: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(GOLDEN), "--micropython", str(tmp_path / "again"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["micropython"]
    install(exported, "armv6m", tmp_path)  # the largest module that lies in a heap
    names = ("__init__.py", "image.bin", "policy.json")
    files = {f"hardcase/{name}": (tmp_path / "hardcase" / name).read_bytes() for name in names}
    with Board(firmware) as board:
        board.put({**files, "hardcase_kernel.mpy": (tmp_path / "hardcase_kernel.mpy").read_bytes()})
        measured = board.run((exported / "memory.py").read_text()).split()
    assert list(map(int, measured)) == pytest.approx(list(said["heap"].values()), rel=0.03)
    installed = sum(path.stat().st_size for path in (tmp_path / "hardcase").iterdir())
    largest = max(path.stat().st_size for path in (exported / "native").iterdir())
    assert sum(said["flash"].values()) == installed + largest


def test_a_policy_is_loaded_and_decides_in_a_heap_of_64_kb(board: Path) -> None:
    script = "import hardcase\nprint(hardcase.decide(lambda sensor: None).route)"
    assert micropython(board, "-X", f"heapsize={HEAP}", "-c", script) in ("local", "degraded")


def test_each_processor_has_its_module_and_its_list(exported: Path) -> None:
    lists = {name: json.loads((exported / f"{name}.json").read_text())["urls"] for name in ARCHITECTURES}
    assert all((exported / source).is_file() for urls in lists.values() for _, source in urls)
    headers = {name: (exported / f"native/{name}.mpy").read_bytes()[:4] for name in ARCHITECTURES}
    assert headers == {name: bytes([77, 6, number << 2 | 3, 31]) for name, (number, _) in ARCHITECTURES.items()}
    assert all((exported / f"native/{name}.mpy").stat().st_size < 30_000 for name in ARCHITECTURES)


def test_mip_on_linux_installs_a_policy_from_a_folder(exported: Path, tmp_path: Path) -> None:
    """By MicroPython's own mip and Python's file server; Debian's mip knows no relative URLs, and gets whole ones."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        try:
            shutil.copytree(exported, tmp_path / "policy")
            at, lists = f"http://127.0.0.1:{server.server_port}/policy", json.loads((exported / "x64.json").read_text())
            whole = {**lists, "urls": [[target, f"{at}/{source}"] for target, source in lists["urls"]]}
            (tmp_path / "policy" / "x64.json").write_text(json.dumps(whole))
            said = micropython(tmp_path, "-c", f"import mip\nmip.install({at + '/x64.json'!r}, target='lib')")
        finally:
            server.shutdown()
    installed = {p.relative_to(tmp_path / "lib") for p in (tmp_path / "lib").rglob("*") if p.is_file()}
    assert said.endswith("Done")
    assert installed == {Path(target) for target, _ in lists["urls"]}
    assert all((tmp_path / "lib" / t).read_bytes() == (exported / s).read_bytes() for t, s in lists["urls"])
    decided = "import hardcase\nprint(hardcase.decide(lambda sensor: None).route)"
    assert micropython(tmp_path / "lib", "-c", decided) == "local"


MPREMOTE = """
import pathlib, sys
from mpremote import mip
class Board:  # whose files are a folder
    def fs_exists(self, path):
        return True
    def fs_writefile(self, path, data, progress_callback=None):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(data)
mip._install_json(Board(), sys.argv[1], "", "lib", None, True)
"""


def test_mpremote_installs_a_policy_from_its_folder(exported: Path, tmp_path: Path) -> None:
    if not (UMQTT / "mpremote").exists():
        pytest.skip("mpremote: make toolchains")
    command = [sys.executable, "-c", MPREMOTE, str(exported / "x64.json")]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PYTHONPATH": str(UMQTT / "mpremote")}, timeout=60)
    decided = "import hardcase\nprint(hardcase.decide(lambda sensor: None).route)"
    assert micropython(tmp_path / "lib", "-c", decided) == "local"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            "p.decide(lambda sensor: 1, item_size=9999)",
            "the program has no such sensor, item size, result or confidence",
        ),
        ("p.decide(lambda sensor: 1, dead=[99])", "the program has no such sensor, item size, result or confidence"),
        ("hardcase.Policy(bytearray(p._image)[8:], p.names)", "the image is damaged or of another version"),
        ("p._session[:] = bytes(len(p._session)) and p._done(6)", "the session was not begun with this image"),
    ],
)
def test_what_cannot_be_is_an_error_of_one_line(board: Path, call: str, line: str) -> None:
    script = f"""
import hardcase
p = hardcase.policy()
try:
    {call}
except ValueError as error:
    print(error)
"""
    assert line in micropython(board, "-c", script)


@pytest.mark.parametrize("said", ["None", "'text'", "[1, 2, 3, 4, 5]", "b'123'", "fail()"])
def test_a_sensor_that_says_no_numbers_of_its_own_has_failed(board: Path, said: str) -> None:
    script = f"""
import hardcase
def fail(): raise OSError(5)
made = hardcase.decide(lambda sensor: {said})
print(made.failed == made.sensors and len(made.sensors) > 0)
"""
    assert micropython(board, "-c", script) == "True"


def test_names_of_a_bundle_are_the_same_texts_on_a_board(tmp_path: Path) -> None:
    bundle, hostile = unpack_bundle(GOLDEN.read_bytes()), "\U0001f321\u2028\x85\x7f\x1b\0'\"\\\n{}__proto__"
    names = {
        key: [f"{hostile}{k}" for k in range(len(bundle.manifest[key]))] for key in ("features", "sensors", "classes")
    }
    made = micropython_files(load_bytes(pack_bundle(replace(bundle, manifest=bundle.manifest | names))))
    (tmp_path / "policy.json").write_bytes(made["hardcase/policy.json"])
    script = """
import json
with open("policy.json") as file:
    p = json.load(file)
texts = p["classes"] + [s["name"] for s in p["sensors"]] + [f for s in p["sensors"] for f in s["features"]]
print([[ord(c) for c in text] for text in texts])
"""
    said = {"".join(map(chr, codes)) for codes in json.loads(micropython(tmp_path, "-c", script))}
    assert said == {name for some in names.values() for name in some}


def test_the_exchange_says_the_same_under_micropython(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = micropython(board, "trace.py", "7", "2000")
    runpy.run_path(str(HERE / "trace.py"))["events"](7, 2000)
    ours = capsys.readouterr().out.strip()
    assert theirs == ours
    last = ours.splitlines()[-1]
    assert len(ours.splitlines()) == 2000
    assert all(f"'{name}'" in last for name in ("busy", "late", "rejected", "replies", "resent", "sent", "unknown"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A mosquitto on loopback."""
    with running_mosquitto(tmp_path / "broker") as broker:
        yield broker


CLOUD = """
import select
import sys
sys.path.insert(0, {umqtt!r})
import hardcase
from hardcase.cloud import Cloud
from umqtt.simple import MQTTClient
def client(name):
    mqtt = MQTTClient(name, "127.0.0.1", {port}, keepalive={keepalive})
    return mqtt, Cloud(mqtt, name, deadline_ms=1500, resend_ms=400)
mqtt, cloud = client("pump-7")
def decide(before=lambda sensor: None, cloud=cloud):
    return hardcase.decide(lambda sensor: before(sensor) or {values}[sensor], cloud)
"""
FORWARD = """
made = decide()
print(made.label, made.confidence, made.route, sorted(cloud.counters.items()))
"""
IDLE = """
other = client("pump-8")[1]
said = [decide().route, decide(cloud=other).route]
poll = select.poll()
poll.register(mqtt.sock, select.POLLIN)
while not poll.poll(300):
    other.can_ask()
print(said, decide().route, cloud._connections, decide(cloud=other).route, other._connections)
"""
CUT = """
def end(again):
    if again:
        mqtt.check_msg = lambda: end(False)
    else:
        del mqtt.check_msg
        mqtt.sock.close()
        mqtt.check_msg()
print(decide().route)
print(decide(lambda sensor: mqtt.sock.close()).route, cloud._connections)
mqtt.check_msg = lambda: end(True)
print(decide().route, cloud._connections, sorted(cloud.counters.items()))
"""


@contextmanager
def worker(broker: Broker, silent: Callable[[int], bool] = lambda n: False) -> Iterator[list[Request]]:
    """What it was asked; it does not reply to the transmissions of which ``silent`` says so."""
    loaded = load_bundle(GOLDEN)
    program, hpc = loaded.bundle.program, bytes.fromhex(loaded.manifest.hpc)
    dtypes = [program.features[f].dtype for f in program.uplink.features]
    asked: list[Request] = []

    def answer(client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        asked.append(unpack_request(message.payload, dtypes, hpc))
        if not silent(len(asked)):
            reply = pack_reply(Reply(asked[-1].id, hpc, OK, result=1, confidence=9_900))
            client.publish(message.topic.replace("/request", "/reply"), reply)

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = answer
    client.connect(broker.host, broker.port)
    client.subscribe("hardcase/v1/+/request", 1)
    client.loop_start()
    try:
        yield asked
    finally:
        client.loop_stop()
        client.disconnect()


def forward(board: Path, broker: Broker, script: str, keepalive: int = 60) -> list[str]:
    """The lines that a script prints which decides a hard case of the golden program, by MicroPython's own umqtt."""
    if not UMQTT.exists():
        pytest.skip("umqtt: make toolchains")
    loaded = load_bundle(GOLDEN)
    program, manifest = loaded.bundle.program, loaded.manifest
    case = next(c for c in loaded.bundle.golden if c.expected.route == "cloud" and not c.failed and c.budget is None)
    values = {
        name: [case.readings[f] for f in sensor.features]
        for name, sensor in zip(manifest.sensors, program.sensors, strict=True)
    }
    head = CLOUD.format(umqtt=str(UMQTT), port=broker.port, keepalive=keepalive, values=values)
    return micropython(board, "-c", head + script).splitlines()


@pytest.mark.parametrize("silent", [0, 1, 9])
def test_a_hard_case_gets_its_answer_from_a_broker(board: Path, broker: Broker, silent: int) -> None:
    """The worker ignores the first transmissions: the request is sent again under its id, or the fallback answers."""
    with worker(broker, lambda n: n <= silent) as asked:
        said = forward(board, broker, FORWARD)[0]
    assert len({request.id for request in asked}) == 1
    if silent < 9:
        again = f", ('resent', {silent})" if silent else ""
        label = load_bundle(GOLDEN).manifest.classes[1]
        assert said == f"{label} 9900 cloud [('replies', 1){again}, ('sent', 1)]"
    else:
        assert " degraded " in said
        assert len(asked) >= 2
    assert {request.readings for request in asked} == {asked[0].readings}


def test_a_broker_that_ended_an_idle_connection_is_asked_again_and_pings_keep_it(board: Path, broker: Broker) -> None:
    with worker(broker):
        said = forward(board, broker, IDLE, keepalive=1)
    assert said == ["['cloud', 'cloud'] cloud 2 cloud 1"]


def test_a_connection_lost_within_a_decision_is_made_again_and_its_request_sent_again(
    board: Path, broker: Broker
) -> None:
    with worker(broker, lambda n: n == 3) as asked:
        said = forward(board, broker, CUT)
    assert said == ["cloud", "cloud 2", "cloud 3 [('replies', 3), ('resent', 1), ('sent', 3)]"]
    assert len(asked) == 4
    assert asked[2].id == asked[3].id
