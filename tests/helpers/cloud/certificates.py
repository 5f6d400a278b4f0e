# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for tests, and certificates of any time: for loopback, for a device, and long expired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]


class Authority:
    """An authority in a folder: ``ca.pem``, and a ``NAME.pem`` with a ``NAME.key`` for each ``issue``."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        now = datetime.now(UTC)
        builder = _builder(self._name, self._name, self._key.public_key(), now, 365).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, host: str = "127.0.0.1", *, begin_days: float = 0.0, days: float = 1.0) -> Path:
        """A certificate that is valid from so many days from now on for so many days; its path. Others may read it."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.now(UTC) + timedelta(days=begin_days)
        try:
            names: list[x509.GeneralName] = [x509.IPAddress(ip_address(host))]
        except ValueError:
            names = [x509.DNSName(host)]
        builder = _builder(_name(name), self._name, key.public_key(), begin, days).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.with_suffix(".key").write_bytes(key.private_bytes(*secret))
        for file in (path, path.with_suffix(".key")):
            file.chmod(0o644)  # a broker that runs as another user reads them
        return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, days: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin - timedelta(hours=1))
    return builder.not_valid_after(begin + timedelta(days=days))
