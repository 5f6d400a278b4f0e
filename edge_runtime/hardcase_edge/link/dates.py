# SPDX-License-Identifier: Apache-2.0
"""Dates of certificates on a device whose clock may be wrong: OpenSSL checks chain and name, and this the dates.

A certificate is refused from its ``notAfter`` on, by the device's clock or its floor (``base/clock.py``), whichever is
later, as is each certificate of the chain. ``notBefore`` is not looked at: by a clock that is behind, a certificate
that was renewed while the device was switched off is not valid yet, and the device would never be connected again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    from ..base.clock import Clock

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python's ssl does not name


def check_dates_by(context: ssl.SSLContext, clock: Clock) -> None:
    """Have sockets of this context check the dates of the other side's certificates by this clock.

    A socket whose handshake ends with a certificate that has expired raises ``ssl.SSLCertVerificationError``.
    """
    import ssl

    class Dated(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            now = clock.now()
            for certificate in _chain(self):
                if ssl.cert_time_to_seconds(certificate["notAfter"]) <= now:
                    subject = " ".join(str(value) for part in certificate["subject"] for _, value in part)
                    raise ssl.SSLCertVerificationError(
                        f"the certificate of {subject[:100]} expired at {certificate['notAfter']}; renew it, or set "
                        "the device's clock if it is ahead"
                    )

    context.sslsocket_class = Dated
    context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)


def _chain(socket: ssl.SSLSocket) -> list[dict[str, Any]]:
    """The certificates that OpenSSL has used, from the other side's own to the authority's, as ``getpeercert`` has it.

    The chain is in ``SSLSocket`` itself from Python 3.13 on, as undecoded bytes; the object below has it decoded.
    """
    below: Any = getattr(socket, "_sslobj", None)
    chain = getattr(below, "get_verified_chain", None)
    if chain is None:
        return [dict(socket.getpeercert() or {})]
    return [certificate.get_info() for certificate in chain()]
