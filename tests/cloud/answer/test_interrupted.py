# SPDX-License-Identifier: Apache-2.0
"""A worker that waits for its connection does not take that time for the model's."""

from __future__ import annotations

import pytest

from hardcase_cloud.answer.service import Service, ServiceConfig
from hardcase_cloud.answer.worker import Worker
from hardcase_cloud.mqtt.packets import Published
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import request_topic

from ...helpers.cloud.requests import FakeModel, ask


class Line:
    """A connection that hands out requests, and once is away for five seconds."""

    version, lost, is_up = 5, 0, True

    def __init__(self, now: list[float]) -> None:
        self._now, self._turn = now, 0

    def receive(self, wait_s: float) -> list[tuple[tuple[int, int], Published]]:
        self._turn += 1
        if self._turn == 2:
            self._now[0] += 5.0  # it was lost, and is up again
            self.is_up = False
        elif self._turn == 3:
            self.is_up = True
        ids = {1: range(3), 4: range(3, 9)}.get(self._turn, ())
        return [((1, k), Published(request_topic(f"d{k}"), ask(k, (21.5,), deadline_ms=8_000), k)) for k in ids]

    def publish(self, *message: object) -> bool:
        return True

    def acknowledge(self, token: tuple[int, int]) -> None: ...
    def flush(self, wait_s: float = 0.0) -> None: ...


@pytest.mark.parametrize("knows", [True, False])
def test_the_time_without_a_connection_is_not_the_models(knows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not knows:  # as it was: the model seems to take five seconds, and everybody is refused
        monkeypatch.setattr(Service, "interrupted", lambda self: None)
    now = [100.0]
    service = Service(FakeModel(dtypes=("f32",)), ServiceConfig(max_batch=1, linger_ms=0))
    worker = Worker(service, parse_address("mqtt://h"), "g", clock=lambda: now[0])
    worker.client = Line(now)  # type: ignore[assignment]
    for _ in range(9):
        worker._step()
    assert (service.counters.served == 9, service.counters.busy == 0) == (knows, knows)
