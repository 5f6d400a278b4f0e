# SPDX-License-Identifier: Apache-2.0
"""The machine of a device and its requests: the same decision by whoever drives them, whatever comes in between."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardcase_edge
from hardcase_edge.device.device import Device
from hardcase_edge.device.machine import Ask, Decider, Deciding, Read, RuntimeConfig
from hardcase_edge.exchange.exchange import Exchange, Over
from hardcase_edge.link.requests import Publish, RequestFormat, Requests
from hardcase_edge.link.wire import BUSY, OK, OTHER_HPC, REFUSED, Reply, pack_reply, unpack_request
from tests.helpers.edge.device import HARD, HPC, FakeBank, FakeLink, make_loaded, usual_reply

LOADED = make_loaded(ranges=((-2.0, 2.0), None, None, None, None))
FORM = RequestFormat.of(LOADED.machine.program, LOADED.manifest)
xs = st.one_of(st.none(), st.sampled_from([-3.0, -1.0, -HARD, 0.0, HARD, 1.0, 3.0]))
replies = st.one_of(
    st.none(),
    st.builds(
        Reply, st.just(bytes(16)), st.just(HPC), st.sampled_from([OK, REFUSED, BUSY]), st.integers(0, 1),
        st.integers(0, 10_000),
    ),
)  # fmt: skip


@pytest.mark.parametrize("module", ["device/machine.py", "link/requests.py", "exchange/exchange.py"])
def test_neither_asks_a_clock_nor_opens_anything(module: str) -> None:
    text = (Path(hardcase_edge.__file__).parent / module).read_text()
    names = {a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and not n.level}
    assert names <= {"__future__", "collections", "collections.abc", "logging", "math", "typing"}


def run(deciding: Deciding, do: Callable[[Any], Any], seconds: float = 0.25) -> Any:
    """Drive a decision, of which each effect takes so long."""
    now, effect = 0.0, next(deciding)
    try:
        while True:
            now += seconds
            effect = deciding.send((now, do(effect)))
    except StopIteration as end:
        return end.value


@given(
    x=xs, is_broken=st.booleans(), reply=replies, can_ask=st.booleans(), is_strict=st.booleans(),
    cuts=st.lists(st.integers(0, 3), max_size=3),
)  # fmt: skip
def test_a_thread_and_an_owner_in_memory_get_the_same_record_also_after_decisions_that_were_cut_off(
    x: float | None, is_broken: bool, reply: Reply | None, can_ask: bool, is_strict: bool, cuts: list[int]
) -> None:
    config = RuntimeConfig(strict_range=is_strict)
    link = FakeLink([reply], can_ask=can_ask)
    bank = FakeBank([x], broken=[1] if is_broken else [])
    times = iter(k / 4 for k in range(99))
    device = Device(LOADED, bank, link, config, now=lambda: 9.0, monotonic=lambda: next(times), wait=lambda s: None)
    assert bank.next_item()
    whole = device.decide()

    decider, asked = Decider(LOADED, config), list[Ask]()

    def do(effect: Read | Ask) -> Any:
        if isinstance(effect, Read):
            return bank.read(effect.sensors)
        asked.append(effect)
        return None if reply is None else reply.answer

    for n in cuts:  # the power goes after so many effects, and nothing of it is left
        deciding = decider.decide(0.0, can_ask=can_ask)
        effect = next(deciding)
        for _ in range(n):
            try:
                effect = deciding.send((0.0, do(effect)))
            except StopIteration:
                break
        deciding.close()
    asked.clear()
    case = run(decider.decide(0.0, can_ask=can_ask), do)
    n_effects = round((whole["latency_ms"] / 1000) / 0.25) - 1
    record = decider.finish(case, (n_effects + 1) * 0.25, 9.0)
    assert record == whole
    assert [a.readings for a in asked] == [readings for readings, _ in link.asked]
    assert decider.counters["asked"] == len(cuts) + 1
    assert decider.counters[record["route"]] == device.counters[record["route"]] == 1


# ---------------------------------------------------------------- requests


def ask(counters: Counter[str] | None = None) -> tuple[Requests, list[str], Publish]:
    """A device that has sent a request with the id of zeros at 0 ms."""
    lines: list[str] = []
    counted = Counter() if counters is None else counters
    requests = Requests(FORM, "pump-7", Exchange(1_000, counted), counted, lambda line, level: lines.append(line))
    requests.ask(0, bytes(16), [HARD, 1.0, 2.0, 3.0, None], 2_000)
    publish = requests.poll(0, 1)
    assert isinstance(publish, Publish)
    requests.exchange.sent()
    return requests, lines, publish


def test_a_request_is_a_message_whose_reply_is_an_answer() -> None:
    requests, _, publish = ask()
    assert (publish.topic, publish.response_topic) == ("hardcase/v1/pump-7/request", "hardcase/v1/pump-7/reply")
    assert (publish.id, publish.expiry_s) == (bytes(16), 2)
    request = unpack_request(publish.payload, FORM.dtypes, HPC)
    assert (request.readings, request.deadline_ms, request.is_audit) == ((HARD, 1.0, 2.0, 3.0, None), 2_000, False)
    assert requests.received(5, usual_reply(request), bytes(16)) is None
    over = requests.poll(5, 1)
    assert isinstance(over, Over)
    assert over.reply.answer == (1, 9_000)
    assert requests.poll(6, 1) is None


def test_a_request_aside_takes_its_reply_from_no_live_one_and_counts_nowhere() -> None:
    counters: Counter[str] = Counter()
    requests = ask(counters)[0]
    aside = requests.aside(b"a" * 16, [1.0] * 5, 500)
    assert aside is not None
    request = unpack_request(aside.payload, FORM.dtypes, HPC)
    assert (request.is_audit, request.deadline_ms) == (True, 500)
    told = requests.received(5, usual_reply(request, result=0))
    assert told is not None
    assert told.answer == (0, 9_000)
    assert requests.is_asking, "the live request still waits"
    assert requests.received(6, usual_reply(request)) is None, "a second reply is nobody's"
    assert counters == {"sent": 1, "unknown": 1}


def test_a_request_aside_that_another_replaced_hears_nothing() -> None:
    requests, _, _ = ask()
    first, second = requests.aside(b"a" * 16, [1.0] * 5, 500), requests.aside(b"b" * 16, [1.0] * 5, 500)
    assert first is not None
    assert second is not None
    assert requests.received(5, usual_reply(unpack_request(first.payload, FORM.dtypes, HPC))) is None
    assert requests.received(5, usual_reply(unpack_request(second.payload, FORM.dtypes, HPC))) is not None


@pytest.mark.parametrize("is_aside", [False, True])
def test_a_worker_of_another_f0_is_told_of_once_the_request_has_ended_in_vain(is_aside: bool) -> None:
    requests, lines, _ = ask()
    id_ = b"a" * 16 if is_aside else bytes(16)
    if is_aside:
        requests.aside(id_, [1.0] * 5, 500)
    requests.received(5, pack_reply(Reply(id_, b"o" * 32, OTHER_HPC, 0, 0)))
    assert not lines
    if is_aside:
        requests.aside(b"b" * 16, [1.0] * 5, 500)
    else:
        assert isinstance(requests.poll(2_000, 1), Over)
    assert [line for line in lines if "no worker serves f0 000102030405" in line]
    assert requests.served.n_unserved == 1


messages = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda id_, hpc, status, result, confidence: pack_reply(Reply(id_, hpc, status, result, confidence)),
        st.sampled_from([bytes(16), b"a" * 16, b"z" * 16]), st.sampled_from([HPC, b"o" * 32]), st.integers(0, 5),
        st.integers(-3, 70_000), st.integers(0, 20_000),
    ),
)  # fmt: skip


@given(came=st.lists(st.tuples(messages, st.sampled_from([None, bytes(16), b"x"])), max_size=12))
def test_whatever_arrives_ends_a_request_only_as_its_reply(came: Sequence[tuple[bytes, bytes | None]]) -> None:
    requests, _, _ = ask()
    requests.aside(b"a" * 16, [1.0] * 5, 500)
    for k, (payload, correlation) in enumerate(came):
        aside = requests.received(k, payload, correlation)
        assert aside is None or (aside.id, aside.hpc) == (b"a" * 16, HPC)
        over = requests.poll(k, 1)
        if isinstance(over, Over):
            assert (over.reply.id, over.reply.hpc) == (bytes(16), HPC)
            assert correlation in (None, bytes(16))
            break
    else:
        assert requests.is_asking
