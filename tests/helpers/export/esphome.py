# SPDX-License-Identifier: Apache-2.0
"""ESPHome from its own environment: it checks and generates a configuration, which the host's compiler makes a program.

ESPHome would have PlatformIO fetch a platform for that. The program is compiled here from the generated sources with
the flags of the generated ``platformio.ini``; objects of ESPHome's own sources are kept for the next run.
"""

from __future__ import annotations

import configparser
import hashlib
import re
import select
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.places import ROOT
from tests.helpers.tools import need

COMMAND, OBJECTS = ROOT / "build" / "esphome" / "bin" / "esphome", ROOT / "build" / "esphome-objects"
OURS = "esphome/components/hardcase"
CLOCK = "-Wl,--wrap=_ZN7esphome9millis_64Ev"  # so that drive.h has it
STRICT = ("-Wall", "-Wextra", "-Werror=all", "-Wno-unused-parameter")  # as Espressif's framework, but for unused names
WAIT_S = 120
BACKEND = "mqtt_backend_libretiny.h"
ELSEWHERE = re.compile(r'#include "(lwip/\w+|esphome/components/json/json_util|mqtt_component)\.h"\n')  # what it has


def _need_it() -> None:
    if not COMMAND.exists():
        pytest.skip("esphome: make toolchains")


def esphome(*words: object) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    _need_it()
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def own_mqtt(folder: Path, stand_in: Path) -> None:
    """ESPHome's own MQTT client as a component for the host, with the backend that stands in for libraries."""
    _need_it()
    sources = next(COMMAND.parents[1].glob("lib/python3*/site-packages/esphome/components/mqtt"))
    folder.mkdir()
    shutil.copyfile(stand_in / "mqtt.epy", folder / "__init__.py")
    for name in (BACKEND, "mqtt_backend.h"):
        shutil.copyfile((stand_in if name == BACKEND else sources) / name, folder / name)
    for name in ("mqtt_client.h", "mqtt_client.cpp"):
        text = ELSEWHERE.sub("", (sources / name).read_text()).replace("ip.is_set()", "false")  # the host's have it not
        if name.endswith(".h"):
            text = text.replace("defined(USE_LIBRETINY)", "defined(USE_HOST)")
        (folder / name).write_text(text)


def compile_host(configuration: Path, name: str) -> Path:
    """The program of a configuration for the host platform, whose node has this name."""
    need("g++", "cc")
    made = esphome("compile", "--only-generate", configuration)
    assert made.returncode == 0, made.stdout + made.stderr
    build = configuration.parent / ".esphome" / "build" / name
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    settings.read(build / "platformio.ini")
    flags, source = settings[f"env:{name}"]["build_flags"].split(), build / "src"
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in sorted(source.rglob("esphome/**/*")):
        if path.is_file() and _is_theirs(path.relative_to(source)):
            digest.update(path.read_bytes())
    kept = OBJECTS / digest.hexdigest()[:16]

    def compiled(path: Path) -> Path:
        name = path.relative_to(source)
        out = (kept if _is_theirs(name) else build / "objects") / f"{name}.o"
        if not out.exists():
            _compile(path, out, [*flags, f"-I{source}"])
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sorted([*source.rglob("*.c"), *source.rglob("*.cpp")])))
    program = build / "program"
    subprocess.run(["g++", *map(str, objects), "-o", str(program), CLOCK, "-lpthread"], check=True, timeout=120)
    return program


def _is_theirs(name: Path) -> bool:
    """Whether a source is ESPHome's own, and the same whatever this component is; one holds the time of the build."""
    return name.parts[0] == "esphome" and not name.is_relative_to(OURS) and "build_info" not in name.name


def _compile(path: Path, out: Path, flags: list[str]) -> None:
    language = ["g++", *flags] if path.suffix == ".cpp" else ["cc", "-std=gnu17", flags[-1]]
    how = ["-O1", *STRICT] if OURS in path.as_posix() else ["-O0"]
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(f".{time.monotonic_ns()}")
    run = subprocess.run(
        [*language, *how, "-c", str(path), "-o", str(part)], capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr[:3000]
    part.replace(out)


class Host:
    """A program of ``drive.h`` that runs: lines go in, and those that begin with @ come out."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.log = ""
        self.is_silent = self._is_up = False

    def connect(self, is_up: bool) -> None:
        """Have a connection, a new one after a request without a reply, or none."""
        if self._is_up and (self.is_silent or not is_up):
            self.say("down")
            self._is_up = False
        if is_up and not self._is_up:
            self.say("up")
        self._is_up, self.is_silent = is_up, False

    def say(self, *lines: str) -> None:
        """Send lines."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self._process.stdin.flush()

    def line(self) -> list[str]:
        """The words of its next line."""
        assert self._process.stdout is not None
        while True:
            assert select.select([self._process.stdout], [], [], WAIT_S)[0], self.log[-2000:]
            text = self._process.stdout.readline().decode("utf-8", "replace")
            assert text, self.log[-2000:]
            if text.startswith("@"):
                return text[1:].split()
            self.log += text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
