# SPDX-License-Identifier: Apache-2.0
"""The folder of a build belongs to one run at a time, and to its user: what he puts there stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase.training import build as training
from hardcase.training import folders as swap
from hardcase.training.folders import BUILD, claimed, locked, whole_folder
from hardcase_edge.base.files import set_aside
from hardcase_edge.errors import InputError
from hardcase_export.drafts.front import read_front
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

STATIC = "[hpc]\nestimator = 'LogisticRegression'\n[policy]\nmethods = ['static']\neffort = 'quick'\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_csv(tmp_path / "data.csv", {"a": [k % 5 for k in range(60)], "y": [k % 2 for k in range(60)]})
    return toml(tmp_path, STATIC)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(out: Path, text: str, *, force: bool = False) -> None:
    with whole_folder(out, BUILD, force=force) as folder:
        (folder / "policies").mkdir()
        for name in ("front.json", "policies/a.safetensors"):
            (folder / name).write_text(text)


def test_a_file_where_a_folder_would_stand_is_refused_even_by_force(tmp_path):
    out = tmp_path / "build"
    out.mkdir()
    (out / "policies").write_text("mine")
    with pytest.raises(InputError, match="holds policies, where hardcase writes a folder; move it elsewhere"):
        fill(out, "ours", force=True)
    assert names(out) == ["policies"]
    assert (out / "policies").read_text() == "mine"
    assert names(tmp_path) == ["build"]


# ---------------------------------------------------------------- one run at a time


def test_a_second_run_into_one_folder_is_refused_in_one_line(tmp_path, capsys, monkeypatch, config):
    argv = ("train", config, "--out", tmp_path / "build", "--no-baselines", "--quiet")
    save, second = training.save_hpc, []

    def save_beside_another(task, folder):
        monkeypatch.setattr(training, "save_hpc", save)
        second.append(run(capsys, *argv))
        return save(task, folder)

    monkeypatch.setattr(training, "save_hpc", save_beside_another)
    assert run(capsys, *argv)[0] == 0
    status, _, err = second[0]
    assert (status, err.count("\n")) == (2, 1)
    assert "another run writes" in err
    assert "wait until it ends, or name another folder" in err
    assert (tmp_path / "build" / "hpc.onnx").stat().st_size > 0
    assert names(tmp_path) == ["build", "data.csv", "hardcase.toml"]


def test_a_build_without_its_f0_is_an_error(tmp_path, capsys, monkeypatch, config):
    save = training.save_hpc

    def save_and_lose(task, folder):
        facts = save(task, folder)
        (folder / "hpc.onnx").unlink()
        return facts

    monkeypatch.setattr(training, "save_hpc", save_and_lose)
    status, _, err = run(capsys, "train", config, "--out", tmp_path / "build", "--no-baselines", "--quiet")
    assert (status, err.count("\n")) == (2, 1)
    assert "hpc.onnx is gone, so the build would lack its f0; train again" in err
    assert not (tmp_path / "build").exists()


def test_the_lock_goes_with_its_holder_and_nothing_is_left(tmp_path: Path) -> None:
    out = tmp_path / "build"
    with locked(out), pytest.raises(InputError, match="another run writes"), locked(out):
        raise AssertionError("two runs hold one lock")
    assert names(tmp_path) == []
    (tmp_path / ".build.lock").touch()  # of a run that was killed
    with locked(out):
        assert names(tmp_path) == [".build.lock"]
    assert names(tmp_path) == []


def test_a_lock_that_lost_its_name_while_it_was_taken_is_taken_again(tmp_path: Path, monkeypatch) -> None:
    from hardcase.training import folders as lock

    take, path = lock._take, tmp_path / ".build.lock"

    def take_and_lose(descriptor: int) -> None:
        monkeypatch.setattr(lock, "_take", take)
        take(descriptor)
        path.unlink()  # its last holder removes it after we opened it

    monkeypatch.setattr(lock, "_take", take_and_lose)
    with locked(tmp_path / "build"):
        assert path.exists()


def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path: Path, monkeypatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("hardcase.training.folders._take", fail)
    with pytest.raises(InputError, match="cannot be locked: Function not implemented; name a folder on a local disk"):
        fill(tmp_path / "build", "new")
    monkeypatch.undo()
    (tmp_path / ".build.lock").unlink()
    (tmp_path / ".build.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot be locked"):
        fill(tmp_path / "build", "new")
    assert names(tmp_path) == [".build.lock"]


# ---------------------------------------------------------------- what is the user's stays


def test_keys_bundles_and_strangers_stay_when_a_build_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "build"
    fill(out, "old")
    assert main(["keygen", "--out", str(out / "fleet"), "--json"]) == 0
    (out / "model.hcb").write_bytes(b"a bundle")
    (out / "notes" / "empty").mkdir(parents=True)
    (out / "notes" / "mine.txt").write_text("mine")
    (out / "link").symlink_to("notes")
    key = (out / "fleet.key").stat()
    fill(out, "new")
    assert (out / "front.json").read_text() == "new"
    assert names(out) == [
        ".hardcase.json", "fleet.key", "fleet.pub", "front.json", "link", "model.hcb", "notes", "policies",
    ]  # fmt: skip
    assert (out / "notes" / "empty").is_dir()
    assert os.readlink(out / "link") == "notes"
    assert ((out / "fleet.key").stat().st_ino, (out / "fleet.key").stat().st_mode) == (key.st_ino, key.st_mode)
    assert names(tmp_path) == ["build"]


@pytest.mark.parametrize("content", ["", "{}", '{"kind": "build"}', '{"kind": "build", "files": []}', "[" * 100_000])
@pytest.mark.parametrize("name", ["front.json", ".hardcase.json"])
def test_a_file_that_looks_like_a_builds_does_not_make_a_folder_replaceable(tmp_path: Path, name, content) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text(content)
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match="is not a build that hardcase wrote, and holds"):
        fill(tmp_path / "mine", "new")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
    assert names(tmp_path) == ["mine"]


def test_a_list_that_names_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    out = tmp_path / "build"
    fill(out, "old")
    (tmp_path / "precious").write_text("mine")
    (out / ".hardcase.json").write_text(
        json.dumps({"kind": BUILD, "files": ["front.json", "policies/a.safetensors", "../precious", "/etc/hostname"]})
    )
    fill(out, "new")
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.fixture
def no_links(monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


def test_others_files_are_copied_where_none_can_be_linked(tmp_path: Path, no_links) -> None:
    out = tmp_path / "build"
    fill(out, "old")
    (out / "fleet.key").write_text("secret")
    (out / "fleet.key").chmod(0o600)
    fill(out, "new")
    assert (out / "fleet.key").read_text() == "secret"
    assert (out / "fleet.key").stat().st_mode & 0o777 == 0o600
    assert main(["keygen", "--out", str(tmp_path / "k"), "--json"]) == 0  # nor does a new key need a link
    with pytest.raises(InputError, match="never overwritten"):
        main_keygen(tmp_path)


def main_keygen(folder: Path) -> None:
    from hardcase.verbs.keygen import _write_new

    _write_new(folder / "k.key", b"other", 0o600)


def test_a_file_that_comes_while_a_build_is_replaced_stays(tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "build"
    fill(out, "old")
    take_place = swap.take_place

    def take_place_late(new: Path, old: Path) -> None:
        (old / "late.txt").write_text("mine")
        take_place(new, old)

    monkeypatch.setattr("hardcase.training.folders.take_place", take_place_late)
    fill(out, "new")
    assert ((out / "front.json").read_text(), (out / "late.txt").read_text()) == ("new", "mine")
    assert names(tmp_path) == ["build"]


# ---------------------------------------------------------------- where folders cannot be exchanged


def test_a_reader_between_two_renames_is_told_where_the_build_is(tmp_path: Path) -> None:
    out = tmp_path / "build"
    fill(out, "old")
    out.rename(set_aside(out))  # as a run leaves it that is killed between the two
    with pytest.raises(InputError, match=r"rename .*/\.build\.hardcase-old to build"):
        read_front(out / "front.json")
    with claimed(out, BUILD):
        assert (out / "front.json").read_text() == "old"
    assert names(tmp_path) == ["build"]
