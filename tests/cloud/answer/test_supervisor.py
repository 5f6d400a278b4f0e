# SPDX-License-Identifier: Apache-2.0
"""The supervisor goes on starting workers where the operating system refuses it a process or a line of output."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hardcase_cloud.answer import supervisor
from hardcase_cloud.answer.supervisor import NO_PROCESS, Event, Supervisor
from hardcase_cloud.commands import up
from hardcase_edge.errors import LinkError
from tests.helpers.cloud.brokers import until

WORKER = [sys.executable, "-S", "-c", """print('{"event": "ready"}', flush=True)"""]  # and dies


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Supervisor, list[Event]]]:
    """A supervisor whose worker has been ready once, and all events since, which it cannot write to a full disk."""
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(dict(event))
        up._relay(True, event)

    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    guard = Supervisor(WORKER, os.environ, on_event)
    with io.TextIOWrapper(open("/dev/full", "wb", buffering=0), write_through=True) as full:
        monkeypatch.setattr(sys, "stdout", full)
        guard.start()
        yield guard, events
        guard.stop()


def test_a_full_disk_loses_events_and_no_worker(started: tuple[Supervisor, list[Event]]) -> None:
    guard, events = started
    until(lambda: guard.restarts >= 2)
    assert {"event": "ready"} in events


def test_a_process_that_cannot_be_started_is_tried_again(
    started: tuple[Supervisor, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, events = started

    def refuse(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        until(lambda: any(event.get("status") == NO_PROCESS for event in events))
    n_ready = events.count({"event": "ready"})
    until(lambda: events.count({"event": "ready"}) > n_ready)


def test_a_first_process_that_cannot_be_started_is_an_error_at_once() -> None:
    guard = Supervisor(["/nowhere/worker"], os.environ, lambda event: None)
    with pytest.raises(LinkError, match="could not start"):
        guard.start()
