# SPDX-License-Identifier: Apache-2.0
"""ESPHome from its own environment: it checks and generates a configuration, which the host's compiler makes a program.

ESPHome would have PlatformIO fetch a platform for that. The program is compiled here from the generated sources with
the flags of the generated ``platformio.ini``; objects of ESPHome's own sources are kept for the next run.
"""

from __future__ import annotations

import configparser
import hashlib
import select
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from tests.helpers.places import ROOT
from tests.helpers.tools import need

__all__ = ["Host", "compile_host", "esphome"]

COMMAND, OBJECTS = ROOT / "build" / "esphome" / "bin" / "esphome", ROOT / "build" / "esphome-objects"
OURS = "esphome/components/hardcase"
STRICT = ("-Wall", "-Wextra", "-Werror=all", "-Wno-unused-parameter")  # as Espressif's framework, but for unused names
WAIT_S = 20


def esphome(*words: object) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    if not COMMAND.exists():
        pytest.skip("esphome: make toolchains")
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def compile_host(configuration: Path, name: str) -> Path:
    """The program of a configuration for the host platform, whose node has this name."""
    need("g++", "cc")
    made = esphome("compile", "--only-generate", configuration)
    assert made.returncode == 0, made.stdout + made.stderr
    build = configuration.parent / ".esphome" / "build" / name
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    settings.read(build / "platformio.ini")
    flags, source = settings[f"env:{name}"]["build_flags"].split(), build / "src"
    files = sorted(path for end in ("c", "cpp") for path in source.rglob(f"*.{end}"))
    theirs = [path for path in source.rglob("esphome/**/*") if path.is_file() and OURS not in path.as_posix()]
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in sorted(theirs):
        if "build_info" not in path.name:  # the time of the build
            digest.update(path.read_bytes())
    kept = OBJECTS / digest.hexdigest()[:16]

    def compiled(path: Path) -> Path:
        name = path.relative_to(source).as_posix()
        is_kept = name.startswith("esphome/") and OURS not in name and "build_info" not in name
        out = (kept if is_kept else build / "objects") / f"{name}.o"
        if out.exists():
            return out
        out.parent.mkdir(parents=True, exist_ok=True)
        language = ["cc", "-std=gnu17"] if path.suffix == ".c" else ["g++", *flags]
        strict = STRICT if OURS in name else ()
        part = out.with_suffix(f".{time.monotonic_ns()}")
        command = [*language, *strict, "-O1" if OURS in name else "-O0", f"-I{source}", "-c", str(path), "-o", str(part)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert run.returncode == 0, run.stderr[:3000]
        part.replace(out)
        return out

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, files))
    program = build / "program"
    subprocess.run(["g++", *map(str, objects), "-o", str(program), "-lpthread"], check=True, timeout=120)
    return program


class Host:
    """A program of ``drive.h`` that runs: lines go in, and those that begin with @ come out."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.log = ""

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
