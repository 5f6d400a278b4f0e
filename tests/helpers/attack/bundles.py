# SPDX-License-Identifier: Apache-2.0
"""Attack on the reader of bundles and on evaluators: mutants under right checksums, and valid programs.

A mutant has something changed: header, manifest, pools, words, offsets or bytes. What is accepted decides as the pages
say, in Python and in the kernel.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.program.definition import Opaque
from tests.golden.make_golden import GOLDEN
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.from_spec import read
from tests.helpers.edge.spec_examples import example_bundle
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import differences, random_world

from .outcome import Attack, Outcome, each, forever, spoilt

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "I16": 2, "I8": 1}
NUMBERS = [0, 1, -1, 2, 7, 127, 128, -128, 255, 256, 16383, 16384, 32766, 32767, -32767, -32768, 65535, 65536]
NUMBERS += [4_000_000, 2**31 - 1, -(2**31), 2**32, 2**53, 2**62 - 1, 2**62, 2**63 - 1, -(2**63)]
TEXTS = ["", "\x1b[2J", "a" * 300, "\u202e", '"', "NaN", "1", "é", "<script>", "\n", "\ud800"]
VALUES = [
    *NUMBERS,
    *TEXTS,
    0.5,
    -0.0,
    1e308,
    10**400,
    float("nan"),
    True,
    False,
    None,
    [],
    {},
    [0],
    [[1]],
    {"": {"1": 0}},
]


@dataclass
class Parts:
    """A bundle taken apart: its header's entries but for the checksum, its manifest, and its tensors' bytes."""

    entries: dict[str, dict[str, Any]]
    manifest: Any
    tensors: dict[str, bytearray]
    format: Any = "1"

    @classmethod
    def of(cls, data: bytes) -> Parts:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        meta = header.pop("__metadata__")
        del header["checksum"]
        body = data[8 + length :]
        tensors = {name: bytearray(body[slice(*entry["data_offsets"])]) for name, entry in header.items()}
        return cls(header, json.loads(meta["manifest"]), tensors, meta["format"])

    def place(self) -> None:
        """Give every entry the shape and the offsets that fit its tensor's bytes, in the order of the file."""
        at = 0
        for name in sorted(self.entries, key=lambda n: (-SIZES[self.entries[n]["dtype"]], ORDER.index(n))):
            n = len(self.tensors[name])
            self.entries[name] |= {"shape": [n // SIZES[self.entries[name]["dtype"]]], "data_offsets": [at, at + n]}
            at += n

    def pack(self, rewrite: Callable[[str], str] = str) -> bytes:
        """The file, with a right checksum; ``rewrite`` may change the header's text."""
        names = sorted(self.entries, key=lambda n: (-SIZES.get(str(self.entries[n].get("dtype")), 0), _order(n)))
        body = b"".join(bytes(self.tensors[n]) for n in names)
        end = {"dtype": "U8", "shape": [32], "data_offsets": [len(body), len(body) + 32]}
        manifest = self.manifest if isinstance(self.manifest, str) else _json(self.manifest)
        header = {"__metadata__": {"format": self.format, "manifest": manifest}, "checksum": end, **self.entries}
        text = rewrite(_json(header)).encode("utf-8", "surrogatepass")
        text += b" " * (-len(text) % 8)
        return sealed(struct.pack("<Q", len(text)) + text + body)


ORDER = ["f64", "i64", "i32", "i16", "i8", "program", "golden.words", "golden.readings"]


def _order(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def sealed(data: bytes) -> bytes:
    """These bytes and their checksum."""
    return data + sha256(data).digest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ---------------------------------------------------------------- what is changed


def _elements(rng: random.Random, parts: Parts) -> None:
    """A few numbers of one tensor: extremes, neighbours, other numbers of the same tensor."""
    name = rng.choice([n for n in parts.tensors if parts.tensors[n]] or ["program"])
    size, data = SIZES[parts.entries[name]["dtype"]], parts.tensors[name]
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = size * rng.randrange(len(data) // size)
        old = int.from_bytes(data[at : at + size], "little", signed=True)
        other = size * rng.randrange(len(data) // size)
        near = int.from_bytes(data[other : other + size], "little", signed=True)
        new = rng.choice([old + 1, old - 1, -old, old ^ 1 << rng.randrange(8 * size), near, rng.choice(NUMBERS)])
        data[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")


def _words(rng: random.Random, parts: Parts) -> None:
    """Words of the program, mostly those of the header and of records near it."""
    data = parts.tensors["program"]
    n = len(data) // 4
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = 4 * (rng.randrange(min(n, 16)) if rng.random() < 0.2 else rng.randrange(n))
        (old,) = struct.unpack_from("<i", data, at)
        new = rng.choice([old + 1, old - 1, 2 * old, 0, rng.choice(NUMBERS), rng.randrange(n)])
        struct.pack_into("<I", data, at, new % 2**32)


def _runs(rng: random.Random, parts: Parts) -> None:
    """A run of a tensor is cut out, doubled, moved or filled; offsets stay what they were."""
    name = rng.choice(list(parts.tensors))
    size, data = SIZES[parts.entries[name]["dtype"]], parts.tensors[name]
    n = len(data) // size
    first, last = sorted(size * rng.randint(0, n) for _ in range(2))
    run = data[first:last]
    kind = rng.randrange(4)
    if kind == 0:
        del data[first:last]
    elif kind == 1:
        data[first:first] = run * rng.choice([1, 2, 50])
    elif kind == 2:
        data[first:last] = rng.randbytes(len(run))
    else:
        data[first:last] = bytes(run[::-1]) if size == 1 else bytes(len(run))
    if rng.random() < 0.1 and name != "program":
        del parts.tensors[name], parts.entries[name]


def _records(rng: random.Random, parts: Parts) -> None:
    """A record is repeated or taken away, and its count in the header with it: shapes stay right."""
    words = list(struct.unpack(f"<{len(parts.tensors['program']) // 4}i", parts.tensors["program"]))
    sizes, at = (2, 4, 4, 12, 10), 16
    kind = rng.randrange(5)
    if len(words) < 2 + len(sizes):  # an earlier change has cut the header
        return
    at += sum(size * max(words[2 + k], 0) for k, size in enumerate(sizes[:kind]))
    size, count = sizes[kind], words[2 + kind]
    if count > 0 and at + size * count <= len(words):
        place = at + size * rng.randrange(count)
        times = rng.choice([0, 2, 2, 3, 200])
        words[place : place + size] = words[place : place + size] * times
        words[2 + kind] += times - 1
    parts.tensors["program"] = bytearray(struct.pack(f"<{len(words)}i", *words))


def _manifest(rng: random.Random, parts: Parts) -> None:
    kind = rng.random()
    if kind < 0.03:
        parts.manifest = "[" * 50_000
    elif kind < 0.06:
        parts.manifest = '{"name":' + "9" * 5_000 + "}"
    else:
        parts.manifest = spoilt(rng, parts.manifest, VALUES, TEXTS)


def _entries(rng: random.Random, parts: Parts) -> None:
    """The header's entries say something else than the bytes behind them."""
    name = rng.choice(list(parts.entries))
    kind = rng.randrange(4)
    if kind == 0:
        parts.entries[name] = {**parts.entries[name], "dtype": rng.choice([*SIZES, "U8", "F16", "", 3])}
    elif kind == 1:
        offsets = parts.entries[name]["data_offsets"]
        parts.entries[name] = {
            **parts.entries[name],
            "data_offsets": [x + rng.choice([0, 1, -8, 2**40]) for x in offsets],
        }
    elif kind == 2:
        entry = spoilt(rng, parts.entries[name], VALUES, TEXTS)
        parts.entries[name] = entry if isinstance(entry, dict) else {"dtype": entry}
    else:
        parts.entries[rng.choice(TEXTS)] = parts.entries[name]
        parts.tensors |= {n: bytearray() for n in parts.entries if n not in parts.tensors}


def _format(rng: random.Random, parts: Parts) -> None:
    parts.format = rng.choice(["0", "2", "01", "", "9" * 5_000, "1 ", 1, None, "é", "-1"])


SOUND = [_elements, _elements, _words, _words, _words, _runs, _records, _records, _manifest]
UNSOUND = [_entries, _format]


def mutant(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """A sound bundle with one or a few things changed; now and then with bytes or text changed instead."""
    kind = rng.random()
    if kind < 0.08:
        raw = bytearray(data[:-32])
        for _ in range(rng.choice([1, 1, 3, 20])):
            raw[rng.randrange(len(raw)) if rng.random() < 0.7 else rng.randrange(16)] = rng.randrange(256)
        return sealed(bytes(raw[: rng.choice([len(raw), len(raw), rng.randrange(len(raw))])]))
    parts = Parts.of(data)
    if kind < 0.14:
        other = Parts.of(rng.choice(others))  # parts of another bundle
        for name in other.tensors.keys() & parts.tensors.keys():
            if rng.random() < 0.4:
                parts.tensors[name], parts.entries[name] = other.tensors[name], other.entries[name]
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            rng.choice(SOUND)(rng, parts)
    parts.place()
    if kind > 0.93:
        rng.choice(UNSOUND)(rng, parts)
    if kind > 0.98:
        return parts.pack(lambda text: rng.choice([text[:-1], text + text, text.replace(":", " :", 1), "[" * 60_000]))
    return parts.pack()


MOST_SECONDS = 2.0  # of CPU, for any content
DECIDE = "bundles: accepted mutants decide"
WORLDS = 3  # in which an accepted mutant decides
AGREE = "programs: Python, kernel and pages agree"
VALID_WORLDS = 12  # in which a valid program does
GENERATIONS = 5000  # mutants, from the same programs: later ones drift towards programs that are ever larger
Case = tuple[bytes, random.Random, list[bytes]]  # a mutant, chance, and what it was made of


class Mutants:
    """Mutants of programs and of mutants, which reach further.

    Half of the time goes to decisions of accepted mutants: they take longest, and loading has its own count to reach.
    """

    def __init__(self) -> None:
        self.loading = self.deciding = 0.0

    def make(self, rng: random.Random) -> Generator[Case, None, None]:
        tried = 0
        self.loading = self.deciding = 0.0
        while True:
            if tried % GENERATIONS == 0:
                programs = [random_program(rng.getrandbits(30), k % 6) for k in range(40)]
                seeds = [GOLDEN.read_bytes(), example_bundle(), *map(bundle_of, programs)]
            tried += 1
            yield mutant(rng, rng.choice(seeds), seeds), rng, seeds

    def run(self, case: Case) -> tuple[Loaded | None, float]:
        began = time.process_time()
        try:
            return load_bytes(case[0]), time.process_time() - began
        except BundleError:
            return None, time.process_time() - began
        finally:
            self.loading += time.process_time() - began

    def allowed(self, case: Case, result: tuple[Loaded | None, float]) -> bool | Outcome:
        (data, rng, seeds), (loaded, took) = case, result
        if took > MOST_SECONDS or loaded is None or self.deciding > self.loading:
            return took <= MOST_SECONDS
        if any(isinstance(scorer, Opaque) for scorer in loaded.bundle.program.scorers):
            return True
        began, program, second = time.process_time(), loaded.bundle.program, read(data)
        worlds = [random_world(rng, program) for _ in range(WORLDS)]
        differing = sum(bool(differences(program, second, world, loaded.report.worst_cost)) for world in worlds)
        self.deciding += time.process_time() - began
        if rng.random() < 0.02:
            seeds[rng.randrange(2, len(seeds))] = data
        return Outcome(DECIDE, WORLDS, 0, differing)


def valid(rng: random.Random) -> tuple[bytes, random.Random]:
    """A bundle, and the chance of its worlds."""
    return bundle_of(random_program(rng.getrandbits(40), rng.randrange(7))), rng


def agrees(case: tuple[bytes, random.Random], loaded: Any) -> bool | Outcome:
    """A valid program must not be refused, and decides the same everywhere."""
    if isinstance(loaded, BundleError):
        return False
    (data, rng), program = case, loaded.bundle.program
    second, worst = read(data), loaded.report.worst_cost
    worlds = [random_world(rng, program) for _ in range(VALID_WORLDS)]
    return Outcome(AGREE, VALID_WORLDS, 0, sum(bool(differences(program, second, world, worst)) for world in worlds))


mutants = Mutants()
attack = each(
    Attack("bundles: mutants loaded", mutants.make, mutants.run, mutants.allowed, rows=(DECIDE,)),
    Attack(
        "programs: valid ones are accepted", forever(valid), lambda case: load_bytes(case[0]), agrees, (BundleError,),
        (AGREE,), is_timed=False,
    ),
)  # fmt: skip
