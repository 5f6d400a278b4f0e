# SPDX-License-Identifier: Apache-2.0
"""Wheels with the kernel, made from the wheel for all machines: the same files and one shared object.

    python -m hardcase.flashing.wheels dist/hardcase_edge-0.1.0-py3-none-any.whl     (make wheels does it)

A wheel is a zip file with a list of digests; times are fixed, so the same sources give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import zipfile
from pathlib import Path

from hardcase_edge.base.files import read_bounded, write_whole
from hardcase_edge.errors import HardcaseError, InputError, one_line
from hardcase_edge.fleet.release.archive import UNREADABLE_ZIP, zip_of

from .kernels import PROCESSORS, check_kernel, compile_kernel

KERNEL_NAME = "hardcase_edge/kernel/_kernel.abi3.so"
PYTHON_TAG = "cp311-abi3"
MAX_WHEEL_BYTES = 16 * 1024 * 1024


def wheel_with(pure: Path, processor: str, kernel: bytes) -> tuple[str, bytes]:
    """The name and the bytes of the wheel for a processor of ``PROCESSORS``.

    Raises
    ------
    InputError
        ``pure`` is not a wheel for all machines, or the kernel is for another processor.
    """
    check_kernel(kernel, processor)
    parts = pure.name.split("-")
    if len(parts) != 5 or parts[2:] != ["py3", "none", "any.whl"]:
        raise InputError(f"{pure} is not a wheel for all machines; make one with make wheels")
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    info = f"{parts[0]}-{parts[1]}.dist-info"
    tags = PROCESSORS[processor].tags
    old_lines = [
        line
        for line in files[f"{info}/WHEEL"].decode().splitlines()
        if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    lines = [*old_lines, "Root-Is-Purelib: false", *[f"Tag: {PYTHON_TAG}-{tag}" for tag in tags]]
    files[f"{info}/WHEEL"] = "".join(f"{line}\n" for line in lines).encode()
    files[KERNEL_NAME] = kernel
    record = f"{info}/RECORD"
    del files[record]
    listed = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[record] = "".join([*listed, f"{record},,\n"]).encode()
    return f"{parts[0]}-{parts[1]}-{PYTHON_TAG}-{'.'.join(tags)}.whl", zip_of(files)


def kernels_in(folder: Path, version: str) -> dict[str, bytes]:
    """The kernels in the wheels of this version of hardcase-edge in a folder, by processor.

    Raises
    ------
    InputError
        A wheel is damaged, too large, or holds something else under the kernel's name.
    """
    kernels = {}
    for name, processor in PROCESSORS.items():
        path = folder / f"hardcase_edge-{version}-{PYTHON_TAG}-{'.'.join(processor.tags)}.whl"
        if path.exists():
            data = read_bounded(path, MAX_WHEEL_BYTES, "wheel", remedy="make it again with make wheels")
            try:
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    if archive.getinfo(KERNEL_NAME).file_size > MAX_WHEEL_BYTES:
                        raise ValueError("it is too large")
                    kernels[name] = archive.read(KERNEL_NAME)
            except UNREADABLE_ZIP as error:
                raise InputError(
                    f"the wheel {path} cannot be read: {one_line(error)}; make it again with make wheels"
                ) from error
            check_kernel(kernels[name], name)
    return kernels


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(argv: list[str]) -> int:
    """Write a wheel for each processor beside the wheel that is named."""
    try:
        for processor in PROCESSORS:
            name, data = wheel_with(Path(argv[0]), processor, compile_kernel(processor))
            write_whole(Path(argv[0]).with_name(name), data)
    except HardcaseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
