# SPDX-License-Identifier: Apache-2.0
"""The device's side of flashing: archives are checked before use, the kernel is tried, the report is bounded."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.fleet.card import first_boot
from hardcase_edge.fleet.card.install import read_identity
from hardcase_edge.fleet.card.places import link, put, safe_folder
from hardcase_edge.fleet.release.archive import read_archive, read_zip
from hardcase_edge.fleet.release.content import processor
from hardcase_edge.fleet.store.first_boot import read_report
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.trial import Rules
from tests.helpers.places import GOLDEN


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def archive_of(contents: dict[str, bytes], **manifest: object) -> bytes:
    listed = {name: sha256(data).hex() for name, data in contents.items()}
    whole = {"format": 1, "files": listed, **ABOUT, **manifest}
    return zipped({**contents, "card/manifest.json": json.dumps(whole).encode()})


ABOUT = {"bundle": "ab", "identity": "", "name": "toy", "runtime": "1.0", "run": []}
FILES = {"a.py": b"print()\n" * 30, "card/model.hcb": bytes(range(256)) * 4}


def test_an_archive_gives_its_files() -> None:
    archive = read_archive(archive_of(FILES), "card.pyz")
    assert archive.files == FILES
    assert archive.sha256 == sha256(archive_of(FILES)).hex()


def test_an_archive_with_any_one_byte_changed_gives_the_same_files_or_is_refused() -> None:
    data, rng, refused = archive_of(FILES), random.Random(1), []
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= rng.randrange(1, 256)
        try:
            assert read_archive(bytes(changed), "card.pyz").files == FILES
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > len(data) // 2
    assert all(len(message.splitlines()) == 1 for message in refused)


def test_an_archive_cut_anywhere_is_refused() -> None:
    data = archive_of(FILES)
    for cut in range(len(data)):
        with pytest.raises(InputError, match=r"card\.pyz is cut short or damaged"):
            read_archive(data[:cut], "card.pyz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped({"../etc/passwd": b"x"}), "a file with a strange name"),
        (zipped({"/etc/passwd": b"x"}), "a file with a strange name"),
        (zipped({"a/./b": b"x"}), "a file with a strange name"),
        (zipped({str(k): b"" for k in range(1_001)}), "it holds too much"),
        (zipped({"bomb": bytes(33 * 1024 * 1024)}), "it holds too much"),
        (zipped({"a": b"x"}), "is not an archive of hardcase"),
        (zipped({"card/manifest.json": b"[]"}), "is not an archive of hardcase"),
        (archive_of(FILES, format=2), "its format is not 1"),
        (archive_of(FILES, files={}), "is damaged: a.py is not what was written"),
        (archive_of({}, files={"gone.py": "00"}), "is damaged: gone.py is not what was written"),
        (archive_of({}, identity=None), "a part of its manifest is of another type"),
        (archive_of({}, run="x"), "a part of its manifest is of another type"),
        (archive_of({}, files=[]), "a part of its manifest is of another type"),
        (zipped({"a": bytes(99)}, zipfile.ZIP_LZMA).replace(b"\x5d\0\0", b"\xff\0\0"), "of another compression"),
    ],
    ids=[
        "up", "absolute", "dot", "many", "bomb", "none", "list", "newer", "unlisted", "missing", "identity", "run",
        "files", "lzma",
    ],
)  # fmt: skip
def test_what_is_not_an_archive_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_archive(data, "card.pyz")
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_an_identity_is_that_of_its_archive() -> None:
    data = zipped({"current": b"1\n", "0001/key.pem": b"key"})
    archive = read_archive(archive_of(FILES, identity=sha256(data).hex()), "card.pyz")
    assert read_identity(data, archive) == read_zip(data, "x") == {"current": b"1\n", "0001/key.pem": b"key"}
    with pytest.raises(InputError, match=r"identity\.zip is not the one of card\.pyz"):
        read_identity(zipped({"0001/key.pem": b"other"}), archive)
    for name in ("device.key", "0001/device.key", "0002/0001/key.pem", "1/key.pem"):
        data = zipped({name: b"key"})
        archive = read_archive(archive_of(FILES, identity=sha256(data).hex()), "card.pyz")
        with pytest.raises(InputError, match=f"has {name} in it, and no device reads that"):
            read_identity(data, archive)


# ---------------------------------------------------------------- writing below a root


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "var").mkdir(parents=True)
    outside.mkdir()
    (root / "etc").symlink_to(outside)
    (root / "run").symlink_to("var")
    (root / "gone").symlink_to("nowhere")
    for place in ("etc/x", "etc/a/x", "gone/x"):
        with pytest.raises(InputError):
            put(root, place, b"x")
    with pytest.raises(InputError):
        link(root, "etc/name", "target")
    assert list(outside.iterdir()) == []
    put(root, "run/a/x", b"x")
    assert (root / "var" / "a" / "x").read_bytes() == b"x"
    assert safe_folder(root, "var/lib/b").is_dir()


def test_a_link_takes_the_place_of_a_link_and_of_nothing_else(tmp_path: Path) -> None:
    link(tmp_path, "usr/name", "one")
    link(tmp_path, "usr/name", "two")
    assert (tmp_path / "usr" / "name").readlink() == Path("two")
    (tmp_path / "usr" / "two").mkdir()
    link(tmp_path, "usr/name", "three")
    (tmp_path / "usr" / "folder").mkdir()
    with pytest.raises(InputError, match="exists and is not a link; move it away"):
        link(tmp_path, "usr/folder", "one")


# ---------------------------------------------------------------- the kernel and the report


@pytest.mark.parametrize(
    ("machine", "pointer_bytes", "name"),
    [("aarch64", 8, "aarch64"), ("aarch64", 4, "armv6"), ("armv7l", 4, "armv6"), ("armv6l", 4, "armv6"),
     ("x86_64", 8, "x86_64"), ("x86_64", 4, ""), ("riscv64", 8, "")],
)  # fmt: skip
def test_the_kernel_is_that_of_the_python_and_not_of_the_machine(machine: str, pointer_bytes: int, name: str) -> None:
    assert processor(machine, pointer_bytes) == name


def trial(monkeypatch: pytest.MonkeyPatch, runtime: Path, answers: list[tuple[str, str]]) -> str:
    kernel = runtime / "hardcase_edge" / "kernel" / "_kernel.abi3.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"x")
    monkeypatch.setattr(first_boot, "_try", lambda *_: answers.pop(0))
    return first_boot.try_kernel(runtime, runtime / "model.hcb")


def test_a_kernel_that_ends_its_process_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = trial(monkeypatch, tmp_path, [("", "signal 4 ended it on this armv6l"), ("python", "")])
    assert reason == "signal 4 ended it on this armv6l"
    assert not (tmp_path / "hardcase_edge" / "kernel" / "_kernel.abi3.so").exists()


def test_a_kernel_that_works_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial(monkeypatch, tmp_path, [("kernel", "")]) == ""
    assert (tmp_path / "hardcase_edge" / "kernel" / "_kernel.abi3.so").exists()


def test_a_bundle_that_fails_with_and_without_the_kernel_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HardcaseError, match="the bundle cannot be used here: it failed: golden case 3"):
        trial(monkeypatch, tmp_path, [("", "it failed: x"), ("", "it failed: golden case 3")])


def test_a_status_has_what_the_first_boot_did_and_no_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put((GOLDEN / "v1.hcb").read_bytes())
    report = {"how": "cloud-init", "evaluator": "kernel", "t": 1, "reason": "x" * 999, "archive": "y", "store": [1]}
    (store.folder / "first-boot.json").write_text(json.dumps(report))
    facts = Run(store, store.start(), Rules(), print).facts()
    assert facts["first_boot"] == {"how": "cloud-init", "evaluator": "kernel", "reason": "x" * 200, "t": 1}


@pytest.mark.parametrize("text", ["", "[]", "[" * 4_000, "nul", '{"how": ' + "9" * 3_000 + "}", "\xff"])
def test_a_report_that_is_none_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "first-boot.json").write_text(text, encoding="latin-1")
    report = read_report(tmp_path)
    assert report == {} or list(report) == ["how"]
