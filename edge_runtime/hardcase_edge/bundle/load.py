"""From a bundle's file to a machine that may run: signature, damage, program, manifest, golden cases, in that order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.record import record
from ..errors import BundleError, InputError, SignatureError
from ..kernel.machine import open_machine
from ..session.session import Machine
from ..verifier.verify import Report, verify
from .file import Bundle, read_bundle_bytes, unpack_bundle
from .golden import check_golden
from .manifest import Manifest
from .signature import MAX_KEY_BYTES, SIGNATURE_BYTES, check_signature, signature_path

if TYPE_CHECKING:
    from pathlib import Path

    from ..kernel.compiled import CompiledMachine

__all__ = ["Loaded", "load_bundle", "load_bytes"]

MAX_GOLDEN_OPERATIONS = 256_000_000  # 64 cases of the costliest program; more would keep a device from starting


@record(frozen=True, slots=True)
class Loaded:
    """A bundle that has passed every check."""

    bundle: Bundle
    manifest: Manifest
    report: Report
    machine: Machine | CompiledMachine


def load_bundle(path: str | Path, *, trust: str | Path | None = None) -> Loaded:
    """Read, check and prepare a bundle.

    Parameters
    ----------
    path : path of the ``.hcb`` file; its signature is looked for beside it, as ``<path>.sig``
    trust : path of an Ed25519 public key in PEM, or None
        With a key, a bundle without that key's signature is refused before it is parsed.

    Raises
    ------
    InputError
        A file cannot be read.
    BundleError
        The bundle must not be used; its subclasses say why.
    """
    data = read_bundle_bytes(path)
    if trust is not None:
        _check_trust(data, path, trust)
    return load_bytes(data)


def load_bytes(data: bytes) -> Loaded:
    """As ``load_bundle``, for bytes whose origin is already trusted."""
    bundle = unpack_bundle(data)
    report = verify(bundle.program)
    manifest = Manifest.from_json(bundle.manifest, bundle.program)
    if len(bundle.golden) * report.operations > MAX_GOLDEN_OPERATIONS:
        raise BundleError(
            f"{len(bundle.golden)} golden cases of {report.operations} operations each are too many to replay; "
            "export the bundle with fewer"
        )
    machine = open_machine(bundle.program, outlines=report.outlines)
    check_golden(machine, bundle.golden)
    return Loaded(bundle, manifest, report, machine)


def _check_trust(data: bytes, path: str | Path, trust: str | Path) -> None:
    try:
        with open(trust, "rb") as file:
            key = file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(f"trusted key {trust} cannot be read: {error.strerror}") from error
    try:
        with open(signature_path(path), "rb") as file:
            signature = file.read(SIGNATURE_BYTES + 1)
    except OSError as error:
        raise SignatureError(
            f"bundle {path} has no signature ({signature_path(path).name}), and this device trusts only signed "
            "ones; export it with --key"
        ) from error
    check_signature(data, signature, key)
