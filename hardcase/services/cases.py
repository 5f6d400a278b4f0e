# SPDX-License-Identifier: Apache-2.0
"""What ``--cases`` and ``--cases-share`` of a worker ask for: a store that keeps the requests that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardcase_cloud.keep.records.cases import Cases

__all__ = ["open_cases"]


def open_cases(url: str | None, share: str, hpc: str) -> Cases | None:
    """Begin to keep cases in this store; None if there is no ``--cases``.

    Raises
    ------
    InputError
        The store cannot be used now, or the share is not a percentage above 0.
    """
    if url is None:
        return None
    from hardcase_cloud.keep.records.cases import Cases
    from hardcase_cloud.keep.records.database import Database
    from hardcase_edge.settings.values import parse_share

    part = parse_share(share, "--cases-share")
    Database(url).close()  # a store that cannot be used at the start is a mistake of the user's
    cases = Cases(lambda: Database(url), hpc, part)
    cases.start()
    return cases
