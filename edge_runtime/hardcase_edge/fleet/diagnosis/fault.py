# SPDX-License-Identifier: Apache-2.0
"""One thing that is wrong: what, where, and what to do about it."""

from __future__ import annotations

from ...base.record import record


@record(frozen=True, slots=True)
class Fault:
    """A line of ``doctor``."""

    what: str
    where: str
    todo: str

    @classmethod
    def of(cls, error: Exception, where: object) -> Fault:
        """The fault that an error of hardcase names: its line ends with what to do.

        >>> Fault.of(ValueError("the state is damaged; put a bundle into it"), "/store")
        Fault(what='the state is damaged', where='/store', todo='put a bundle into it')
        """
        what, _, todo = " ".join(str(error).split()).rpartition("; ")
        return cls(what or todo, str(where), todo if what else "see the page of devices")

    def __str__(self) -> str:
        """One line."""
        where = f" ({self.where})" if self.where not in self.what else ""
        return f"{self.what}{where}; {self.todo}"

    def to_json(self) -> dict[str, str]:
        """As ``doctor --json`` has it."""
        return {"what": self.what, "where": self.where, "todo": self.todo}
