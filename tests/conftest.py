# SPDX-License-Identifier: Apache-2.0
"""What all tests share: one thread for arithmetic, examples that are the same each time, no waiting for a disk.

What a run leaves out for want of tools is said at its end. Where ``CI=true``, a test that is left out has failed.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a run has a process a core already: threads in each would wait for each other, which made fits of f0 far slower
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))


CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM)  # by commands that run

# a test that is right is right on a busy machine, too; and examples that are the same each time need not be many
settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("house")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests are no garbage until the end: nobody looks for it while they come, nor among them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # and seldom afterwards, as tests are short


class Examples:
    """A module without an example, as six of seven are, is neither imported nor searched for one."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Of a file of tests its tests remain."""
        found = yield
        return found if b">>>" in file_path.read_bytes() else [one for one in found if type(one) is pytest.Module]


def pytest_configure(config: pytest.Config) -> None:
    """As a plug-in, because modules of the packages are not below this file's folder."""
    config.pluginmanager.register(Examples())


def pytest_collection_finish() -> None:
    """Only if tests import them."""
    if "sklearn" in sys.modules:
        _look_once()
    if "numba" in sys.modules:
        _compile_once()


def _look_once() -> None:
    """scikit-learn reads signatures for each copy and call, asks of each array whether it is a DataFrame, and looks for
    classes in the same labels for each tree.
    """
    import numpy as np
    from sklearn.base import BaseEstimator
    from sklearn.tree import _classes
    from sklearn.utils import _param_validation, validation

    BaseEstimator._get_param_names = classmethod(cache(BaseEstimator._get_param_names.__func__))
    _param_validation.signature = cache(_param_validation.signature)
    frames = validation.nw.dependencies
    frames.is_into_dataframe, frames.is_into_series = (
        lambda x, ask=ask: type(x) is not np.ndarray and ask(x)
        for ask in (frames.is_into_dataframe, frames.is_into_series)
    )
    check, last = _classes.check_classification_targets, [None]

    def check_once(y: object) -> None:
        labels = None if y.dtype.hasobject else (y.dtype.str, y.shape, y.tobytes())
        if labels is None or labels != last[0]:
            check(y)
        last[0] = labels

    _classes.check_classification_targets = check_once


def _compile_once() -> None:
    """One worker compiles a function, and the others load it: all functions take a minute, in each of the workers."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    compile_here, held = Dispatcher.compile, set()

    def compile_once(self: Dispatcher, signature: object) -> object:
        folder, name = self._cache.cache_path, f"{self.py_func.__module__}.{self.py_func.__qualname__}.lock"
        if folder is None or name in held:  # a function that calls itself
            return compile_here(self, signature)
        os.makedirs(folder, exist_ok=True)
        with global_compiler_lock, open(os.path.join(folder, name), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held.add(name)
            try:
                return compile_here(self, signature)
            finally:
                held.remove(name)

    Dispatcher.compile = compile_once


@pytest.fixture(scope="session", autouse=True)
def _no_real_flush() -> Generator[None]:
    """A test's files need not outlive its machine; tests of crashes and of power cuts have processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses what is not open, too
        yield


@pytest.fixture(autouse=True)
def _own_signals() -> Generator[None]:
    """A command that ran in this process leaves its handlers to no other test."""
    before = {number: signal.getsignal(number) for number in CAUGHT}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[object]:
    """A mosquitto that the tests of a module share."""
    from tests.helpers.cloud.brokers import running_mosquitto  # here: few tests need a broker

    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


@pytest.fixture(scope="module")
def no_compiler() -> Generator[None]:
    """Sizes of C for boards are bounds, which take no time: six compilations for each export took three seconds."""
    from hardcase_export.to_c import folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "COMPILER", "no-such-compiler")
        yield


@pytest.fixture(scope="module")
def brief_effort() -> Generator[None]:
    """``--effort quick`` is briefer still, for tests of what stands around a search."""
    from hardcase_train.settings.effort import EFFORTS
    from tests.helpers.train.problems import BRIEF

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFORTS, "quick", BRIEF)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be left out, a test that is has failed: a gap is never taken for a pass."""
    report = yield
    is_left_out = report.skipped and not hasattr(report, "wasxfail")
    if is_left_out and os.environ.get("CI") == "true":
        report.longrepr = f"nothing may be left out here (CI=true): {reason_of(report)}"
        report.outcome = "failed"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(reason_of(report) for report in skipped)
    if reasons:
        terminalreporter.section("left out on this machine", yellow=True)
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} {'tests' if count > 1 else 'test'}: {reason}")


def reason_of(report: pytest.TestReport) -> str:
    """What a skipped test said."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
