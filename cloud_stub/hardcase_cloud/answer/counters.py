# SPDX-License-Identifier: Apache-2.0
"""What has happened to the requests of a service since its start, as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """What has happened to requests since the start."""

    received: int = 0  # messages of any kind
    served: int = 0  # answered for the first time
    refused: int = 0  # answered with REFUSED: the HPC failed, or the device made it hang before
    hung: int = 0  # the HPC did not return in time; of these, refused or busy
    repeated: int = 0  # sent again: answered from memory, or still in the queue
    expired: int = 0  # dropped: the deadline passed in the queue
    busy: int = 0  # told to try later: they could not be answered in time, or the queue was full
    flooded: int = 0  # dropped: the device sends more than it may
    malformed: int = 0  # dropped: not a request, or the id of another one
    oversized: int = 0  # dropped: too long
    other_hpc: int = 0  # not answered: for another model, as the device is told now and then
    batches: int = 0  # runs of the model, without those that isolate a failing row

    def as_dict(self) -> dict[str, int]:
        """The counters as plain JSON values."""
        return asdict(self)
