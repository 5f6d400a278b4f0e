"""Every error hardcase raises on purpose, named for what the caller must do next.

A message is one line: what was found, what was expected, what to do. Foreign exceptions (struct, OSError, paho)
are translated where they enter, with ``raise ... from``.
"""

from __future__ import annotations

__all__ = [
    "BundleError",
    "BundleVersionError",
    "HardcaseError",
    "ImageError",
    "InputError",
    "LinkError",
    "ProgramError",
    "SensorError",
    "SessionError",
    "SignatureError",
    "WireError",
    "one_line",
]


class HardcaseError(Exception):
    """Base of all errors below; the command line prints it as one line and exits with status 2."""


class InputError(HardcaseError):
    """The caller gave something that cannot be used: correct the file, the flag or the argument."""


class BundleError(HardcaseError):
    """This bundle must not be used: keep running the previous one."""


class BundleVersionError(BundleError):
    """The bundle's format version is outside what this runtime reads: update the runtime or re-export."""

    def __init__(self, found: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"bundle format {found} cannot be read here: this runtime reads {oldest} to {newest}; "
            "update hardcase-edge or export the bundle again"
        )
        self.found = found
        self.oldest = oldest
        self.newest = newest


class SignatureError(BundleError):
    """The signature is missing, wrong or cannot be checked: do not parse the bundle."""


class ProgramError(BundleError):
    """The verifier could not prove the program safe: do not run it."""


class ImageError(HardcaseError):
    """The kernel in C cannot run this program: run it in Python."""


class SessionError(HardcaseError):
    """The driver broke the session's protocol: a bug in the caller."""


class SensorError(HardcaseError):
    """A sensor did not give a usable reading: it counts as failed."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason  # the counter's name: sensors.FAILURES


class WireError(HardcaseError):
    """A message from outside is not one of ours: count it and drop it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason  # the counter's name: malformed, oversized, late, unknown, other_hpc


class LinkError(HardcaseError):
    """The broker cannot be used as named: correct its URL, certificates or credentials, or start it."""


def one_line(error: BaseException) -> str:
    """A foreign error's message, short and on one line."""
    return " ".join(str(error).split())[:200]
