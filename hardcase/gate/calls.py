# SPDX-License-Identifier: Apache-2.0
"""Calls of functions that may fail, hang or lie: all of one step at once, and none is waited for beyond its deadline.

A plain function runs in a daemon thread of a pool that stays, because to start one takes longer than to decide: one
that hangs keeps its thread, but nobody waits for it, not even the end of the process. Without a deadline the caller's
own thread runs one function of each step. A coroutine that is late is cancelled and not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from math import isfinite
from numbers import Integral, Real
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, ClassVar

from .file import is_share

__all__ = ["MOST_THREADS", "Call", "Said", "acall_all", "call_all", "call_aside", "is_async"]

Call = Callable[[Any], Any]
Said = tuple[str | None, float | None, float | None]  # label, confidence and price, None for missing
Ended = tuple[Any, BaseException | None]  # what a function gave, or raised
MOST_THREADS = 1_000  # of this process, those of functions that hang included
LATE: Ended = (None, TimeoutError())
log = logging.getLogger(__name__)


def is_async(call: Call) -> bool:
    """Whether a call of it is awaited."""
    return iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def call_all(calls: Mapping[str, Call], request: Any, deadline_s: float | None) -> dict[str, Said | None]:
    """What each function said, None for one that failed, was late, or said something else than a pair.

    Parameters
    ----------
    deadline_s : seconds for all of them; None: they are waited for, however long they take
    """
    came: SimpleQueue[tuple[str, Ended]] = SimpleQueue()
    names = list(calls)
    own = names.pop() if deadline_s is None else None
    for name in names:
        _start(calls[name], request, partial(_put, came, name))
    ended = {} if own is None else {own: _ended(calls[own], request)}
    end = None if deadline_s is None else monotonic() + deadline_s
    try:
        while len(ended) < len(calls):
            name, one = came.get(timeout=None if end is None else max(0.0, end - monotonic()))
            ended[name] = one
    except Empty:
        pass
    return {name: _said(name, *ended.get(name, LATE)) for name in calls}


def _put(came: SimpleQueue[tuple[str, Ended]], name: str, ended: Ended) -> None:
    came.put((name, ended))


def call_aside(name: str, call: Call, request: Any, tell: Callable[[Said | None], object]) -> None:
    """Start one call for which nobody waits; in a thread, ``tell`` gets what it said."""
    _start(call, request, lambda ended: tell(_said(name, *ended)))


async def acall_all(calls: Mapping[str, Call], request: Any, deadline_s: float | None) -> dict[str, Said | None]:
    """As ``call_all``, for coroutine functions and plain ones, which run in threads."""
    loop, ended = asyncio.get_running_loop(), dict[str, Ended]()
    is_over: asyncio.Future[None] = loop.create_future()

    def take(name: str, one: Ended) -> None:
        ended[name] = one
        if len(ended) == len(calls):
            _let_go(is_over)

    tasks = []
    for name, call in calls.items():
        if is_async(call):
            tasks.append(loop.create_task(_awaited(call, request, partial(take, name))))
        else:
            _start(call, request, partial(_into_loop, loop, partial(take, name)))
    timer = None if deadline_s is None else loop.call_later(deadline_s, _let_go, is_over)
    try:
        await is_over
    finally:
        if timer is not None:
            timer.cancel()
        for task in tasks:
            task.cancel()  # which does nothing to one that has ended
    return {name: _said(name, *ended.get(name, LATE)) for name in calls}


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _awaited(call: Call, request: Any, tell: Callable[[Ended], object]) -> None:
    try:
        ended: Ended = await call(request), None
    except BaseException as error:  # asyncio's cancellation of a call is that call's failure, too
        ended = None, error
    tell(ended)


def _into_loop(loop: asyncio.AbstractEventLoop, tell: Callable[[Ended], object], ended: Ended) -> None:
    try:
        loop.call_soon_threadsafe(tell, ended)
    except RuntimeError:  # the loop is closed: nobody waits any more
        log.debug("a call ended after its loop")


class _Worker:
    """A thread that runs a function, and then waits for the next one."""

    idle: ClassVar[deque[_Worker]] = deque()
    n: ClassVar[int] = 0

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Call, Any, Callable[[Ended], object]]] = SimpleQueue()
        _Worker.n += 1
        Thread(target=self._run, daemon=True, name="hardcase-gate").start()

    def _run(self) -> None:
        while True:
            call, request, tell = self.jobs.get()
            ended = _ended(call, request)
            self.idle.append(self)
            tell(ended)
            del call, request, tell, ended  # while it waits, it keeps nothing of its last call


def _forget_workers() -> None:
    """A process that was forked has none of its parent's threads."""
    _Worker.idle.clear()
    _Worker.n = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def _start(call: Call, request: Any, tell: Callable[[Ended], object]) -> None:
    """Run it in a thread of the pool, which then calls ``tell``."""
    try:
        worker = _Worker.idle.pop()
    except IndexError:
        if _Worker.n >= MOST_THREADS:
            tell((None, RuntimeError(f"{MOST_THREADS} calls have not returned yet; no further thread is started")))
            return
        worker = _Worker()
    worker.jobs.put((call, request, tell))


def _ended(call: Call, request: Any) -> Ended:
    try:
        return call(request), None
    except BaseException as error:  # whatever a stranger's function raises is its failure, and no thread ends by it
        return None, error


def _said(name: str, result: Any, error: BaseException | None) -> Said | None:
    if error is None:
        try:
            return _checked(result)
        except Exception as wrong:  # a stranger's number may raise anything when it is looked at
            error = wrong
    if isinstance(error, TimeoutError):
        log.warning("%s was late", name)
    elif isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    else:
        log.warning("%s failed: %s: %s", name, type(error).__name__, str(error)[:200])
    return None


def _checked(said: Any) -> Said:
    """A label as text, a confidence from 0 to 1, and an amount that the call cost.

    Raises
    ------
    ValueError
        It is something else.
    """
    if not isinstance(said, tuple | list) or len(said) not in (2, 3):
        raise ValueError(f"it gave {type(said).__name__}, a pair (label, confidence) is expected")
    label, confidence, price = (*said, None)[:3]
    if not (label is None or isinstance(label, str | Integral)):
        raise ValueError(f"its label is {type(label).__name__}, text or a whole number is expected")
    if confidence is not None and not (isinstance(confidence, Real) and is_share(float(confidence))):
        raise ValueError(f"its confidence is {str(confidence)[:40]}, a number from 0 to 1 is expected")
    if price is not None and not (isinstance(price, Real) and isfinite(price) and float(price) >= 0):
        raise ValueError("its price is no amount")
    numbers = (None if x is None else float(x) for x in (confidence, price))
    return (None if label is None else str(label), *numbers)  # type: ignore[return-value]  # of three
