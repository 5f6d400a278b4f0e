# SPDX-License-Identifier: Apache-2.0
"""What an update over the air takes: time and bytes on a bad link, bytes sent twice after cuts, memory, and lives.

    sudo python benchmarks/air.py [--lives 1000] [--runs 3] [--out benchmarks/results/air.json] [--render]

A broker and ``hardcase cloud offer`` are in one network namespace, a device in another, and between them is a link of
50 +- 10 ms one way and 5 % loss. A bundle of 1.4 MB goes over it, in turn as an update and as a plain copy by TCP.
Then the device's connection is cut ten times on the way. Lives are those of ``tests/helpers/edge/air_world.py``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from air_rig import PORT, Rig, process
from pages import ROOT, markdown, options, results
from slow_link import CLOUD, CLOUD_IP, DEVICE, SlowLink

sys.path.insert(0, str(ROOT))

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.update.transfer import MOST
from tests.helpers.edge.air_world import live, world

PAGE = ROOT / "docs" / "benchmarks" / "air.md"
STEPS = 1_000  # of a life
PROXY_PORT, COPY_PORT = 18_831, 18_832
N_CUTS = 10
HEAD = """# Over the air

`sudo python benchmarks/air.py` wrote this page.
The link has 50 ± 10 ms one way and loses 5 % of all packets, by a process between two network namespaces.
*bytes* are all that either side sent into the link, headers and lost packets too.
The update is offered by `hardcase cloud offer` through mosquitto to `hardcase-edge run`, which also checks the bundle \
and writes it; the copy is one TCP connection without either.

"""


# ---------------------------------------------------------------- time and bytes


def update_once(rig: Rig, link: SlowLink) -> dict[str, float]:
    """One update; the clock runs from the offer's first byte until the bundle is in its slot."""
    with rig.device() as (_, lines):
        new = rig.write_bundle()
        time.sleep(1.0)
        with rig.offering(new):
            began, n_bytes = time.monotonic(), link.n_bytes
            lines.wait_for("is in slot b")
            seconds, n_bytes = time.monotonic() - began, link.n_bytes - n_bytes
        rig.bundle = new
    return {"seconds": seconds, "bytes": n_bytes}


SEND = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
socket_, _ = listener.accept()
socket_.sendall(open(sys.argv[3], "rb").read())
socket_.shutdown(socket.SHUT_WR)
socket_.recv(1)
"""
TAKE = """
import socket, sys, time
began = time.monotonic()
socket_ = socket.create_connection((sys.argv[1], int(sys.argv[2])))
n = 0
while part := socket_.recv(65536):
    n += len(part)
print(time.monotonic() - began, n, flush=True)
"""


def copy_once(rig: Rig, link: SlowLink) -> dict[str, float]:
    """One copy of the bundle over one TCP connection."""
    sender = (sys.executable, "-c", SEND, CLOUD_IP, COPY_PORT, rig.bundle)
    with process(*sender, space=CLOUD, stdout=subprocess.PIPE) as sending:
        assert sending.stdout is not None
        sending.stdout.readline()
        n_bytes = link.n_bytes
        taker = (sys.executable, "-c", TAKE, CLOUD_IP, COPY_PORT)
        with process(*taker, space=DEVICE, stdout=subprocess.PIPE) as taking:
            assert taking.stdout is not None
            seconds, n = taking.stdout.readline().split()
        assert int(n) == rig.bundle.stat().st_size
    return {"seconds": float(seconds), "bytes": link.n_bytes - n_bytes}


# ---------------------------------------------------------------- cuts

PROXY = """
import asyncio, signal, sys
port, host, to = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
writers = set()

async def pump(reader, writer):
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def serve(reader, writer):
    there_reader, there = await asyncio.open_connection(host, to)
    writers.update((writer, there))
    await asyncio.gather(pump(reader, there), pump(there_reader, writer))

