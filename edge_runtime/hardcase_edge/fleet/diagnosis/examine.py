# SPDX-License-Identifier: Apache-2.0
"""All that is wrong with a run that somebody wants, in the order in which to mend it.

A disk that cannot be written comes before the store on it, the store before its bundle, the bundle before its sensors,
and a clock before the certificates that it makes invalid. Nothing is changed, and a device may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import HardcaseError
from . import machine, storage
from .fault import Fault

if TYPE_CHECKING:
    from ...bundle.load import Loaded
    from ...settings.config import RunConfig


def faults(run: RunConfig | None = None) -> Iterator[Fault]:
    """What is wrong.

    Parameters
    ----------
    run : the settings of it; None: only the machine is examined
    """
    path: Path | None = None
    if run is not None and run.store is not None:
        yield from storage.store(Path(run.store).absolute())
        path = storage.bundle_of(Path(run.store).absolute())
    elif run is not None and run.bundle is not None:
        path = Path(run.bundle)
    yield from machine.memory()
    if run is not None and path is not None:
        yield from _bundle(path, run)
    yield from machine.clock()
    if run is not None and run.broker is not None:
        yield from _broker(run)
    yield from machine.service()


def _bundle(path: Path, run: RunConfig) -> Iterator[Fault]:
    from ...bundle.load import load_bundle

    try:
        loaded = load_bundle(path, trust=run.trust, allow_joint=True)
    except HardcaseError as error:
        yield Fault.of(error, path)
        return
    if loaded.joint is None:  # sources of parts are opened by the run itself
        yield from _sensors(loaded, run)


def _sensors(loaded: Loaded, run: RunConfig) -> Iterator[Fault]:
    """Sensors without a source, and those whose first reading fails; files to replay are not read."""
    from ...sensors.specs import open_bank

    program, manifest = loaded.machine.program, loaded.manifest
    lines: list[str] = []  # what the log of a run would say
    try:
        bank = open_bank(
            run.sensors, program, manifest, timeout_s=run.sensor_timeout_ms / 1000, isolate=run.isolate,
            items=run.items, tell=lines.append,
        )  # fmt: skip
    except HardcaseError as error:
        yield Fault.of(error, "--sensors")
        return
    with bank:
        try:
            if any("replay:" in spec for spec in run.sensors) or not bank.next_item():
                return
        except HardcaseError as error:
            yield Fault.of(error, "--items")
            return
        for k, name in enumerate(manifest.sensors):
            if k in bank.dead or bank.read([k])[k] is not None:
                continue
            why = lines[-1].partition(": ")[2]
            yield Fault(
                f"sensor {name} gives no reading: {why}", "--sensors", "check its wiring, its driver, or its function"
            )


def _broker(run: RunConfig) -> Iterator[Fault]:
    from ...link.address import parse_address
    from ...settings.config import identity_folder
    from ..identity.folder import Identities
    from .broker import broker

    own: dict[str, Any] = {"ca": run.ca, "cert": run.cert, "key": run.key}
    folder = identity_folder(run)
    try:
        if folder is not None:
            held = Identities(folder).held()
            shown = held.current or held.pending
            if shown is None:
                yield _without_certificate(folder, has_claim=held.claim is not None)
                return
            own = {"ca": run.ca or shown.ca, "cert": shown.cert, "key": shown.key}
        address = parse_address(run.broker or "", **own)
    except HardcaseError as error:
        yield Fault.of(error, "--broker")
        return
    yield from broker(address)


def _without_certificate(folder: str, *, has_claim: bool) -> Fault:
    if has_claim:
        todo = f"run the device, or get one now: hardcase-edge enrol --identity {folder} --broker URL"
        return Fault("this device has a claim, and no certificate of its own yet", folder, todo)
    todo = "put one there: hardcase ca device, or hardcase ca claim"
    return Fault("this device's identity has no certificate that can be read", folder, todo)
