"""Start SeaweedFS with a key for each of its ports: `python store_server.py HOST FILE PROGRAM ARGUMENT…`.

Only its port of S3 asks for keys by itself. Its others, over which its servers talk with each other, would give all
objects, and the keys, to anybody who reaches them. With a certificate that is made at each start, and whose private key
only this user can read, these servers take requests of each other and of nobody else.

The image of docker-compose.yaml has this file alone, without the rest of the package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

_SERVERS = ("MASTER", "VOLUME", "FILER", "ADMIN")
_GRPC = (*_SERVERS, "S3", "WORKER", "CLIENT")
_HTTPS = (*_SERVERS, "CLIENT")
_LIFETIME = timedelta(days=3650)


def certificate(host: str) -> bytes:
    """Return a new certificate that is its own authority, and its private key, as PEM.

    Args:
        host: The name or IP address under which SeaweedFS' servers find each other.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SeaweedFS")])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that is set back does not stop the server.
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + signed.public_bytes(Encoding.PEM)


def variables(path: str) -> Mapping[str, str]:
    """Return the variables with which SeaweedFS takes only requests with the certificate of a file, and sends it."""
    files = {"CERT": path, "KEY": path}
    return {
        "WEED_GRPC_CA": path,
        **{f"WEED_GRPC_{part}_{name}": file for part in _GRPC for name, file in files.items()},
        # Without the authority, a server would encrypt, and answer anybody.
        **{f"WEED_HTTPS_{part}_{name}": file for part in _HTTPS for name, file in {**files, "CA": path}.items()},
        "WEED_HTTPS_CLIENT_ENABLED": "true",
    }


def main(host: str, path: str, *command: str) -> None:
    """Write the certificate to a file that only this user can read, and become SeaweedFS."""
    Path(path).unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(certificate(host))
    os.execvpe(command[0], command, {**os.environ, **variables(path)})


if __name__ == "__main__":
    main(*sys.argv[1:])
