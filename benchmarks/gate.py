# SPDX-License-Identifier: Apache-2.0
"""What a gate adds: microseconds of ``Gate.decide`` beside the user's functions, and milliseconds of its server.

python -m benchmarks run gate [--seconds 10] [--rate 500]

The back end, the server and the client are processes of this machine, on loopback. The client sends at fixed times,
whether or not earlier answers have come, and measures from these times; it asks the back end and the server by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import psutil

import hardcase
from benchmarks.pages import markdown
from tests.helpers.cli.gates import NAMES, made_gate, requests, said

ROUNDS = 20
CONNECTIONS = 16
TURNS = 3
BACK = """
import asyncio
BODY = b'{"label": "cat", "confidence": 0.9}'
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(BODY), BODY)
async def talk(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0]))
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
ASKED = b'{"input": "A bad film.", "budget": 1}'  # pays for one call


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn (default %(default)s)")
    parser.add_argument("--rate", type=int, default=500, help="requests a second (default %(default)s)")


def median_us(decide: Callable[[Any], Any], cases: Sequence[Any]) -> float:
    """The median of all decisions."""
    times = []
    for _ in range(ROUNDS):
        for case in cases:
            began = time.perf_counter()
            decide(case)
            times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def woken_us() -> float:
    """The median time in which a thread that waits gets something and gives it back: what a deadline costs anyone."""
    given: SimpleQueue[Any] = SimpleQueue()
    back: SimpleQueue[Any] = SimpleQueue()

    def echo() -> None:
        for value in iter(given.get, None):
            back.put(value)

    def ask(value: Any) -> None:
        given.put(value)
        back.get(timeout=10)

    Thread(target=echo, daemon=True).start()
    median = median_us(ask, requests())
    given.put(None)
    return median


def overhead() -> dict[str, Any]:
    """Medians of a decision, in us: of the gate with and without a deadline, awaited, and of the policy alone."""
    folder, rows = made_gate()[0], requests()

    def plain(name: str) -> Callable[[Any], Any]:
        return lambda row: said(row, name)

    def awaited(name: str) -> Callable[[Any], Any]:
        async def call(row: Any) -> Any:
            return said(row, name)

        return call

    with_deadline = hardcase.Gate(folder, {name: plain(name) for name in NAMES}, coin_seed=1)
    without = hardcase.Gate(folder, {name: plain(name) for name in NAMES}, deadline_ms=None, coin_seed=1)
    coroutines = hardcase.Gate(folder, {name: awaited(name) for name in NAMES}, coin_seed=1)
    device = hardcase.load(folder / "model.hcb", coin_seed=1)
    cases = [{name: [x for x in said(row, name) if x is not None] for name in NAMES} for row in rows]

    async def all_awaited() -> float:
        times = []
        for row in rows * ROUNDS:
            began = time.perf_counter()
            await coroutines.adecide(row)
            times.append(time.perf_counter() - began)
        return 1e6 * statistics.median(times)

    return {
        "deadline_us": median_us(with_deadline.decide, rows),
        "no_deadline_us": median_us(without.decide, rows),
        "awaited_us": asyncio.run(all_awaited()),
        "policy_us": median_us(device.decide, cases),
        "woken_us": woken_us(),
        "calls": statistics.mean(len(with_deadline.decide(row).asked) for row in rows),
    }


