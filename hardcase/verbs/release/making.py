# SPDX-License-Identifier: Apache-2.0
"""A release file: the same parts as on a card, each of which may be left out, for devices that are in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import hardcase_edge
from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.ed25519 import SIGNATURE_BYTES
from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES, read_bundle_bytes
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, MAX_SIGNATURES, signature_path
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.release.archive import pack_archive
from hardcase_edge.fleet.release.content import AUTHORITY, BUNDLE, DEVICE_KEYS, SETTINGS, STORE_FORMAT
from hardcase_edge.settings.config import changed
from hardcase_edge.settings.run_toml import text_of

from ...flashing.contents import extra_files, paho_files, parsed_arguments, runtime_files


def make_release(
    bundle: str | Path | None,
    arguments: Sequence[str],
    kernels: Mapping[str, bytes] | None,
    *,
    machines: Sequence[str] = (),
    extra: Sequence[str | Path] = (),
    authority: str | Path | None = None,
) -> bytes:
    """The bytes of a release: what a device takes over the air, by signed metadata alone.

    Parameters
    ----------
    bundle : its file; None: the devices go on with what they run
    arguments : of ``hardcase-edge run``; empty: the devices keep theirs
    kernels : shared objects by processor, for a release with the runtime that is installed here; None: without it
    machines : the only processors that may take it; empty: all
    extra : files beside the runtime, such as a sensor's module
    authority : PEM file of the authorities that may sign the broker's certificate

    Raises
    ------
    HardcaseError
        The bundle is damaged, a file cannot be read, or nothing is given.
    """
    files: dict[str, bytes] = {}
    digest = name = ""
    if kernels is not None:
        files |= {**runtime_files(), **paho_files()} | {
            f"card/kernels/{key}.so": kernel for key, kernel in kernels.items()
        }
    if bundle is not None:
        files[BUNDLE] = read_bundle_bytes(bundle)
        loaded = load_bytes(files[BUNDLE], allow_joint=True)
        digest, name = loaded.bundle.sha256, loaded.manifest.name
        if signature_path(bundle).exists():
            limit = MAX_SIGNATURES * SIGNATURE_BYTES
            remedy = "copy the .sig file again"
            files[f"{BUNDLE}.sig"] = read_bounded(signature_path(bundle), limit, "signature", remedy=remedy)
    files |= extra_files(extra, ["hardcase_edge", "paho", "card"])
    if arguments:
        files[SETTINGS] = _fleet_settings(arguments).encode()
    if authority is not None:
        remedy = "name the authority's PEM file"
        files[AUTHORITY] = read_bounded(authority, MAX_KEY_BYTES, "authority", remedy=remedy)
    if not files:
        raise InputError("a release of nothing; name a bundle, --runtime, --file, --run or --ca")
    version = hardcase_edge.__version__ if kernels is not None else ""
    about = {"runtime": version, "bundle": digest, "name": name, "run": list(arguments), "identity": "",
             "machines": list(machines), "python": [3, 11], "store": STORE_FORMAT}  # fmt: skip
    data = pack_archive(files, about)
    if len(data) > MAX_BUNDLE_BYTES:
        raise InputError(
            f"the release has {len(data)} bytes, and devices take {MAX_BUNDLE_BYTES}; make one for fewer machines"
        )
    return data


def _fleet_settings(arguments: Sequence[str]) -> str:
    """The text of the settings that a whole fleet gets, without what is each device's own."""
    config = parsed_arguments(arguments)
    given = [key for key in DEVICE_KEYS if key != "store" and getattr(config, key) is not None]
    if given:
        raise InputError(f"--run names --{given[0].replace('_', '-')}, which is each device's own; leave it out")
    return text_of(changed(config, store=None))
