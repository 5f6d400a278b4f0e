# SPDX-License-Identifier: Apache-2.0
"""Both evaluators for a module's tests: import ``evaluator`` there, and each runs once in Python and once in C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hardcase_edge.kernel.machine import EVALUATORS, KERNEL, VARIABLE, has_kernel

needs_kernel = pytest.mark.skipif(not has_kernel(), reason="the kernel was not built: it needs a C compiler")


@pytest.fixture(scope="module", params=EVALUATORS, autouse=True)
def evaluator(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which one ``open_machine`` opens meanwhile."""
    if request.param == KERNEL and not has_kernel():
        pytest.skip("the kernel was not built: it needs a C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param
