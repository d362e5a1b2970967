"""Certificates of servers and clients, by an authority for tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

PASSWORD = "changeit"
"""The password of keystores."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority for tests, and its certificates."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def found(cls, folder: Path, name: str = "authority") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = cls(folder, key, signed(name, key, None, timedelta(days=1)))
        authority.pem.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        return authority

    @property
    def pem(self) -> Path:
        return self.folder / f"{self.certificate.subject.rfc4514_string()}.pem"

    def keystore(self, name: str, *, lifetime: timedelta = timedelta(days=1)) -> Path:
        """Return a keystore with a certificate for an address of this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = signed(name, key, self, lifetime)
        path = self.folder / f"{name}-{lifetime.days}.p12"
        protection = BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(serialize_key_and_certificates(b"server", key, certificate, [self.certificate], protection))
        return path

    def files(self, name: str) -> tuple[Path, Path]:
        """Return the PEM files of a certificate for an address, or for a client's name, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        chain, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        chain.write_bytes(signed(name, key, self, timedelta(days=1)).public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return chain, private


def signed(
    name: str, key: ec.EllipticCurvePrivateKey, authority: Authority | None, lifetime: timedelta
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if authority is not None and name[0].isdigit():
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
    return builder.sign(key if authority is None else authority.key, hashes.SHA256())
