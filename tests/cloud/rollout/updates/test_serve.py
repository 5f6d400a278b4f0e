# SPDX-License-Identifier: Apache-2.0
"""A campaign at a broker: what devices have said of themselves comes at once, and none of it is lost."""

from __future__ import annotations

from hardcase_cloud.mqtt.packets import Published
from hardcase_cloud.rollout.updates import serve
from hardcase_cloud.rollout.updates.campaign import Campaign
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.update.messages import Offer, digests_of
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import facts_topic, status_topic

DATA = bytes(5_000)
OFFER = Offer(size=len(DATA), sha256=sha256(DATA), chunk_bytes=4_096, digests=digests_of(DATA, 4_096))


def test_states_and_facts_of_a_large_fleet_come_while_it_does_something_else() -> None:
    names = [f"d{k}" for k in range(10_000)]
    campaign = Campaign(DATA, OFFER, named=frozenset(names))
    server = serve.Server(campaign, parse_address("mqtt://127.0.0.1:1"))
    for topic, payload in ((status_topic, b'{"state": "online"}'), (facts_topic, b'{"bundle": "x"}')):
        for name in names:
            server._take(Published(topic(name), payload, 0))
    server._step()
    assert all(campaign.is_online(name) and campaign.has_facts(name) for name in names)


def test_what_waits_is_bounded() -> None:
    server = serve.Server(Campaign(DATA, OFFER), parse_address("mqtt://127.0.0.1:1"))
    large = Published(facts_topic("d"), bytes(serve.MAX_PACKET_BYTES), 0)
    for _ in range(2):
        for _ in range(serve.MOST_BYTES // serve.MAX_PACKET_BYTES + 9):
            server._take(large)
        server._take(None)
        assert len(server._queue) == serve.MOST_BYTES // serve.MAX_PACKET_BYTES + 1
        server._step()
    assert (server._bytes, len(server._queue)) == (0, 0)
