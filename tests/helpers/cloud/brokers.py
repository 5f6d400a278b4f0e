# SPDX-License-Identifier: Apache-2.0
"""A real mosquitto on a free loopback port, for tests: started, stopped, killed and restarted on the same port."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

START_S = 60.0
_random = random.Random()  # each process its own, whatever seed a test sets


def free_port() -> int:
    """A loopback port that nobody listens on now, below those that the system gives to clients (32,768 on)."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", _random.randrange(10_000, 32_768)))
            return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _mosquitto() -> str:
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.fail("mosquitto is missing: sudo apt-get install mosquitto", pytrace=False)
    return found


class Broker:
    """One mosquitto process and its folder; keeps its port and its stored sessions across restarts."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, options: dict[str, str | int | bool]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = folder
        lines = {
            "listener": f"{self.port} {self.host}",
            "set_tcp_nodelay": True,
            "allow_anonymous": True,
            "persistence": True,
            "persistence_location": f"{folder}/",
            "autosave_interval": 1,
            "max_queued_messages": 10_000,
            **({"user": "root"} if os.geteuid() == 0 else {}),
            **options,
        }
        self._config = folder / "mosquitto.conf"
        self._config.write_text("".join(f"{k} {_word(v)}\n" for k, v in lines.items()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def use(self, acl: Path, ports: dict[str, int]) -> None:
        """Take the configuration of a folder of ``hardcase cloud acl``, its listeners at other ports."""
        conf = (acl / "hardcase.conf").read_text()
        for name, port in ports.items():
            conf = conf.replace(f"listener {name}", f"listener {port} {self.host}")
        self._config.write_text(conf + ("user root\n" if os.geteuid() == 0 else ""))
        lines = (acl / "hardcase.passwords").read_text().splitlines()
        self.passwords = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"mqtt://{self.host}:{self.port}"

    @property
    def ports(self) -> tuple[int, ...]:
        """Those of all listeners."""
        return (self.port,)

    @property
    def pid(self) -> int:
        """The process that serves now."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is such a process."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and return once connections are accepted."""
        log = (self._folder / "mosquitto.log").open("ab")
        with log:
            self._process = subprocess.Popen([_mosquitto(), "-c", str(self._config)], stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not all(map(is_listening, self.ports)):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"mosquitto did not start: {self.log()[-400:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop in order (SIGTERM): sessions are saved."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once (SIGKILL), as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self, down_s: float = 0.0) -> None:
        """Stop, stay away for a while, start again on the same port."""
        self.stop()
        time.sleep(down_s)
        self.start()

    def log(self) -> str:
        """What mosquitto has said so far."""
        return (self._folder / "mosquitto.log").read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)


def _word(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def running_mosquitto(tmp_path: Path, **options: str | int | bool) -> Broker:
    """A broker that runs while the block does. ``options`` are lines of its configuration (after the listener)."""
    return Broker(tmp_path / "mosquitto", dict(options))


@contextmanager
def serving(*services: Any) -> Iterator[None]:
    """Workers, stores or desks run, each on a thread of its own, while the block does."""
    for service in services:
        service.start()
    threads = [threading.Thread(target=service.run) for service in services]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for service, thread in zip(services, threads, strict=True):
            service.stop()
            thread.join(60)
            assert not thread.is_alive()


def until(is_true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def retained(broker: Broker, topic: str) -> Any:
    """The retained JSON on a topic."""
    found: list[bytes] = []
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda c, *_: c.subscribe(topic)
    client.on_message = lambda _c, _u, m: found.append(m.payload)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        until(lambda: found)
    finally:
        client.disconnect()
        client.loop_stop()
    return json.loads(found[0])
