# SPDX-License-Identifier: Apache-2.0
"""Cards with a GUID partition table, as sfdisk makes them, and tables that are damaged or made to harm."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from hardcase.flashing.target import flash_partition, verify_partition
from hardcase.flashing.volumes import FAT_TYPES, open_image, partitions
from hardcase_edge.errors import InputError
from tests.helpers.cards import RASPBERRY_PI, START, boot_image
from tests.helpers.flash_cuts import SIZE, opener, small_card

ENTRIES, ENTRY = 1024, 128  # where sfdisk puts them, and their size


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A card whose boot partition is the second one of a GPT."""
    folder = tmp_path_factory.mktemp("gpt")
    return boot_image(folder / "gpt.img", RASPBERRY_PI, n_bytes=SIZE, gpt_type="uefi").read_bytes()


def found(data: bytes | bytearray) -> list[tuple[UUID, int, int]]:
    return partitions(lambda start, n: bytes(data[start : start + n]), "card.img")


def sealed(data: bytes, *changes: tuple[int, str, int]) -> bytes:
    """The card with these numbers in its table, and both checksums right again."""
    new = bytearray(data)
    for at, form, value in changes:
        struct.pack_into(form, new, at, value)
    n, size = struct.unpack_from("<II", new, 512 + 80)
    entries = new[ENTRIES : ENTRIES + min(n * size, 10**6)]
    struct.pack_into("<I", new, 512 + 88, crc32(entries))
    header_bytes = min(struct.unpack_from("<I", new, 512 + 12)[0], 512)
    struct.pack_into("<I", new, 512 + 16, 0)
    struct.pack_into("<I", new, 512 + 16, crc32(new[512 : 512 + header_bytes]))
    return bytes(new)


def typed(card: bytes, kind: UUID) -> bytes:
    """The card whose boot partition has this type."""
    low, high = struct.unpack("<QQ", kind.bytes_le)
    return sealed(card, (ENTRIES + ENTRY, "<Q", low), (ENTRIES + ENTRY + 8, "<Q", high))


@pytest.mark.parametrize("kind", sorted(FAT_TYPES))
def test_a_card_with_a_gpt_is_flashed_and_verified(tmp_path: Path, card: bytes, kind: UUID) -> None:
    image = tmp_path / "gpt.img"
    image.write_bytes(typed(card, kind))
    before = image.read_bytes()
    assert flash_partition(opener(image), "card", small_card("one"))["system"] == "firstrun"
    assert verify_partition(opener(image), "card")["name"] == "one"
    after = image.read_bytes()
    assert (after[:START], after[START + SIZE :]) == (before[:START], before[START + SIZE :]), "the table is only read"


def test_the_partitions_are_those_that_sfdisk_made(card: bytes) -> None:
    assert [(start, size) for _, start, size in found(card)] == [(64 * 512, 64 * 512), (START, SIZE // 512 * 512)]
    assert found(sealed(card)) == found(card)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda card: typed(card, UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")), "has no FAT boot partition"),  # Linux
        *((lambda card, n=n: card[:n], "cut short|another checksum") for n in (600, 1_500, START + 1_000)),
    ],
    ids=["another-type", "header", "table", "partition"],
)
def test_a_card_of_another_type_or_cut_short_is_refused(tmp_path: Path, card: bytes, change: Any, message: str) -> None:
    image = tmp_path / "gpt.img"
    image.write_bytes(change(card))
    with pytest.raises(InputError, match=message), open_image(image, can_write=False):
        pass


def test_a_changed_byte_anywhere_in_the_table_is_noticed(card: bytes) -> None:
    rng = random.Random(1)
    for k in [*range(512, 512 + 92), *rng.sample(range(ENTRIES, ENTRIES + 128 * ENTRY), 300)]:
        data = bytearray(card)
        data[k] ^= 1 << rng.randrange(8)
        with pytest.raises(InputError, match=r"is damaged: .*; repair it with gdisk"):
            found(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((512 + 12, "<I", 8), "its header has another checksum"),
        ((512 + 12, "<I", 2**32 - 1), "its header has another checksum"),
        ((512 + 24, "<Q", 2), "its header has another checksum"),
        ((512 + 72, "<Q", 1), "128 entries of 128 bytes in sector 1"),
        ((512 + 72, "<Q", 2**64 - 1), "in sector 18446744073709551615"),
        ((512 + 80, "<I", 0), "0 entries of 128 bytes"),
        ((512 + 80, "<I", 2**32 - 1), "4294967295 entries of 128 bytes"),
        ((512 + 84, "<I", 0), "128 entries of 0 bytes"),
        ((512 + 84, "<I", 127), "128 entries of 127 bytes"),
        ((ENTRIES + ENTRY + 32, "<Q", 0), "from sector 0 to"),
        ((ENTRIES + ENTRY + 32, "<Q", 5), "from sector 5 to"),
        ((ENTRIES + ENTRY + 32, "<Q", 2**64 - 1), "from sector 18446744073709551615 to"),
        ((ENTRIES + ENTRY + 40, "<Q", 2**63), "to 9223372036854775808"),
    ],
)
def test_a_table_that_is_made_to_harm_is_one_line(card: bytes, change: tuple[int, str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        found(sealed(card, change))
