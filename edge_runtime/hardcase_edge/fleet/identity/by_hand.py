# SPDX-License-Identifier: Apache-2.0
"""The verb ``enrol``: comes with a claim, or renews the certificate, and sees that the broker accepts what came."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from ...base.clock import Clock
from ...errors import InputError, LinkError
from ...link.identity import default_id
from .enrol import broker_of_claims, enrol, shows
from .exchange import CLAIM, TRY
from .folder import Identities, Identity


def enrol_now(
    folder: str | Path, broker: str, *, device: str = "", ca: str | Path | None = None, wait_s: float = 30.0
) -> dict[str, Any]:
    """Get a certificate now, and report it.

    Parameters
    ----------
    folder : the identity folder, with an identity, which is renewed, or a claim
    broker : URL of the listener for devices
    device : the name to ask for with a claim; "": the host's and the machine's
    ca : authority of the broker's certificate; None: the identity's own
    wait_s : seconds for the exchange, and again for the connection with the new certificate

    Raises
    ------
    InputError
        The folder has neither, others can read its keys, or a URL or file is unusable.
    LinkError
        There is no certificate, or the broker does not accept it: the old one stays.
    """
    if not 0 < wait_s <= 3_600:
        raise InputError(f"--wait-s is {wait_s:g}; use more than 0 and at most 3600")
    identities = Identities(folder)
    identities.check()
    logging.getLogger("hardcase_edge.link.connection").addHandler(logging.NullHandler())  # its troubles are raised
    held, clock = identities.held(), Clock()
    current, pending, claim, step = held.current, held.pending, held.claim, held.step(clock.now())
    if step == TRY and pending is not None:
        new = pending
    elif step == CLAIM and claim is not None:
        url = broker_of_claims(identities, broker)
        new = enrol(identities, claim, device or default_id()[0], url, ca=ca, wait_s=wait_s, clock=clock)
    elif current is not None:
        new = enrol(identities, current, current.facts.name, broker, ca=ca, wait_s=wait_s, clock=clock)
    else:
        raise InputError(f"{identities.folder} has no identity; make one: hardcase ca device, or hardcase ca claim")
    if trouble := shows(new, broker, ca=ca, wait_s=wait_s, clock=clock):
        raise LinkError(f"broker {broker} does not accept the certificate of {new.facts.name}: {trouble}")
    identities.accept(new)
    return _report(new)


def _report(identity: Identity) -> dict[str, Any]:
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(identity.facts.ends))
    return {"device": identity.facts.name, "number": identity.number, "ends": ends, "folder": str(identity.folder)}
