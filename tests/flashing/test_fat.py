# SPDX-License-Identifier: Apache-2.0
"""The FAT writer beside mtools and fsck.vfat; power cuts at every write; damaged file systems are refused."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardcase.flashing.fat import FatVolume
from hardcase_edge.errors import HardcaseError, InputError
from tests.helpers.cards import boot_image
from tests.helpers.edge.cut_runs import Act, Cuts, Run, State, Step
from tests.helpers.edge.power_cuts import Operation, Recorder, Tree
from tests.helpers.flash_cuts import kind_of_image, sectors
from tests.helpers.tools import need

SHAPES = [("-F", "16", "-s", "1"), ("-F", "16", "-s", "4", "-f", "1"), ("-F", "32", "-s", "1")]
SIZES = {"16": 2_300_000, "32": 35_000_000}


def made(path: Path, flags: tuple[str, ...] = SHAPES[0], files: dict[str, bytes] | None = None) -> Path:
    n_bytes = 9_500_000 if "4" in flags else SIZES[flags[1]]
    return boot_image(path, files or {}, *flags, n_bytes=n_bytes, has_table=False)


def volume(path: Path) -> FatVolume:
    file = os.open(path, os.O_RDWR)  # closed with the process: a test has a few of them
    return FatVolume(file, 0, os.path.getsize(path), path.name)


def check(path: Path) -> None:
    (fsck,) = need("fsck.vfat")
    done = subprocess.run([fsck, "-n", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_a_file_system_whose_copies_of_the_fat_differ_is_refused(tmp_path: Path) -> None:
    """Its first copy may be years old, and a chain of clusters that is read there another file's."""
    path = made(tmp_path / "card.img", SHAPES[2])
    sector = bytearray(path.read_bytes()[:512])
    sector[40] = 0x81  # the second copy alone is kept
    with path.open("r+b") as file:
        file.write(sector)
    with pytest.raises(InputError, match="only one of its copies of the FAT"):
        volume(path)