async def latencies(port: int, path: str, rate: int, seconds: float) -> list[float]:
    """Milliseconds from the time at which each request was due to its whole answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    sent = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(ASKED), ASKED)
    free: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    times: list[float] = []

    async def one(due: float) -> None:
        reader, writer = await free.get()
        writer.write(sent)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path} answered {answer[:40]!r}")
        await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        times.append(1000 * (time.perf_counter() - due))
        free.put_nowait((reader, writer))

    began, tasks = time.perf_counter() + 0.1, []
    for k in range(int(rate * seconds)):
        due = began + k / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    while not free.empty():
        free.get_nowait()[1].close()
    return times[len(times) // 10 :]  # without what warms up


def served(rate: int, seconds: float) -> dict[str, Any]:
    """Latencies of the back end and of the server before it, by turns."""
    folder = str(made_gate()[0])
    gc.collect()
    gc.freeze()  # else a collection in the client, of all that training has loaded, stalls it for a part of a second
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen([sys.executable, "-c", BACK], stdout=subprocess.PIPE, text=True) as back,
    ):
        assert back.stdout is not None
        port = int(back.stdout.readline())
        path = Path(name) / "gate.toml"
        apis = "".join(f'[apis.{api}]\nurl = "http://127.0.0.1:{port}/{api}"\n' for api in NAMES)
        path.write_text(f'name = "pets"\nfolder = {json.dumps(folder)}\n{apis}', encoding="utf-8")
        words = [sys.executable, "-m", "hardcase.cli", "serve", str(path), "--bind", "127.0.0.1:0", "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            own = int(json.loads(server.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
            turns, before = [], psutil.Process(server.pid).cpu_times()
            for _ in range(TURNS):
                pair = {"load": os.getloadavg()[0]}
                for which, at, to in (("back", port, "/small"), ("server", own, "/ask")):
                    found = sorted(asyncio.run(latencies(at, to, rate, seconds)))
                    pair |= {f"{which}_p50": statistics.median(found), f"{which}_p99": found[int(0.99 * len(found))]}
                turns.append(pair)
            used = psutil.Process(server.pid).cpu_times()
            server.terminate()
            counts = json.loads(server.stdout.read().splitlines()[-1])
        back.terminate()
    sent, cpu_s = TURNS * int(rate * seconds), used.user + used.system - before.user - before.system
    answered = counts.get("json answered", 0)
    return {"turns": turns, "rate": rate, "sent": sent, "answered": answered, "cpu_ms": 1000 * cpu_s / sent}


def run(args: Any) -> dict[str, Any]:
    """Measure both."""
    return {"overhead": overhead(), "server": served(args.rate, args.seconds)}


def page(m: dict[str, Any]) -> str:
    """The figures."""
    o, s = m["overhead"], m["server"]
    rows = [
        ("functions in threads, with a deadline", o["deadline_us"]),
        ("functions in the caller's thread", o["no_deadline_us"]),
        ("coroutines, with a deadline", o["awaited_us"]),
        ("the policy alone, from readings", o["policy_us"]),
    ]
    if "woken_us" in o:  # the first record has none
        rows.append(("a thread woken and waited for, without a gate", o["woken_us"]))
    keys = ("back_p50", "back_p99", "server_p50", "server_p99")
    turns = [
        (str(k + 1), f"{t['load']:.1f}", *(f"{t[key]:.2f}" for key in keys), f"{t['server_p99'] - t['back_p99']:.2f}")
        for k, t in enumerate(s["turns"])
    ]
    over = statistics.median(t["server_p99"] - t["back_p99"] for t in s["turns"])
    mid = statistics.median(t["server_p50"] - t["back_p50"] for t in s["turns"])
    return (
        markdown(("a decision", "us, median"), [(what, f"{us:.0f}") for what, us in rows])
        + f"\n\nFunctions take no time, and a decision calls {o['calls']:.2f} of them on average.\n"
        f"The goal is 60 us beside the functions: {'met' if o['deadline_us'] <= 60 else '**missed**'} with threads and "
        f"a deadline, {'met' if o['awaited_us'] <= 60 else '**missed**'} with coroutines.\n\n"
        + markdown(
            ("turn", "load of the machine", "back end p50, ms", "p99", "server p50, ms", "p99", "p99 more"), turns
        )
        + f"\n\nOf {s['sent']:,} requests, {s['rate']} a second, {s['answered']:,} were answered and counted.\n"
        f"The server's p99 is {over:.2f} ms above the back end's in the median turn, its p50 {mid:.2f} ms; the goal of "
        f"1.5 ms at p99 is {'met' if over <= 1.5 else '**missed**'}.\n"
        f"The server took {s['cpu_ms']:.2f} ms of a processor for each request; three processes share two cores.\n"
    )


def problems(m: dict[str, Any]) -> list[str]:
    """What is not as it should be, whatever the machine."""
    s = m["server"]
    return [] if s["sent"] == s["answered"] else [f"{s['answered']} of {s['sent']} requests were answered"]
