# SPDX-License-Identifier: Apache-2.0
"""Back ends of f0: servers behind a protocol of their own, found by the hook ``hardcase.backends``.

``--hpc NAME+http://HOST/...`` asks the back end of that name. A file and a function of Python need none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.hooks import hooked, load_hook

if TYPE_CHECKING:
    from ..answer.asking import Answerer

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # and no path of Windows
_NAMED = re.compile(r"([a-z][a-z0-9-]{0,30})\+[a-z]{0,10}:?//")


@dataclass(frozen=True)
class Backend:
    """A protocol behind which an f0 answers.

    what : in messages, such as "a model behind KServe"
    open : from the URL, the path of a bundle that forwards to it, and the seconds that one call may take; it raises
        ``InputError`` with one line
    limit_s : seconds that one call may take unless ``--limit-ms`` says otherwise
    """

    what: str
    open: Callable[[str, str | Path, float], Answerer]
    limit_s: float = 0.7


def backend_of(hpc: str) -> Backend | None:
    """The back end that ``--hpc`` names; None if it names none, but a file or a function.

    Raises
    ------
    InputError
        It is another URL; or no back end of this name is installed, or it cannot be loaded.
    """
    named = _NAMED.match(hpc)
    if named is None and not _URL.match(hpc):
        return None
    known = hooked("backends")
    if named is None:
        raise InputError(f"--hpc is the URL of no back end; begin it with {' or '.join(f'{name}+' for name in known)}")
    if named[1] not in known:
        hint = did_you_mean(named[1], known, f"back ends are {', '.join(known)}")
        raise InputError(f"--hpc: there is no back end {named[1]!r}; {hint}")  # its URL may hold a password
    backend: Backend = load_hook(known[named[1]], Backend)
    return backend


def _kserve(url: str, bundle: str | Path, limit_s: float) -> Answerer:
    from ..answer.function import verified
    from .kserve import kserve_hpc

    return kserve_hpc(url, verified(bundle), limit_s)


KSERVE = Backend("a model behind KServe", _kserve)


def _openai(url: str, bundle: str | Path, limit_s: float) -> Answerer:
    from ..answer.function import verified
    from .chat import case_of
    from .large_model import LargeModel

    return LargeModel(url, case_of(verified(bundle)), limit_s=limit_s)


OPENAI = Backend("a large model", _openai, limit_s=10.0)
