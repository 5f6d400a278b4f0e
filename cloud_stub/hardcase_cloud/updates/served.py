# SPDX-License-Identifier: Apache-2.0
"""Asks whether a worker answers the f0 of a bundle, by one request without readings, before devices are to ask it.

The request is an audit, which no worker keeps, of a device that has the name of the broker's user, because access rules
let a user ask under its own name at most. Any reply of the right f0 will do, also that it is busy or refuses the row.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link.address import Address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
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

__all__ = ["Served", "ask_f0"]

WAIT_S = 2.0  # for a reply
START_S = 15.0
DIGITS = 12
NOBODY = "no matching subscribers"  # why a broker of MQTT 5 has nobody to give a request to


@dataclass(frozen=True, slots=True)
class Served:
    """What is known of a bundle's f0.

    Parameters
    ----------
    hpc : its SHA-256, in hex; "" if the bundle asks nobody
    answers : whether a worker of it has replied
    other : SHA-256 of an f0 whose worker replied, and no worker of the right one; "" if none did
    why : why the broker refused the request, or ""
    """

    hpc: str
    answers: bool = False
    other: str = ""
    why: str = ""

    @property
    def words(self) -> str:
        """What is wrong, in one line; "" if nothing is."""
        ours = self.hpc[:DIGITS]
        if not self.hpc or self.answers:
            return ""
        if self.other:
            return f"no worker serves f0 {ours} of this bundle, but one serves {self.other[:DIGITS]}"
        if self.why and self.why != NOBODY:
            return f"whether a worker serves f0 {ours} of this bundle cannot be asked: {self.why}"
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
    device, heard = _name(address.user, tenant), _Heard(hpc, program.n_classes, id_)
    config = ConnectionConfig(address=address, client_id=f"hardcase-asks-{secrets.token_hex(8)}", max_in_flight=1)
    connection = Connection(
        config, subscribe=reply_topic(device), on_message=heard.take, on_refused=lambda _, why: heard.refused(why)
    )
    connection.open(START_S)
    try:
        dtypes = [program.features[f].dtype for f in program.uplink.features]
        request = Request(id_, hpc, round(wait_s * 1000), (None,) * len(dtypes), is_audit=True)
        payload = pack_request(request, dtypes)
        connection.publish(request_topic(device), payload, response_topic=reply_topic(device), correlation=id_)
        heard.is_over.wait(wait_s)
    finally:
        connection.stop()
    return heard.found(manifest.hpc)


def _name(user: str | None, tenant: str) -> str:
    """A device's name for whoever logs in as this user."""
    random = f"hardcase-asks-{secrets.token_hex(4)}"
    try:
        return check_device_id(user or "")
    except InputError:
        return f"{tenant}/{random}" if tenant else random


class _Heard:
    """What has come back; filled on the connection's thread."""

    def __init__(self, hpc: bytes, n_classes: int, id_: bytes) -> None:
        self._hpc, self._n_classes, self._id = hpc, n_classes, id_
        self._answers, self._other, self._why = False, "", ""
        self.is_over = threading.Event()

    def take(self, message: Message) -> None:
        try:
            if unpack_reply(message.payload, self._hpc, self._n_classes).id == self._id:
                self._answers = True
                self.is_over.set()
        except WireError as error:
            told = other_hpc_in(message.payload) if error.reason == "other_hpc" else None
            if told is not None and told[0] == self._id:
                self._other = told[1].hex()  # the right one may still answer

    def refused(self, why: str) -> None:
        self._why = why
        self.is_over.set()

    def found(self, hpc: str) -> Served:
        return Served(hpc, self._answers, self._other, self._why)