def cut():
    for writer in writers:
        writer.transport.abort()
    writers.clear()

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print("up", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def cut_run(rig: Rig) -> dict[str, Any]:
    """An update whose connection is cut ten times; what is sent twice."""
    proxy = ("ip", "netns", "exec", DEVICE, sys.executable, "-c", PROXY, PROXY_PORT, CLOUD_IP, PORT)
    with process(*proxy, stdout=subprocess.PIPE) as proxying:
        assert proxying.stdout is not None
        proxying.stdout.readline()
        with rig.device(PROXY_PORT, "127.0.0.1") as (_, lines):
            new = rig.write_bundle()
            part = Store(rig.folder / f"store-{rig.seed - 1}").folder / "incoming" / sha256(new.read_bytes()).hex()
            with rig.offering(new) as offering:
                for k in range(N_CUTS):
                    _until(lambda k=k: _share(part) > (k + 0.5) / (N_CUTS + 1))  # type: ignore[misc]
                    proxying.send_signal(signal.SIGUSR1)
                lines.wait_for("is in slot b")
                lines.lines.clear()
                lines.wait_for("passed its trial")
                out, _ = offering.communicate(timeout=60)
    sent = json.loads(out.splitlines()[-1])["chunks"]
    n_chunks = -(-new.stat().st_size // 16_384)
    return {"cuts": N_CUTS, "chunks": n_chunks, "sent": sent, "again": sent - n_chunks, "window": MOST}


def _share(part: Path) -> float:
    """How much of a file has come: the share of its pages that are not zero."""
    data = part.read_bytes() if part.exists() else b""
    pages = range(0, len(data), 4_096)
    return sum(any(data[k : k + 4_096]) for k in pages) / max(len(pages), 1)


def _until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not is_true():
        if time.monotonic() > end:
            raise SystemExit("it did not happen in time")
        time.sleep(0.1)


# ---------------------------------------------------------------- memory

IDLE = """
import sys
from pathlib import Path
def resident():
    lines = Path("/proc/self/smaps_rollup").read_text().split()
    return int(lines[lines.index("Rss:") + 1])
import hardcase_edge.running.run, hardcase_edge.link.link, hardcase_edge.fleet.store.run
from hardcase_edge.fleet.store.folder import Store
before = resident()
from hardcase_edge.fleet.update.air import Air
air = Air(Store(sys.argv[1]), key=None, metered=None, note=print, on_ready=print)
started = resident()
class Link:
    device_id = "dev"
    def listen(self, topic, heard): pass
    def publish(self, topic, payload): return True
air.listen(Link())
air.begins()
air._put(b"x" * 100)
import time
time.sleep(0.5)
print(started - before, resident() - before)
"""


def idle_kb() -> list[int]:
    """KB of resident memory that updates take: until a message comes, and after one."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [subprocess.run([sys.executable, "-c", IDLE, folder], capture_output=True, check=True) for _ in range(5)]
    return [int(median(int(run.stdout.split()[k]) for run in runs)) for k in (0, 1)]


# ---------------------------------------------------------------- all


def measure(n_runs: int, n_lives: int) -> dict[str, Any]:
    """All figures."""
    return {**link_figures(n_runs), "idle_kb": idle_kb(), "lives": life_figures(n_lives)}


def link_figures(n_runs: int) -> dict[str, Any]:
    """What needs the slow link."""
    updates, copies = [], []
    with tempfile.TemporaryDirectory() as folder, SlowLink() as link:
        rig = Rig(Path(folder))
        with process("mosquitto", "-c", rig.folder / "mosquitto.conf", space=CLOUD, stderr=subprocess.DEVNULL):
            time.sleep(1.0)
            for _ in range(n_runs):
                copies.append(copy_once(rig, link))
                updates.append(update_once(rig, link))
                print(f"copy {copies[-1]}, update {updates[-1]}", file=sys.stderr)
            cuts = cut_run(rig)
            size = rig.bundle.stat().st_size
    return {"size": size, "updates": updates, "copies": copies, "cuts": cuts}


def life_figures(n_lives: int) -> dict[str, Any]:
    """What the simulation gives."""
    began, events = time.process_time(), Counter[str]()
    with world():
        for seed in range(n_lives):
            events += live(seed, STEPS).events
    seconds = time.process_time() - began
    return {"lives": n_lives, "steps": n_lives * STEPS, "cpu_s": seconds, "events": dict(events)}


def page(figures: dict[str, Any]) -> str:
    """The page."""
    rows, middle = [], {}
    for name, runs in (("update", figures["updates"]), ("copy by TCP", figures["copies"])):
        middle[name] = {k: median(run[k] for run in runs) for k in ("seconds", "bytes")}
        seconds = ", ".join(f"{run['seconds']:.1f}" for run in runs)
        cells = (f"{middle[name]['seconds']:.1f}", seconds, f"{middle[name]['bytes']:,.0f}")
        rows.append((f"{name}", *cells))
    ratio = {k: middle["update"][k] / middle["copy by TCP"][k] for k in ("seconds", "bytes")}
    cuts, lives, idle = figures["cuts"], figures["lives"], figures["idle_kb"]
    events = ", ".join(f"{n:,} {what}" for what, n in sorted(lives["events"].items()) if what != "calm")
    return (
        HEAD
        + f"The bundle has {figures['size']:,} bytes; medians of {len(figures['updates'])} runs.\n\n"
        + markdown(("", "seconds", "of each run", "bytes"), rows)
        + f"\n\nAn update took {ratio['seconds']:.2f} times the copy's time and {ratio['bytes']:.2f} times its bytes.\n"
        f"After {cuts['cuts']} cut connections {cuts['again']} chunks had been sent again, of the bundle's "
        f"{cuts['chunks']}; "
        f"{cuts['cuts']} windows have up to {cuts['cuts'] * cuts['window']}.\n"
        f"A device that waits for updates takes {idle[0]} KB of memory for it, and {idle[1]} KB after the first "
        "message (medians of 5 processes).\n\n"
        f"{lives['lives']:,} lives of a device in virtual time, {lives['steps']:,} steps in {lives['cpu_s']:.0f} s of "
        f"processor time: {events}.\n"
        "In each of them one slot could run after every step, versions never fell, every report said what ran, and at "
        "its end the bundle that was offered last ran for good.\n"
    )


def main() -> None:
    """Measure, and write the page."""
    parser = options(__doc__.split("\n")[0], "air")
    parser.add_argument("--runs", type=int, default=3, help="updates and copies (default %(default)s)")
    parser.add_argument("--lives", type=int, default=1_000, help=f"of {STEPS} steps each (default %(default)s)")
    args = parser.parse_args()
    PAGE.write_text(page(results(args, lambda: measure(args.runs, args.lives))), encoding="utf-8")


if __name__ == "__main__":
    main()
