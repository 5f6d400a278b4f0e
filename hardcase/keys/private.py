# SPDX-License-Identifier: Apache-2.0
"""Private keys of a repository: a PEM file for each, which its owner alone can read, named for its role and its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from securesystemslib.signer import CryptoSigner

from hardcase_edge.base.files import check_private, read_bounded, write_new
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, make_keys, private_key_of
from hardcase_edge.errors import InputError

__all__ = ["Maker", "find", "keyid_of", "making", "path_of"]


def keyid_of(signer: CryptoSigner) -> str:
    """The id of a key: 64 hex digits."""
    return str(signer.public_key.keyid)


def path_of(folder: Path, role: str, keyid: str) -> Path:
    """Where a role's key lies in a folder of keys."""
    return folder / f"{role}-{keyid[:16]}.key"


def find(folders: Sequence[Path], role: str, keyid: str) -> CryptoSigner | None:
    """A role's key in the first folder that has it, or None.

    Raises
    ------
    InputError
        Other users can read the file, or it holds another key.
    """
    for folder in folders:
        path = path_of(folder, role, keyid)
        if path.exists():
            check_private(path, "private key")
            signer = _signer(read_bounded(path, MAX_KEY_BYTES, "private key", remedy="restore it"))
            if keyid_of(signer) != keyid:
                raise InputError(f"private key {path} is another key than its name says; restore it")
            return signer
    return None


class Maker:
    """Makes keys, and removes them again if what they were made for fails."""

    def __init__(self) -> None:
        self._paths: list[Path] = []

    def make(self, role: str, folder: Path) -> CryptoSigner:
        """A new key for a role, in a folder that is made if it is not there.

        Raises
        ------
        InputError
            The folder cannot be written.
        """
        private, _ = make_keys()
        signer = _signer(private)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror}; name another folder") from error
        path = path_of(folder, role, keyid_of(signer))
        write_new(path, private, mode=0o600)
        self._paths.append(path)
        return signer

    def keep(self) -> None:
        """What is written next needs the keys that were made so far: they stay, whatever happens."""
        self._paths.clear()

    def remove(self) -> None:
        """Remove the keys that were made and not kept."""
        for path in self._paths:
            path.unlink(missing_ok=True)


@contextmanager
def making() -> Iterator[Maker]:
    """A ``Maker`` whose keys go if the block ends with an exception before ``keep``."""
    maker = Maker()
    try:
        yield maker
    except BaseException:
        maker.remove()
        raise


def _signer(pem: bytes) -> CryptoSigner:
    return CryptoSigner(private_key_of(pem))
