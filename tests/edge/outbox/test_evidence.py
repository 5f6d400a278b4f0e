# SPDX-License-Identifier: Apache-2.0
"""Pictures and sounds beside audits: from a plug-in into the store, bounded, by their bytes, and never in the way."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from base64 import b64decode, b64encode
from typing import Any

import pytest

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_edge.cli import main
from hardcase_edge.fleet.outbox import outbox
from hardcase_edge.fleet.outbox.evidence import MAX_EVIDENCE_BYTES, Evidence, from_record, type_of
from hardcase_edge.fleet.outbox.records import MAX_RECORD_BYTES, Recorder
from hardcase_edge.link.address import parse_address
from tests.helpers.cloud.brokers import running_mosquitto, serving, until
from tests.helpers.edge.device import EASY, make_bundle_bytes


def png(width: int = 1, height: int = 1) -> bytes:
    """A picture whose header says this size."""
    data = b""
    rows = zlib.compress(b"\0\0" * min(height, 9))
    for name, body in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", rows),
        (b"IEND", b""),
    ):
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return b"\x89PNG\r\n\x1a\n" + data


def jpeg(width: int, height: int) -> bytes:
    """The head of one, with a comment and a filler before its frame."""
    comment = b"\xff\xfe" + struct.pack(">H", 6) + b"text"
    return b"\xff\xd8" + comment + b"\xff\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)


WAV = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + bytes(28)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"), (png(4_096, 4_096), "image/png"), (png(4_097, 1), ""), (png(1, 0), ""), (png()[:20], ""),
        (jpeg(640, 480), "image/jpeg"), (jpeg(60_000, 1), ""), (jpeg(0, 9), ""), (jpeg(1, 1)[:12], ""),
        (b"\xff\xd8\xff" + b"\xe0\0\0" * 999, ""), (WAV, "audio/wav"), (WAV[:11], ""), (b"", ""),
        (b"<svg onload='x'>", ""), (b"GIF89a", ""), (b"%PDF-1.7", ""),
    ],
)  # fmt: skip
def test_the_type_follows_from_the_bytes_and_a_huge_picture_is_none(data: bytes, kind: str) -> None:
    assert type_of(data) == kind


@pytest.mark.parametrize(
    "evidence",
    [
        7, [], "x", {"a": 7}, {"a": "not base64!"}, {"a": b64encode(b"<svg>").decode()}, {"a": "\u00e9" * 8},
        {"a": b64encode(png() + bytes(MAX_EVIDENCE_BYTES)).decode()}, {"a": b64encode(png()).decode() + "\n"},
        {str(k): b64encode(b"GIF").decode() for k in range(1_000)},
    ],
    ids=lambda x: str(x)[:20],
)  # fmt: skip
def test_what_is_no_evidence_in_a_record_is_nothing(evidence: Any) -> None:
    assert from_record({"evidence": evidence}) == {}


def test_all_pictures_of_a_record_together_are_bounded() -> None:
    half = png() + bytes(MAX_EVIDENCE_BYTES // 2)
    found = from_record({"evidence": {"a": b64encode(half).decode(), "b": b64encode(half).decode()}})
    assert found == {"a": half}


def test_a_plugin_that_raises_hangs_or_gives_something_else_is_told_once_and_delays_nothing() -> None:
    told: list[str] = []
    go_on = threading.Event()

    def fails(sensor: str) -> object:
        raise ValueError("no camera")

    long = png() + bytes(MAX_EVIDENCE_BYTES)
    functions = {
        "fails": fails, "hangs": lambda sensor: go_on.wait(60), "text": lambda sensor: "x",
        "huge": lambda sensor: png(9_999), "long": lambda sensor: long, "none": lambda sensor: None,
        "good": lambda sensor: png(),
    }  # fmt: skip
    evidence = Evidence(functions, 3.0, told.append)
    for _ in range(2):
        assert {name: b64decode(text) for name, text in evidence.take().items()} == {"good": png()}
    go_on.set()
    evidence.close()
    assert [line.split()[1] for line in told] == ["fails", "hangs", "text", "huge", "long"]
    assert all(line.count("\n") == 0 and "evidence" in line for line in told)


def test_a_record_that_would_be_too_long_goes_without_its_pictures() -> None:
    recorder = Recorder("pi-1", "ab", 7)
    readings = [1.5] * 5_000
    made = recorder.audit(
        {"label": "x"}, readings, 0.0, evidence={"cam": b64encode(bytes(MAX_EVIDENCE_BYTES)).decode()}
    )
    assert made is not None
    assert "evidence" not in json.loads(made.payload)
    assert len(made.payload) <= MAX_RECORD_BYTES


def test_a_plugins_picture_of_a_kept_audit_is_in_the_store(tmp_path, monkeypatch, capfd) -> None:
    """It is asked for kept audits alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "a_plugin_with_pictures.py").write_text(
        f"from pathlib import Path\n"
        f"def read(sensor):\n    return {EASY} if sensor == 'x' else [1, 2, 3, 4, 5]\n"
        f"def evidence(sensor):\n    with Path('asked').open('a') as asked:\n        print(sensor, file=asked)\n"
        f"    return {png()!r} if sensor == 'vib' else None\n"
    )
    with running_mosquitto(tmp_path / "b") as broker:
        database = Database(tmp_path / "s.sqlite")
        keeper = Keeper(database, parse_address(broker.url), note=print)
        run = ["run", "toy.hcb", "--sensors", "a_plugin_with_pictures:read", "--broker", broker.url, "--device-id", "p"]
        run += ["--sensor-timeout-ms", "60000"]
        monkeypatch.setattr(outbox, "LAST_S", 60.0)  # until all has arrived
        with serving(keeper):
            assert main([*run, "--outbox", "1M", "--audit", "100%", "--count", "2"]) == 0
            assert (tmp_path / "asked").read_text().split() == ["x", "vib"] * 2
            assert main([*run, "--outbox", "1M", "--count", "2"]) == 0
            assert (tmp_path / "asked").read_text().split() == ["x", "vib"] * 2
            until(lambda: keeper.counters["kept"] >= 4)
        rows = database.read("SELECT record FROM records WHERE kind = 'audit'")
        assert [from_record(json.loads(text)) for (text,) in rows] == [{"vib": png()}] * 2
        database.close()
