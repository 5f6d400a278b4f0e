# SPDX-License-Identifier: Apache-2.0
"""Loads a bundle: signature, checksum, proof, manifest and golden cases, each passed before the next is tried.

The signature is checked if the caller names a trusted key; the checksum comes with the shape of the file, the proof is
the verifier's, and every golden case is replayed. ``load_bundle`` returns only what has passed all of these checks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..base.files import read_bounded
from ..base.record import record
from ..errors import BundleError, SignatureError
from ..kernel.machine import open_machine
from ..program.cost import start_of
from ..verifier.verify import Report, verify
from .file import Bundle, read_bundle_bytes, unpack_bundle
from .golden import check_golden
from .manifest import Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from ..joint.definition import Joint
    from ..joint.prove import JointReport
    from ..joint.session import JointMachine
    from ..kernel.compiled import CompiledMachine
    from ..session.session import Machine

MAX_GOLDEN_OPERATIONS = 16_000_000  # 64 cases of 250,000 each; more would delay a device's start for long


@record(frozen=True, slots=True)
class Loaded:
    """A bundle that has passed every check."""

    bundle: Bundle
    manifest: Manifest
    report: Report  # what the verifier proved: worst-case cost, operations, memory
    machine: Machine | CompiledMachine  # runs the program; its thresholds move where the manifest has prices
    joint: JointMachine | None = None  # runs items of several parts; None: the program decides alone
    items: JointReport | None = None  # what was proved of items


def load_bundle(path: str | Path, *, trust: str | Path | None = None, allow_joint: bool = False) -> Loaded:
    """Read, check and prepare a bundle.

    Parameters
    ----------
    path : path of the ``.hcb`` file
    trust : path of an Ed25519 public key in PEM, or None
        With a key, the file ``<path>.sig`` must hold that key's signature; otherwise the bundle is refused before
        it is parsed. None skips this check.
    allow_joint : whether the caller decides items of several parts; without it, their bundles are refused

    Raises
    ------
    InputError
        A file cannot be read, or the key is not an Ed25519 public key.
    BundleError
        The bundle must not be used; its subclasses name the reason.

    Examples
    --------
    A program with one sensor, which answers class 1 above 20 degrees, written as a bundle and loaded again:

    >>> import tempfile
    >>> from hardcase_edge.bundle.file import pack_bundle
    >>> from hardcase_edge.program.definition import *
    >>> program = Program(
    ...     features=(Feature("f32"),),
    ...     sensors=(Sensor(features=(0,), cost=(2_000_000,)),),
    ...     uplink=Uplink(),
    ...     columns=(Column(0, Rank((20.0,))),),
    ...     scorers=(Trees((0,), (0,), (Tree(0, 1, (0,), (-CODE_MAX,), (True,), (), (-5, 5)),)),),
    ...     nodes=(Acquire((0,), then=1, otherwise=1), Answer(Slice(0, 0, 1))),
    ...     n_classes=2,
    ... )
    >>> manifest = Manifest("heater", "mJ", ("degrees",), ("thermometer",), ("cold", "warm"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/heater.hcb"
    ...     with open(path, "wb") as file:
    ...         _ = file.write(pack_bundle(Bundle(manifest.to_json(), program, golden=())))
    ...     loaded = load_bundle(path)
    >>> loaded.report.worst_cost
    2000000
    >>> session = loaded.machine.session()
    >>> session.feed({s: [21.5] for s in session.next_action().sensors})
    >>> loaded.manifest.classes[session.next_action().result]
    'warm'
    """
    data = read_bundle_bytes(path)
    if trust is not None:
        _check_trust(data, path, trust)
    return load_bytes(data, allow_joint=allow_joint)


def load_bytes(data: bytes, *, allow_joint: bool = False) -> Loaded:
    """As ``load_bundle``, for bytes whose origin the caller has checked already.

    Raises
    ------
    BundleError
        The bundle must not be used; its subclasses name the reason. So it is if this process lacks the memory for it.
    """
    try:
        return _load(data, allow_joint=allow_joint)
    except MemoryError:
        pass  # what holds the memory goes with the error
    raise BundleError("the bundle takes more memory to load than this process can have; export a smaller one")


def _load(data: bytes, *, allow_joint: bool) -> Loaded:
    bundle = unpack_bundle(data, allow_joint=allow_joint)
    if bundle.joint is not None:
        return _load_joint(bundle, bundle.joint)
    report = verify(bundle.program)
    manifest = Manifest.from_json(bundle.manifest, bundle.program)
    if manifest.clock and start_of(bundle.program.costs):
        raise BundleError("a bundle by the clock starts when it is asked, at no cost; export it without per_decision")
    if len(bundle.golden) * report.operations > MAX_GOLDEN_OPERATIONS:
        raise BundleError(
            f"{len(bundle.golden)} golden cases of {report.operations} operations each are too many to replay; "
            "export the bundle with fewer"
        )
    moved = () if manifest.prices is None else manifest.prices.nodes
    machine = open_machine(bundle.program, outlines=report.outlines, moved=moved)
    check_golden(machine, bundle.golden)
    return Loaded(bundle, manifest, report, machine)


def _load_joint(bundle: Bundle, joint: Joint) -> Loaded:
    from ..joint.golden import check_items
    from ..joint.machine import open_joint
    from ..joint.prove import verify_joint

    proved = verify_joint(bundle.program, joint)
    manifest = Manifest.from_json(bundle.manifest, bundle.program)
    if manifest.clock or manifest.without or manifest.prices is not None:
        raise BundleError(
            "a joint program goes by declared costs, without confidences of lost sensors and without prices; "
            "export it again"
        )
    if len(bundle.items) * proved.operations > MAX_GOLDEN_OPERATIONS:
        raise BundleError(f"{len(bundle.items)} golden items are too many to replay; export the bundle with fewer")
    machine = open_joint(bundle.program, joint, outlines=proved.part.outlines)
    check_items(machine, bundle.items)
    return Loaded(bundle, manifest, proved.part, machine.machine, machine, proved)


def _check_trust(data: bytes, path: str | Path, trust: str | Path) -> None:
    from .ed25519 import SIGNATURE_BYTES
    from .signature import MAX_KEY_BYTES, MAX_SIGNATURES, check_signature

    key = read_bounded(trust, MAX_KEY_BYTES, "trusted key", remedy="name the public key that hardcase keygen wrote")
    try:
        with open(f"{path}.sig", "rb") as file:
            signature = file.read(MAX_SIGNATURES * SIGNATURE_BYTES + 1)
    except OSError as error:
        raise SignatureError(
            f"bundle {path} has no signature file {os.path.basename(path)}.sig, and only signed bundles are trusted; "
            "export it with --key"
        ) from error
    check_signature(data, signature, key)
