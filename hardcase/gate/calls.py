# SPDX-License-Identifier: Apache-2.0
"""Calls of functions that may fail, hang or lie: all of one step at once, and none is waited for beyond its deadline.

A plain function runs in a daemon thread of its own: one that hangs keeps its thread, but nobody waits for it, not even
the end of the process. A coroutine that is late is cancelled and not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from inspect import iscoroutinefunction
from math import isfinite
from numbers import Integral, Real
from threading import Thread
from time import monotonic
from typing import Any

__all__ = ["Call", "Said", "acall_all", "call_all", "is_async"]

Call = Callable[[Any], Any]
Said = tuple[str | None, float | None]  # label and confidence, None for missing
log = logging.getLogger(__name__)


def is_async(call: Call) -> bool:
    """Whether a call of it is awaited."""
    return iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def call_all(calls: Mapping[str, Call], request: Any, deadline_s: float) -> dict[str, Said | None]:
    """What each function said, None for one that failed, was late, or said something else than a pair."""
    end = monotonic() + deadline_s
    futures = {name: _started(call, request) for name, call in calls.items()}

    def result_of(future: Future[Any]) -> Callable[[], Any]:
        return lambda: future.result(max(0.0, end - monotonic()))

    return {name: _said(name, result_of(future)) for name, future in futures.items()}


async def acall_all(calls: Mapping[str, Call], request: Any, deadline_s: float) -> dict[str, Said | None]:
    """As ``call_all``, for coroutine functions and plain ones."""
    tasks = {name: asyncio.ensure_future(_awaited(call, request)) for name, call in calls.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=deadline_s)
        return {name: _said(name, task.result if task.done() else _late) for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            if not task.done():
                task.add_done_callback(lambda t: t.cancelled() or t.exception())  # else asyncio complains of it
                task.cancel()


async def _awaited(call: Call, request: Any) -> Any:
    return await (call(request) if is_async(call) else asyncio.wrap_future(_started(call, request)))


def _started(call: Call, request: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call(request)
        except BaseException as error:  # whatever a stranger's function raises is its failure, and ends its thread
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, daemon=True, name="hardcase-gate").start()
    return future


def _late() -> Any:
    raise TimeoutError


def _said(name: str, result: Callable[[], Any]) -> Said | None:
    try:
        return _checked(result())
    except TimeoutError:
        log.warning("%s was late", name)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # asyncio's cancellation of a call is that call's failure, too
        log.warning("%s failed: %s: %s", name, type(error).__name__, str(error)[:200])
    return None


def _checked(said: Any) -> Said:
    """A label as text and a finite confidence.

    Raises
    ------
    ValueError
        It is something else.
    """
    if not isinstance(said, tuple | list) or len(said) != 2:
        raise ValueError(f"it gave {type(said).__name__}, a pair (label, confidence) is expected")
    label, confidence = said
    if not (label is None or isinstance(label, str | Integral)):
        raise ValueError(f"its label is {type(label).__name__}, text or a whole number is expected")
    if confidence is not None and not (isinstance(confidence, Real) and isfinite(confidence)):
        raise ValueError("its confidence is no finite number")
    return None if label is None else str(label), None if confidence is None else float(confidence)
