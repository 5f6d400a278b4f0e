# SPDX-License-Identifier: Apache-2.0
"""Asks whether a worker answers the f0 of a bundle, by one request without readings, before devices are to ask it.

The request is an audit, which no worker keeps, of a device that has the name of the broker's user, because access rules
let a user ask under its own name at most. Any reply of the right f0 will do, also that it is busy or refuses the row.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from time import monotonic

from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link.address import Address
from hardcase_edge.link.wire import (
    ID_BYTES,
    Request,
    check_device_id,
    other_hpc_in,
    pack_request,
    reply_topic,
    request_topic,
    unpack_reply,
)

from ..mqtt.client import Client, ClientConfig
from ..mqtt.machine import NO_SUBSCRIBERS, REASONS

__all__ = ["Served", "ask_f0"]

WAIT_S = 2.0  # for a reply
START_S = 15.0
DIGITS = 12


@dataclass(frozen=True, slots=True)
class Served:
    """What is known of a bundle's f0.

    Parameters
    ----------
    hpc : its SHA-256, in hex; "" if the bundle asks nobody
    answers : whether a worker of it has replied
    other : SHA-256 of an f0 whose worker replied, and no worker of the right one; "" if none did
    refusal : the reason code with which the broker refused the request, or has nobody to give it to; 0: it took it
    """

    hpc: str
    answers: bool = False
    other: str = ""
    refusal: int = 0

    @property
    def words(self) -> str:
        """What is wrong, in one line; "" if nothing is."""
        ours = self.hpc[:DIGITS]
        if not self.hpc or self.answers:
            return ""
        if self.other:
            return f"no worker serves f0 {ours} of this bundle, but one serves {self.other[:DIGITS]}"
        if self.refusal not in (0, NO_SUBSCRIBERS):
            why = REASONS.get(self.refusal, f"reason {self.refusal}")
            return f"whether a worker serves f0 {ours} of this bundle cannot be asked: {why}"
        return f"no worker answers for f0 {ours} of this bundle"


def ask_f0(address: Address, bundle: bytes, tenant: str = "", *, wait_s: float = WAIT_S) -> Served:
    """Ask the workers of a broker.

    Raises
    ------
    LinkError
        The broker cannot be reached.
    BundleError
        The bytes are no bundle.
    """
    contents = unpack_bundle(bundle, allow_joint=True)
    program, manifest = contents.program, Manifest.from_json(contents.manifest, contents.program)
    if not manifest.hpc:
        return Served("")
    hpc, id_ = bytes.fromhex(manifest.hpc), secrets.token_bytes(ID_BYTES)
    device = _name(address.user, tenant)
    client = Client(ClientConfig(address=address, topics=[reply_topic(device)], name="hardcase-asks"))
    client.open(START_S)
    try:
        dtypes = [program.features[f].dtype for f in program.uplink.features]
        payload = pack_request(Request(id_, hpc, round(wait_s * 1000), (None,) * len(dtypes), is_audit=True), dtypes)
        client.publish(request_topic(device), payload, id_, qos=1, response_topic=reply_topic(device))
        other, until = "", monotonic() + wait_s
        while not client.refusal and (left_s := until - monotonic()) > 0:
            for _, message in client.receive(left_s):
                answers, told = _heard(message.payload, hpc, program.n_classes, id_)
                if answers:
                    return Served(manifest.hpc, answers=True)
                other = told or other  # the right one may still answer
    finally:
        client.close()
    return Served(manifest.hpc, other=other, refusal=client.refusal)


def _name(user: str | None, tenant: str) -> str:
    """A device's name for whoever logs in as this user."""
    random = f"hardcase-asks-{secrets.token_hex(4)}"
    try:
        return check_device_id(user or "")
    except InputError:
        return f"{tenant}/{random}" if tenant else random


def _heard(payload: bytes, hpc: bytes, n_classes: int, id_: bytes) -> tuple[bool, str]:
    """Whether this answers for the right f0, and the SHA-256 of another one that does not; "" if it says nothing."""
    try:
        return unpack_reply(payload, hpc, n_classes).id == id_, ""
    except WireError as error:
        told = other_hpc_in(payload) if error.reason == "other_hpc" else None
        return False, told[1].hex() if told is not None and told[0] == id_ else ""
