# SPDX-License-Identifier: Apache-2.0
"""Every error that hardcase raises on purpose, named for what the caller must do next.

A message is one line: what is wrong, where, and what to do. A module that calls foreign code (struct, the operating
system, paho) translates its exceptions into these with ``raise ... from``.
"""

from __future__ import annotations


class HardcaseError(Exception):
    """Base of all errors below; the command line prints the message on one line and exits with status 2."""


class InputError(HardcaseError):
    """The caller passed something unusable: correct the file, the flag or the argument."""


class UnfitError(InputError):
    """The bundle is not for this device's sensors or settings: keep running the previous one."""


class HpcTimeoutError(InputError):
    """The HPC did not answer these rows in time: ask the rows singly, and never again the one that hangs."""


class HpcStuckError(HardcaseError):
    """So many calls of the HPC hang that no more can be made: end this process and start another."""


class BundleError(HardcaseError):
    """The bundle must not be used: keep running the previous one."""


class BundleVersionError(BundleError):
    """This runtime does not read the bundle's format version: update hardcase-edge or export the bundle again."""

    def __init__(self, found: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"bundle format {found} cannot be read here: this runtime reads {oldest} to {newest}; "
            "update hardcase-edge or export the bundle again"
        )
        self.found = found
        self.oldest = oldest
        self.newest = newest


class OtherProgramError(BundleError):
    """The bundle is another program than the one that runs here: offer the right one, or say that it replaces it."""


class SignatureError(BundleError):
    """The signature is missing, wrong, or cannot be checked on this machine: do not parse the bundle."""


class TrustError(SignatureError):
    """The signed metadata do not allow this: the trust file stays as it was, and the bundle is not received."""


class StoreError(HardcaseError):
    """The store cannot be used: put a bundle into it, or mend it as the message says."""


class NoBundleError(StoreError):
    """The store has nothing to run: put a bundle into it, or offer it one."""


class ProgramError(BundleError):
    """The verifier could not prove the program safe: do not run it."""


class ImageError(HardcaseError):
    """The C kernel cannot run this program: run it in Python."""


class SessionError(HardcaseError):
    """The driver broke the session's protocol: a bug in the caller."""


class SensorError(HardcaseError):
    """A sensor gave no usable reading: the session treats it as failed."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason  # name of the counter: a key of sensors.bank.FAILURES


class WireError(HardcaseError):
    """A received message does not follow the wire format: count it and drop it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason  # name of the counter: malformed, oversized, late, unknown or other_hpc


class LinkError(HardcaseError):
    """The broker cannot be reached or refuses us: start it, or correct its URL, certificates or credentials."""


# What a stranger's code may raise: Ctrl-C and SIGTERM are the process's own.
FOREIGN = (Exception, SystemExit, GeneratorExit)


def one_line(error: BaseException) -> str:
    """The message of a foreign error on one line, cut at 200 characters.

    >>> one_line(ValueError("bad\\n  value"))
    'bad value'
    """
    try:
        text = str(error)
    except Exception:  # of a user's class
        text = "it cannot say why"
    return " ".join(text.split())[:200]


def type_and_line(error: BaseException) -> str:
    """The class of a foreign error, and its message if it has one, on one line.

    >>> type_and_line(ValueError("bad")), type_and_line(OSError())
    ('ValueError: bad', 'OSError')
    """
    text = one_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
