# SPDX-License-Identifier: Apache-2.0
"""Files of drafts in a build: bundles of floats, compressed, because a front has many and they are mostly large.

Drafts of trees shrink to an eighth. The file comes from outside: no more is unpacked than a bundle may have.

A build has at most ``MAX_BUILD_BYTES``. Of policies that do not fit, the figures stay, and no wish picks them any more.
What wishes pick by default and the best of each method come first; then the front of all methods, coarse before fine,
so that every range of costs keeps some; then the rest, the smallest first.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES, read_bundle_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.more.fronts.front import HPC_METHOD, SLACK, staircase

from .front import Point

SUFFIX = ".safetensors.gz"
LEVEL = 4  # higher levels take three times as long for a tenth less
GZIP = 16 + zlib.MAX_WBITS  # of zlib: a header of gzip is expected
MAX_BUILD_BYTES = 20_000_000
REPORT_BYTES = 1_500_000  # front.json, front.md and the report
LEAST_BYTES = 4_000_000  # for policies, however large f0 and the rows are
LOSSES = (0.01, 0.005, 0.0)  # below f0, of the wishes whose picks come first


def pack_draft(data: bytes) -> bytes:
    """The bytes of the file of a draft, whose bundle has these; the same bytes give the same file."""
    return gzip.compress(data, LEVEL, mtime=0)


def read_draft_bytes(path: Path) -> bytes:
    """The bytes of a draft's bundle; an older build has it as it is.

    Raises
    ------
    InputError
        The file cannot be read.
    BundleError
        It is damaged, empty or too large.
    """
    data = read_bundle_bytes(path)
    if path.suffix != ".gz":
        return data
    unpacker = zlib.decompressobj(GZIP)
    try:
        unpacked = unpacker.decompress(data, MAX_BUNDLE_BYTES + 1)
    except zlib.error as error:
        raise BundleError(f"draft {path} is damaged ({error}); train again") from error
    if len(unpacked) > MAX_BUNDLE_BYTES:
        raise BundleError(f"draft {path} is larger than {MAX_BUNDLE_BYTES} bytes unpacked; train again")
    if not unpacker.eof or unpacker.unused_data:
        raise BundleError(f"draft {path} is damaged: it is cut off, or goes on behind its end; train again")
    return unpacked


# ---------------------------------------------------------------- which files are kept


def room_for_policies(others: int) -> int:
    """Bytes that the policies of a build may have beside so many of f0 and of rows."""
    return max(LEAST_BYTES, MAX_BUILD_BYTES - REPORT_BYTES - others)


def kept_files(points: Sequence[Point], sizes: Sequence[int], room: int) -> set[int]:
    """The numbers of the points whose files are kept.

    Parameters
    ----------
    points : of a front, f0 among them
    sizes : bytes of each point's file, 0 for none
    room : for all of them; what comes first may exceed it
    """
    with_file = [k for k, size in enumerate(sizes) if size]
    if sum(sizes) <= room:
        return set(with_file)
    kept, first = set[int](), _first(points, with_file)
    used = 0
    for k in [*first, *_coarse_to_fine(_front(points, with_file)), *sorted(with_file, key=lambda k: sizes[k])]:
        if k not in kept and (k in first or used + sizes[k] <= room):
            kept.add(k)
            used += sizes[k]
    return kept


def _first(points: Sequence[Point], numbers: Sequence[int]) -> list[int]:
    """What default wishes pick, and the best of each method on judged rows."""
    valid = [p.valid for p in points]
    chosen = []
    for f0 in (p.valid.quality for p in points if p.method == HPC_METHOD):
        for loss in LOSSES:
            fitting = [k for k in numbers if valid[k].quality - valid[k].loss_se >= f0 - loss - SLACK]
            chosen += [min(fitting, key=lambda k: (valid[k].cost, -valid[k].quality))] if fitting else []
    for method in dict.fromkeys(points[k].method for k in numbers):
        of_method = [k for k in numbers if points[k].method == method]
        chosen.append(max(of_method, key=lambda k: (valid[k].quality, -valid[k].cost)))
    return list(dict.fromkeys(chosen))


def _front(points: Sequence[Point], numbers: Sequence[int]) -> list[int]:
    """The points that are better on judged rows than all cheaper ones, by rising cost."""
    return [numbers[k] for k in staircase([(points[k].valid.cost, points[k].valid.quality) for k in numbers])]


def _coarse_to_fine(numbers: Sequence[int]) -> list[int]:
    """The last, the first, the middle, the quarters, and so on.

    >>> _coarse_to_fine([0, 1, 2, 3, 4])
    [4, 0, 2, 1, 3]
    """
    order, step = [len(numbers) - 1] * bool(numbers), len(numbers) // 2
    while step:
        order += range(0, len(numbers), step)
        step //= 2
    return [numbers[k] for k in dict.fromkeys(order)]