@pytest.mark.parametrize("flags", SHAPES, ids=lambda f: " ".join(f))
def test_other_tools_read_what_it_writes_and_it_reads_what_they_write(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (mtype,) = need("mtype")
    rng = random.Random(1)
    before = {"user-data": b"old", "A long name of a file.txt": b"kept", "cmdline.txt": b"x"}
    path = made(tmp_path / "card.img", flags, before)
    files = {"user-data": b"", "cmdline.txt": b"", "a long name of a file.txt": b"kept"}
    disk = volume(path)
    assert disk.read("a long name of a file.txt", 10) == b"kept"
    for k in range(120):
        name = rng.choice(["user-data", "cmdline.txt", "first.sh", *[f"hardcase/f{n}.txt" for n in range(40)]])
        if rng.random() < 0.2 and "/" in name:
            disk.remove(name)
            files.pop(name, None)
        else:
            files[name] = rng.randbytes(rng.choice([0, 1, 511, 512, 513, 5_000, 20_000]))
            disk.write(name, files[name])
        assert disk.read(name, 20_000) == files.get(name), k
    check(path)
    again = volume(path)
    assert {name: again.read(name, 20_000) for name in files} == files
    for name in ("user-data", "first.sh", "hardcase/f0.txt"):
        shown = subprocess.run([mtype, "-i", str(path), f"::{name}"], capture_output=True, timeout=60, check=False)
        assert (shown.stdout if name in files else shown.returncode) == files.get(name, 1)


def test_a_full_file_system_keeps_the_old_file(tmp_path: Path) -> None:
    path = made(tmp_path / "card.img", files={"user-data": b"old"})
    disk = volume(path)
    with pytest.raises(InputError, match=r"card\.img has \d+ bytes free, and 4000256 are needed; remove files there"):
        disk.write("user-data", bytes(4_000_000))
    assert volume(path).read("user-data", 10) == b"old"
    check(path)


def test_a_full_root_folder_is_said(tmp_path: Path) -> None:
    path = made(tmp_path / "card.img", (*SHAPES[0], "-r", "16"))
    disk = volume(path)
    for k in range(16):
        disk.write(f"f{k}.txt", b"x")
    with pytest.raises(InputError, match=r"the root folder of card\.img is full"):
        disk.write("f16.txt", b"x")
    check(path)


class ThreeFiles(Run):
    """One is replaced, one added and one removed; a state behind each call, and another one."""

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        path = made(root / "card.img", files={"cmdline.txt": b"old line", "old.txt": b"x" * 3_000})

        def act(_: Recorder) -> None:
            writer = volume(path)
            writer.write("cmdline.txt", b"new" * 700)
            writer.write("hardcase/card.pyz", b"archive" * 500)
            writer.remove("old.txt")

        yield "three files", act

    def states(self, step: Step) -> Iterator[tuple[int, Tree]]:
        return sectors(step, random.Random(5))

    def kind(self, call: Operation) -> str:
        return kind_of_image(call)

    def look(self, root: Path) -> tuple[bytes | None, bytes | None, str]:
        """Two files, and what is wrong once another one is written."""
        try:
            after = volume(root / "card.img")
            line, archive = after.read("cmdline.txt", 9_999), after.read("hardcase/card.pyz", 9_999)
            after.write("hardcase/next.txt", b"next" * 300)
            is_kept = after.read("cmdline.txt", 9_999) == line
            is_there = after.read("hardcase/next.txt", 9_999) == b"next" * 300
            return line, archive, "" if is_kept and is_there else "the next write harms it"
        except HardcaseError as error:
            return None, None, str(error)

    def wrong(self, step: Step, started: object = None) -> Callable[[State], str]:
        """Neither the old file nor the new one."""
        allowed = [(a, b, "") for a in (b"old line", b"new" * 700) for b in (None, b"archive" * 500)]
        return lambda state: "" if state.seen in allowed else f"{state.at}: {state.seen!s}"


def test_a_cut_at_any_write_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    done = Cuts(tmp_path).replay(ThreeFiles())
    assert (done.wrong, done.n_states) == (set(), 80), done.n_states


def test_without_a_flush_a_cut_is_found(tmp_path: Path) -> None:
    """The flush between a file's clusters and the folder's entry that names them."""
    assert Cuts(tmp_path, lambda kind: kind == "sync behind write_fat").replay(ThreeFiles()).wrong


def test_a_damaged_file_system_is_refused_or_read_within_bounds(tmp_path: Path) -> None:
    path = made(tmp_path / "card.img", files={"cmdline.txt": b"x" * 3_000})
    volume(path).write("hardcase/card.pyz", b"y" * 3_000)
    whole, rng, refused = path.read_bytes(), random.Random(2), []
    root = whole.index(b"CMDLINE TXT") // 512 * 512
    places = [*range(11, 64), *range(510, 544), *range(root, root + 160)]  # first sector, table, root folder
    file = os.open(path, os.O_RDWR)
    for _ in range(200):
        changed = rng.sample(places, rng.choice([1, 1, 3]))
        for k in changed:
            os.pwrite(file, rng.randbytes(1), k)
        try:
            after = FatVolume(file, 0, len(whole), path.name)
            for name in ("cmdline.txt", "hardcase/card.pyz"):
                assert len(after.read(name, 9_999) or b"") <= 9_999
        except InputError as error:
            refused.append(str(error))
        for k in changed:
            os.pwrite(file, whole[k : k + 1], k)
    assert 20 < len(refused) < 200
    assert all(len(message.splitlines()) == 1 for message in refused)


def test_a_chain_that_runs_in_a_circle_ends(tmp_path: Path) -> None:
    path = made(tmp_path / "card.img", files={"cmdline.txt": b"x" * 3_000})
    data = bytearray(path.read_bytes())
    data[512 + 2 * 3 : 512 + 2 * 4] = (2).to_bytes(2, "little")  # cluster 3 leads back to 2
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        volume(path).read("cmdline.txt", 9_999)
