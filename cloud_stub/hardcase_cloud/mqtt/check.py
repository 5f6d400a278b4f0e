# SPDX-License-Identifier: Apache-2.0
"""Asks a broker for each thing that hardcase leans on, and says what will not work without it.

The questions are asked on hardcase's own topics, as a device named ``check-...`` and as a worker, with the credentials
of the address. Nothing stays behind: what is retained is removed again.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from hardcase_edge.errors import LinkError, WireError
from hardcase_edge.link.address import Address, tls_context
from hardcase_edge.link.wire import reply_topic, request_topic, status_topic
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from . import packets
from .packets import V5, V311
from .prober import Prober, Silence

N_SHARED = 20
N_ROUND_TRIPS = 20
SLOW_MS = 30.0  # Nagle's algorithm and delayed acknowledgements together cost 40 ms
EXPIRED_S = 2.1  # brokers count whole seconds
QUIET_S = 0.4  # after which a message that has not come will not
TRIPS = 4  # as many ways there and back are waited for, too, on a line that is slow
EVERYTHING = "anything: check the access rules of these credentials"
NO_SUBSCRIBERS, TAKEN_OVER = 0x10, 0x8E
MAXIMUM_QOS, RETAIN_AVAILABLE, SHARED_AVAILABLE = 0x24, 0x25, 0x2A
YES, NO, SO_SO = "yes", "no", "partly"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a broker does of one thing."""

    what: str
    does: str  # "yes", "no" or "partly"
    detail: str = ""
    without: str = ""  # what will not work, if it does not
    is_needed: bool = False  # whether nothing works without it


