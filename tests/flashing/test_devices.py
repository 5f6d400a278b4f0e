# SPDX-License-Identifier: Apache-2.0
"""Which block devices are cards, on trees as /sys and /proc have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardcase.flashing.devices import candidates, check_card
from hardcase_edge.errors import InputError


class Machine:
    """A /sys and a /proc."""

    def __init__(self, folder: Path) -> None:
        self.sys, self.proc = folder / "sys", folder / "proc"
        (self.sys / "block").mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        self.mounts: list[str] = []
        self.add("sda", "8:0", parts=2)
        self.mount("8:1", "/dev/sda1", "/")

    def add(self, name: str, number: str, *, parts: int = 1, **files: str) -> Path:
        folder = self.sys / "block" / name
        major, minor = number.split(":")
        texts = {"dev": number, "size": "62500000", "removable": "0", "ro": "0", "device/model": "Disk", **files}
        for k in range(1, parts + 1):
            part = f"{name}p{k}" if name[-1].isdigit() else f"{name}{k}"
            texts |= {f"{part}/dev": f"{major}:{int(minor) + k}", f"{part}/partition": str(k)}
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(f"{text}\n")
        return folder

    def mount(self, number: str, source: str, place: str) -> None:
        self.mounts.append(f"36 25 {number} / {place} rw,relatime shared:1 - ext4 {source} rw\n")
        (self.proc / "self" / "mountinfo").write_text("".join(self.mounts))

    def refusal(self, name: str) -> str:
        return next(c.refusal for c in candidates(self.sys, self.proc) if c.path == f"/dev/{name}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_card_in_a_reader_is_one_and_the_disk_of_the_system_is_not(machine: Machine) -> None:
    machine.add("sdb", "8:16", removable="1", **{"device/model": "Card Reader"})
    machine.add("loop0", "7:0", size="0", parts=0)
    listed = [(c.path, c.size, c.model, c.refusal) for c in candidates(machine.sys, machine.proc)]
    assert listed == [
        ("/dev/sda", 32_000_000_000, "Disk", "the running system is on it (/)"),
        ("/dev/sdb", 32_000_000_000, "Card Reader", ""),
    ]
    check_card(Path("/dev/sdb"), machine.sys, machine.proc)


def test_an_sd_card_in_a_slot_is_one_and_soldered_memory_is_not(machine: Machine) -> None:
    machine.add("mmcblk0", "179:0", **{"device/type": "SD"})
    machine.add("mmcblk1", "179:8", **{"device/type": "MMC"})
    assert machine.refusal("mmcblk0") == ""
    assert machine.refusal("mmcblk1") == "it is not removable"


@pytest.mark.parametrize(
    ("name", "files", "refusal"),
    [
        ("sdc", {}, "it is not removable"),
        ("sdc", {"removable": "1", "ro": "1"}, "it is read-only; slide the card's lock"),
        ("sdc", {"removable": "1", "size": "99999999999"}, "it is larger than any card"),
        ("sdc", {"removable": "1", "sdc1/holders/dm-0/dev": "253:0"}, "something is built on it (RAID, LVM or"),
    ],
)
def test_what_is_not_a_free_card_is_refused(machine: Machine, name: str, files: dict[str, str], refusal: str) -> None:
    machine.add(name, "8:32", **files)
    assert machine.refusal(name).startswith(refusal)


@pytest.mark.parametrize("source", ["/dev/sdb1", "/dev/root", "/dev/disk/by-label/bootfs"])
def test_a_mounted_card_is_refused_however_its_source_is_named(machine: Machine, source: str) -> None:
    machine.add("sdb", "8:16", removable="1")
    machine.mount("8:17", source, "/media/me/bootfs")
    assert machine.refusal("sdb") == "it is mounted at /media/me/bootfs; unmount it"


def test_a_card_that_the_system_runs_from_or_swaps_to_is_refused(machine: Machine) -> None:
    machine.add("mmcblk0", "179:0", parts=2, **{"device/type": "SD"})
    machine.mount("179:1", "/dev/mmcblk0p1", "/boot/firmware")
    assert machine.refusal("mmcblk0") == "the running system is on it (/boot/firmware)"
    machine.add("sdb", "8:16", parts=2, removable="1")
    (machine.proc / "swaps").write_text("Filename Type Size\n/dev/sdb2 partition 1048572 0 -2\n")
    assert machine.refusal("sdb") == "the running system swaps to it"


def test_a_partition_is_not_a_whole_device(machine: Machine) -> None:
    machine.add("sdb", "8:16", removable="1")
    with pytest.raises(InputError, match="/dev/sdb1 is not flashed: it is not a whole device; hardcase flash --list"):
        check_card(Path("/dev/sdb1"), machine.sys, machine.proc)


def test_a_link_to_the_systems_disk_is_followed(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "sdb").symlink_to("/dev/sda")
    with pytest.raises(InputError, match="the running system is on it"):
        check_card(tmp_path / "sdb", machine.sys, machine.proc)
