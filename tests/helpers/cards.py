# SPDX-License-Identifier: Apache-2.0
"""Cards for tests: small FAT images as mkfs.vfat makes them, trees of systems, and archives with a bundle."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hardcase.cli import main
from hardcase.flashing.contents import Card, make_card
from tests.helpers.places import GOLDEN
from tests.helpers.tools import need

BUNDLE = GOLDEN / "v1.hcb"
START = 1_048_576  # of a partition
RASPBERRY_PI = {
    "cmdline.txt": b"console=tty1 root=PARTUUID=1-02 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot\n",
    "config.txt": b"arm_64bit=1\n",
    "issue.txt": b"Raspberry Pi reference 2024-07-04\n",
}
CLOUD_INIT = {"user-data": b"#cloud-config\n#hostname: pi\n", "meta-data": b"instance-id: 1\n", "cmdline.txt": b"x\n"}
MADE_KERNEL = b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", 183) + bytes(40)  # of no use but to be carried


def boot_image(
    path: Path, files: Mapping[str, bytes], *flags: str, n_bytes: int = 3_000_000, has_table: bool = True,
    gpt_type: str = "",
) -> Path:  # fmt: skip
    """An image with one FAT partition that holds these files, put there by mtools.

    ``gpt_type``: of the partition; it is then the second of a GPT, which sfdisk makes.
    """
    mkfs, mcopy = need("mkfs.vfat", "mcopy")
    start = START if has_table else 0
    with open(path, "wb") as file:
        file.truncate(start + n_bytes)
        if gpt_type:
            file.truncate(start + n_bytes + START)
        elif has_table:
            table = struct.pack("<B3xB3xII", 0x80, 0x0C, start // 512, n_bytes // 512)
            file.seek(446)
            file.write(table + bytes(48) + b"\x55\xaa")
    if gpt_type:
        second = f"start={START // 512}, size={n_bytes // 512}, type={gpt_type}"
        script = f"label: gpt\nfirst-lba: 64\nstart=64, size=64, type=L\n{second}\n"
        command = [*need("sfdisk"), "--quiet", "--no-reread", str(path)]
        subprocess.run(command, input=script.encode(), check=True, capture_output=True, timeout=60)
    options = [*(flags or ("-F", "16", "-s", "1")), "--offset", str(start // 512)]
    command = [mkfs, *options, "-i", "cafe0001", str(path), str(n_bytes // 1024)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    for name, data in files.items():
        place = [mcopy, "-i", f"{path}@@{start}", "-", f"::{name}"]
        subprocess.run(place, input=data, check=True, capture_output=True, timeout=60)
    return path


def plain_card(arguments: tuple[str, ...] = ("--sensors", "thermal:")) -> Card:
    """A whole card without a kernel, whose processor is nobody's."""
    return make_card(BUNDLE, arguments, {}, {})


def made_identity(folder: Path, name: str = "pi-7", *, is_claim: bool = False) -> Path:
    """An identity, or a claim, as ``hardcase ca`` makes it."""
    authority, out = folder / "authority", folder / f"{name}.identity"
    if not authority.exists():
        assert main(["ca", "init", str(authority)]) == 0
    made = ["claim", str(authority), "--uses", "2"] if is_claim else ["device", str(authority), name]
    assert main(["ca", *made, "--out", str(out)]) == 0
    return out


def system_tree(root: Path, python: str = "python3.11", head: bytes = MADE_KERNEL) -> Path:
    """The root folder of a Debian, as far as flashing looks at it."""
    for folder in ("usr/bin", "usr/lib/systemd", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "etc" / "os-release").write_text("ID=debian\n")
    (root / "usr" / "lib" / "systemd" / "systemd").write_bytes(b"")
    (root / "usr" / "bin" / python).write_bytes(head)
    return root
