# SPDX-License-Identifier: Apache-2.0
"""Asks whether a worker answers the f0 of a bundle, by one request without readings, before devices are to ask it.

The request is an audit, which no worker keeps, of a device that has the name of the broker's user, because access rules
let a user ask under its own name at most. Any reply of the right f0 will do, also that it is busy or refuses the row.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
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

from ...mqtt.client import Client, ClientConfig
from ...mqtt.machine import NO_SUBSCRIBERS, REASONS

WAIT_S = 2.0  # for a reply
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


class Question:
    """One request to the workers of a bundle's f0, and what has come back; its owner has the connection.

    Parameters
    ----------
    bundle : the bundle's bytes
    name : of the device as which to ask, of ``name_of``
    wait_s : how long a worker has

    Attributes
    ----------
    topic : str
        Of the replies.
    is_over : bool
        Whether nothing more has to be heard.

    Raises
    ------
    BundleError
        The bytes are no bundle.
    """

    def __init__(self, bundle: bytes, name: str, wait_s: float = WAIT_S) -> None:
        contents = unpack_bundle(bundle, allow_joint=True)
        program, manifest = contents.program, Manifest.from_json(contents.manifest, contents.program)
        self.topic, self.wait_s, self.is_over = reply_topic(name), wait_s, not manifest.hpc
        self._hpc, self._n_classes, self._to = manifest.hpc, program.n_classes, request_topic(name)
        self._dtypes = [program.features[f].dtype for f in program.uplink.features]
        self._id = secrets.token_bytes(ID_BYTES)
        self._answers, self._other, self._refusal, self._packet_id = False, "", 0, 0

    def put(self, publish: Callable[..., int]) -> None:
        """Send the request by ``Client.publish``."""
        row, deadline_ms = (None,) * len(self._dtypes), round(self.wait_s * 1000)
        request = Request(self._id, bytes.fromhex(self._hpc), deadline_ms, row, is_audit=True)
        payload = pack_request(request, self._dtypes)
        self._packet_id = publish(self._to, payload, correlation=self._id, qos=1, response_topic=self.topic)

    def hear(self, payload: bytes) -> None:
        """Take a reply."""
        try:
            self._answers |= unpack_reply(payload, bytes.fromhex(self._hpc), self._n_classes).id == self._id
        except WireError as error:
            told = other_hpc_in(payload) if error.reason == "other_hpc" else None
            if told is not None and told[0] == self._id:
                self._other = told[1].hex()  # the right one may still answer
        self.is_over = self.is_over or self._answers

    def refused(self, refusals: Iterable[tuple[int, int]]) -> None:
        """Take what the broker refused, of ``Client.refusals``."""
        for packet_id, reason in refusals:
            if packet_id == self._packet_id:
                self._refusal, self.is_over = reason, True

    def found(self) -> Served:
        """What is known by now."""
        return Served(self._hpc, self._answers, self._other, self._refusal)


def ask_f0(address: Address, bundle: bytes, tenant: str = "") -> Served:
    """Ask the workers of a broker, on a connection for this question.

    Raises
    ------
    LinkError
        The broker cannot be reached.
    BundleError
        The bytes are no bundle.
    """
    question = Question(bundle, name_of(address, tenant))
    if question.is_over:
        return question.found()
    client = Client(ClientConfig(address=address, topics=[question.topic], name="hardcase-asks"))
    client.open()
    try:
        question.put(client.publish)
        until = monotonic() + question.wait_s
        while not question.is_over and (left_s := until - monotonic()) > 0:
            for _, message in client.receive(left_s):
                question.hear(message.payload)
            question.refused(client.refusals)
    finally:
        client.close()
    return question.found()


def name_of(address: Address, tenant: str) -> str:
    """A device's name for whoever logs in as this user."""
    random = f"hardcase-asks-{secrets.token_hex(4)}"
    try:
        return check_device_id(address.user)
    except InputError:
        return f"{tenant}/{random}" if tenant else random
