# SPDX-License-Identifier: Apache-2.0
"""What a run has at its broker: the link, and its own certificate."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..device.output import note
from ..settings.config import identity_folder
from .signals import end_main_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.clock import Clock
    from ..bundle.load import Loaded
    from ..fleet.identity.keeper import Keeper
    from ..link.link import Link, LinkConfig
    from ..settings.config import RunConfig
    from .beside import Beside

MAX_CERTIFICATE_BYTES = 65_536
FIRST_CONNECT_S = 3.0  # how long the first decision waits for a broker that neither accepts nor refuses


class OwnId:
    """The id that a device has which was given none: the same for the whole process, and told once.

    Attributes
    ----------
    name : str
        "": nobody has asked for it yet.
    """

    def __init__(self) -> None:
        self.name, self._line = "", ""

    def __call__(self) -> str:
        """The id."""
        if not self.name:
            from ..link.identity import MACHINE_ID, default_id

            self.name, is_lasting = default_id()
            why = f", for this run only, because {MACHINE_ID} is missing; name one with --device-id"
            self._line = f"the device id is {self.name}{'' if is_lasting else why}"
        return self.name

    def tell(self) -> None:
        """Tell the log, unless it knows."""
        if self._line:
            note(self._line)
            self._line = ""


def connect(
    config: RunConfig, own_id: OwnId, loaded: Loaded | None, beside: Beside, clock: Clock
) -> tuple[Link, Callable[[], None]]:
    """The link of a run, and a function that begins to connect.

    Parameters
    ----------
    own_id : of the process, which is used where the settings name none
    loaded : the bundle that decides; None: the device has none, and asks nothing
    clock : by which certificates expire

    Raises
    ------
    InputError
        The address, a certificate or the identity cannot be used.
    """
    import logging

    from ..link.link import Link

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            beside.note(self.format(record))

    logging.basicConfig(handlers=[Notes()], format="%(message)s", level=logging.WARNING)
    logging.getLogger(__package__.partition(".")[0]).setLevel(logging.INFO)
    settings, keeper = link_config(config, own_id, clock)
    program, manifest = (None, None) if loaded is None else (loaded.machine.program, loaded.manifest)
    link = Link(settings, program, manifest, end_main_thread)

    def start() -> None:
        if keeper is not None:
            keeper.start(link, FIRST_CONNECT_S)
            return
        own_id.tell()
        link.start(FIRST_CONNECT_S)

    return link, start


def link_config(config: RunConfig, own_id: OwnId, clock: Clock) -> tuple[LinkConfig, Keeper | None]:
    """The settings of a run's link, and the keeper of its certificate where there is one; nothing connects.

    Raises
    ------
    InputError
        The address or the identity cannot be used.
    """
    from ..link.link import LinkConfig

    keeper = keeper_of(config, clock)
    if keeper is None:
        own: dict[str, Any] = {"cert": config.cert, "key": config.key, "ca": config.ca}
        device_id = config.device_id or own_id()
    else:
        own = {"certificates": keeper.certificates, "ca": keeper.ca}
        device_id = keeper.device_id
    return LinkConfig.to_broker(config.broker or "", device_id, clock=clock, **own), keeper


def own_facts(link: Link) -> dict[str, Any]:
    """What a device says of itself whatever it decides: the version that runs, and when its certificate ends."""
    facts: dict[str, Any] = {"runtime": __version__}
    if link.certificate is None:
        return facts
    from ..base.files import read_bounded
    from ..errors import HardcaseError
    from ..fleet.identity.der import from_pem, read_certificate

    with suppress(HardcaseError):  # whatever is wrong with it, the broker says so
        pem = read_bounded(link.certificate, MAX_CERTIFICATE_BYTES, "certificate", remedy="get another")
        facts["certificate"] = {"ends": read_certificate(from_pem(pem)).ends}
    return facts


def keeper_of(config: RunConfig, clock: Clock) -> Keeper | None:
    """The keeper of the device's own certificate, where it has or is to get one."""
    folder = identity_folder(config)
    if folder is None:
        return None
    from ..fleet.identity.keeper import Keeper
    from ..link.identity import default_id

    names = {"device_id": config.device_id or "", "fallback_id": default_id()[0]}
    return Keeper(folder, config.broker or "", **names, ca=config.ca, clock=clock, note=note)
