# SPDX-License-Identifier: Apache-2.0
"""Temporary files of writes that were killed go with the next run that writes there, and no file of a user's does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_edge.fleet.card.places import put
from hardcase_edge.fleet.store.folder import Store
from hardcase_train.sweep.job_cache import JobCache
from tests.helpers.places import GOLDEN

OURS_NOT = (".env.template", ".notes.12345678", "key.pem", ".hidden")  # of a user


def acl(folder: Path) -> None:
    (folder.parent / "devices.txt").write_text("h1\n")
    names = ["--devices", str(folder.parent / "devices.txt"), "--out", str(folder)]
    assert main(["cloud", "acl", "--broker", "mosquitto", *names]) == 0


def keys(folder: Path) -> None:
    if not folder.exists():
        assert main(["keys", "init", str(folder)]) == 0
    else:
        assert main(["keys", "renew", str(folder)]) == 0


def authority(folder: Path) -> None:
    if not folder.exists():
        AuthorityFolder.init(folder, "pumps", 1_800_000_000)
        assert main(["ca", "device", str(folder), "h1", "--out", str(folder.parent / "h1")]) == 0
    else:
        assert main(["ca", "revoke", str(folder), "h1"]) == 0


def cache(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    JobCache(folder, {})


def card(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    put(folder, "run.toml", b"count = 1\n")


def store(folder: Path) -> None:
    Store(folder).put((GOLDEN / "v1.hcb").read_bytes())


DOORS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "rules of a broker": (acl, (".hardcase.passwords.abcd_123", ".hardcase.conf.abcdefgh")),
    "a repository": (keys, (".1.root.json.abcdefgh", ".timestamp.json.12345678")),
    "a list of what is revoked": (authority, ("public/.crl.pem.abcdefgh",)),
    "finished jobs": (cache, (".0123.safetensors.abcdefgh", ".01.23.json.abcdefgh")),
    "a card": (card, (".run.toml.abcdefgh",)),
    "a store": (store, (".state.abcdefgh", "a/.bundle.hcb.abcdefgh", "b/.bundle.hcb.sig.abcdefgh")),
}


@pytest.mark.parametrize("name", DOORS)
def test_what_a_killed_write_left_is_removed_by_the_next_run_and_nothing_else_is(name: str, tmp_path: Path) -> None:
    door, leftovers = DOORS[name]
    folder = tmp_path / "here"
    door(folder)
    for path in (*leftovers, *OURS_NOT):
        (folder / path).write_bytes(b"x" * 100)
    door(folder)
    assert not [path for path in leftovers if (folder / path).exists()]
    assert all((folder / path).read_bytes() == b"x" * 100 for path in OURS_NOT)