class _Checks:
    """The questions, each a method that returns a finding."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = tls_context(address)
        self._device = f"check-{secrets.token_hex(4)}"
        self._version = V5
        self._properties: dict[int, int] = {}
        self._trip_s = 0.0  # there and back, as the fastest connection has taken; 0.0: none yet

    def run(self) -> list[Finding]:
        """All findings; the questions that need MQTT 5 are left out where it is not spoken."""
        findings = [self._mqtt_5(), self._mqtt_3()]
        if all(f.does == NO for f in findings):
            raise LinkError(
                f"broker {self._address.url} takes no connection ({findings[0].detail}; {findings[1].detail}); start "
                "it, or correct its URL or the credentials"
            )
        self._version = V5 if findings[0].does == YES else V311
        questions = [self._round_trip, self._longest_request, self._retained, self._will]
        if self._version == V5:
            questions += [
                self._properties_kept, self._shared, self._expiry, self._receive_maximum, self._no_subscribers,
                self._offline_queue, self._taken_over,
            ]  # fmt: skip
        return [*findings, *(self._ask(question) for question in questions), *self._limits()]

    def _ask(self, question: Callable[[], Finding]) -> Finding:
        try:
            return question()
        except (OSError, Silence, WireError) as error:
            what = (question.__doc__ or "").rstrip(".")
            is_needed = question == self._round_trip
            without = EVERYTHING if is_needed else "whatever needs it"
            return Finding(what, NO, str(error) or type(error).__name__, without, is_needed)

    def _open(self, role: str = "", version: int | None = None, **settings: object) -> Prober:
        name, answer_s = f"{self._device}{role}", TRIPS * self._trip_s
        client = Prober(self._address, self._tls, name, version or self._version, answer_s=answer_s, **settings)
        self._trip_s = min(self._trip_s, client.connected_s) if self._trip_s else client.connected_s
        if client.reason:
            client.drop()
            raise Silence(f"refused with reason {client.reason}")
        return client

    @property
    def _quiet_s(self) -> float:
        return max(QUIET_S, TRIPS * self._trip_s)

    # ------------------------------------------------------------ questions

    def _mqtt_5(self) -> Finding:
        without = "several workers, and word at once that none is there; everything else works on 3.1.1"
        try:
            client = self._open(version=V5)
        except (OSError, Silence, WireError) as error:
            return Finding("MQTT 5", NO, str(error), without)
        self._properties = {k: v for k, v in client.properties.items() if isinstance(v, int)}
        client.close()
        return Finding("MQTT 5", YES, "", without)

    def _mqtt_3(self) -> Finding:
        try:
            self._open(version=V311).close()
        except (OSError, Silence, WireError) as error:
            return Finding("MQTT 3.1.1", NO, str(error), "devices that speak 3.1.1 only, such as microcontrollers")
        return Finding("MQTT 3.1.1", YES)

    def _round_trip(self) -> Finding:
        """Requests and replies."""
        without = EVERYTHING
        worker, device = self._open("-w"), self._open()
        try:
            granted = worker.subscribe(request_topic("+")), device.subscribe(reply_topic(self._device))
            times = []
            for k in range(N_ROUND_TRIPS):
                began = time.monotonic()
                device.publish(request_topic(self._device), b"%d" % k)
                request = worker.message()
                worker.send(packets.publish(reply_topic(self._device), b"%d" % k, 0, self._version))
                reply = device.message()
                times.append(1000 * (time.monotonic() - began))
                if request is None or reply is None or max(granted) >= 0x80:
                    return Finding("requests and replies", NO, f"number {k} was lost", without, is_needed=True)
        finally:
            worker.close()
            device.close()
        median = statistics.median(times)
        detail = f"{median:.1f} ms there and back (median of {N_ROUND_TRIPS})"
        if median > SLOW_MS:
            return Finding("requests and replies", SO_SO, detail, "short deadlines; set TCP_NODELAY at the broker")
        return Finding("requests and replies", YES, detail, without, is_needed=True)

    def _longest_request(self) -> Finding:
        """The longest request."""
        what, without = f"requests of {MAX_REQUEST_BYTES:,} bytes", "bundles whose requests are longer than it takes"
        worker, device = self._open("-w"), self._open()
        try:
            worker.subscribe(request_topic("+"))
            device.publish(request_topic(self._device), b"x" * MAX_REQUEST_BYTES)
            message = worker.message()
        finally:
            worker.close()
            device.close()
        has_come = message is not None and len(message.payload) == MAX_REQUEST_BYTES
        return Finding(what, YES if has_come else NO, "", without)

    def _retained(self) -> Finding:
        """Retained states."""
        topic = status_topic(self._device)
        device, watcher = self._open(), self._open("-s")
        try:
            device.publish(topic, b'{"state":"online"}', retain=True)
            for wait_s in (self._quiet_s, self._quiet_s, None):  # NATS keeps a state after it has acknowledged it
                watcher.subscribe(topic, retained=True)
                message = watcher.message(wait_s)
                if message is not None and message.retain:
                    break
            device.publish(topic, b"", retain=True)
        finally:
            device.close()
            watcher.close()
        has_it = message is not None and message.retain
        return Finding("retained states", YES if has_it else NO, "", "the state of devices to whoever looks later")

    def _will(self) -> Finding:
        """Last wills."""
        topic = status_topic(self._device)
        watcher = self._open("-s")
        device = self._open(will=(topic, b'{"state":"offline"}'))
        try:
            watcher.subscribe(topic)
            device.drop()
            message = watcher.message()
            watcher.publish(topic, b"", retain=True)
        finally:
            device.drop()
            watcher.close()
        is_told = message is not None and b"offline" in message.payload
        return Finding("last wills", YES if is_told else NO, "", "notice of a device that has lost its power")

    def _properties_kept(self) -> Finding:
        """Correlation data."""
        worker, device = self._open("-w"), self._open()
        try:
            worker.subscribe(request_topic("+"))
            device.publish(
                request_topic(self._device), b"x", correlation=b"c" * 16, response_topic=reply_topic(self._device)
            )
            message = worker.message()
        finally:
            worker.close()
            device.close()
        is_kept = message is not None and message.correlation == b"c" * 16
        return Finding(
            "correlation data", YES if is_kept else NO, "", "tracing by other tools; hardcase has its own id"
        )

    def _shared(self) -> Finding:
        """Shared subscriptions."""
        without = "more than one worker"
        if self._properties.get(SHARED_AVAILABLE, 1) == 0:
            return Finding("shared subscriptions", NO, "the broker says so", without)
        workers = [self._open(f"-w{k}") for k in range(2)]
        device = self._open()
        try:
            for worker in workers:
                worker.subscribe(f"$share/{self._device}/{request_topic('+')}")
            for k in range(N_SHARED):
                device.publish(request_topic(self._device), b"%d" % k)
            counts = [self._count(worker) for worker in workers]
        finally:
            for client in (*workers, device):
                client.close()
        detail = f"{counts[0]} and {counts[1]} of {N_SHARED}"
        if sum(counts) != N_SHARED:
            return Finding("shared subscriptions", NO, detail, without)
        return Finding("shared subscriptions", YES if all(counts) else SO_SO, detail, "work for every worker")

    def _count(self, client: Prober, expected: int = 0) -> int:
        """How many messages come; so many are waited for as long as an answer, because a broker may be busy."""
        n = 0
        while client.message(None if n < expected else self._quiet_s) is not None:
            n += 1
        return n

    def _expiry(self) -> Finding:
        """Message expiry."""
        worker, device = self._open("-w", receive_maximum=1), self._open()
        try:
            worker.subscribe(request_topic("+"))
            for payload, expiry_s in ((b"first", 60), (b"expires", 1), (b"stays", 60)):
                device.publish(request_topic(self._device), payload, expiry_s=expiry_s)
            first = worker.message(acknowledges=False)
            time.sleep(EXPIRED_S)
            if first is not None:
                worker.acknowledge(first)
            device.publish(request_topic(self._device), b"last")  # mosquitto 2.0 stops at an expired one until then
            after = [message for _ in range(2) if (message := worker.message()) is not None]
        finally:
            worker.close()
            device.close()
        without = "time that a request waits at the broker counts against its deadline only at the device"
        stayed = [message for message in after if message.payload == b"stays"]
        if len(stayed) != 1 or len(after) != 2 or b"expires" in {message.payload for message in after}:
            return Finding("message expiry", NO, "what had expired was delivered, or what had not was lost", without)
        if (stayed[0].expiry_s or 60) >= 60:
            return Finding("message expiry", SO_SO, "the time that is left is not told", without)
        return Finding("message expiry", YES, "", without)

    def _receive_maximum(self) -> Finding:
        """Receive Maximum."""
        worker, device = self._open("-w", receive_maximum=2), self._open()
        try:
            worker.subscribe(request_topic("+"))
            for k in range(4):
                device.publish(request_topic(self._device), b"%d" % k)
            messages = []
            while (message := worker.message(self._quiet_s, acknowledges=False)) is not None:
                messages.append(message)
            for message in messages:
                worker.acknowledge(message)
            rest = self._count(worker, 4 - len(messages))
        finally:
            worker.close()
            device.close()
        is_kept = (len(messages), rest) == (2, 2)
        detail = f"{len(messages)} before an acknowledgement, {rest} after it"
        return Finding(
            "Receive Maximum", YES if is_kept else NO, detail, "back-pressure: the broker floods a slow worker"
        )

    def _no_subscribers(self) -> Finding:
        """Word that nobody subscribes."""
        device = self._open()
        try:
            reason, detail = device.publish(request_topic(self._device), b"x"), ""
            if reason == 0:  # workers that run take requests of all devices; replies to this one, nobody
                detail = "somebody serves requests here, so it was asked about another topic"
                reason = device.publish(reply_topic(self._device), b"x")
        finally:
            device.close()
        without = "word at once that no worker is there; devices wait until their deadline instead"
        does = YES if reason == NO_SUBSCRIBERS else NO
        return Finding("word that nobody subscribes", does, detail if does == YES else "", without)

    def _offline_queue(self) -> Finding:
        """Messages kept for a client that is away."""
        keeps = {"clean": False, "session_expiry_s": 30}
        away, device = self._open("-a", **keeps), self._open()
        try:
            away.subscribe(reply_topic(self._device))
            away.close()
            device.publish(reply_topic(self._device), b"kept")
            back = self._open("-a", **keeps)
            message = back.message()
            back.close()
            self._open("-a").close()  # a clean start, which ends the session
        finally:
            away.drop()
            device.close()
        without = "nothing: hardcase asks again, and keeps what must not be lost in outboxes of its own"
        return Finding("messages for who is away", YES if message is not None else NO, "", without)

    def _taken_over(self) -> Finding:
        """Two clients with one id."""
        first = self._open("-t")
        second = self._open("-t")
        try:
            first.message(self._quiet_s)
        finally:
            second.close()
            first.drop()
        reason = first.closed_for
        without = "a sure sign that two devices have one id"
        return Finding("word of a second client with one id", YES if reason == TAKEN_OVER else NO, "", without)

    # ------------------------------------------------------------ limits

    def _limits(self) -> list[Finding]:
        """What the CONNACK says of limits that hardcase meets."""
        limits = self._properties
        longest = limits.get(packets.MAXIMUM_PACKET, 0)
        findings = []
        if limits.get(MAXIMUM_QOS, 1) < 1:
            findings.append(Finding("QoS 1", NO, "", "anything: requests need an acknowledgement", is_needed=True))
        if limits.get(RETAIN_AVAILABLE, 1) == 0:
            findings.append(Finding("retained messages", NO, "the broker says so", "states and facts of devices"))
        if 0 < longest < MAX_REQUEST_BYTES + 1024:
            findings.append(Finding("packets", SO_SO, f"at most {longest:,} bytes", "longer requests"))
        window = limits.get(packets.RECEIVE_MAXIMUM)
        if window is not None:
            findings.append(Finding("messages at QoS 1 at once", YES, f"{window} unacknowledged from one client"))
        return findings


def check_broker(address: Address) -> list[Finding]:
    """Test what a broker can do of all that hardcase needs.

    Raises
    ------
    LinkError
        It takes no connection at all.
    """
    return _Checks(address).run()
