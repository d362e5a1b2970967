"""Connections to a Hive Metastore: with or without TLS and Kerberos.

The address tells what the server requires: `hms://host:9083?tls=true`, `…?kerberos=hive`, or both. Files come from the
environment: `CALVE_HMS_CA` (PEM; trusted authorities instead of the system's), `CALVE_HMS_CERTIFICATE` and
`CALVE_HMS_KEY` (PEM; the client's own, if the server requires one), and Kerberos tickets as for other clients
(`KRB5CCNAME`, `KRB5_CLIENT_KTNAME`, `KRB5_CONFIG`).
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

from thrift.transport import TSocket, TSSLSocket, TTransport

from catalog.errors import InvalidConfigurationError, SourceClientMissingError, SourceUnavailableError
from catalog.metastores.address import SourceAddress

CA, CERTIFICATE, KEY = "CALVE_HMS_CA", "CALVE_HMS_CERTIFICATE", "CALVE_HMS_KEY"

TIMEOUT_SECONDS = 600
"""Timeout of one response; the names of millions of partitions come in one."""

OPENING_SECONDS = 20
"""Timeout of connecting: a server that expects another protocol waits for more bytes and never responds."""

# The errors contain everything that these would log.
for _name in ("TSocket", "TSSLSocket", "sslcompat"):
    logging.getLogger(f"thrift.transport.{_name}").setLevel(logging.CRITICAL)


def connect(address: SourceAddress) -> Any:
    """Open a Thrift transport to a metastore.

    Raises:
        InvalidConfigurationError: A file that a variable names cannot be used.
        SourceClientMissingError: Kerberos is requested, and its packages are not installed.
        SourceUnavailableError: Kerberos has no ticket, or the server rejects it.
        OSError, TTransportException: The server does not respond, or uses another protocol.
    """
    timeout = int(address.options.get("timeout_seconds", TIMEOUT_SECONDS))
    socket = _socket(address)
    socket.setTimeout(1_000 * min(timeout, OPENING_SECONDS))
    try:
        if service := address.options.get("kerberos"):
            transport = _authenticated(address, socket, service)
        else:
            transport = TTransport.TBufferedTransport(socket)
            transport.open()
    except BaseException:
        # A TLS socket cannot be closed before it is connected.
        if socket.handle is not None:
            socket.close()
        raise
    socket.setTimeout(1_000 * timeout)
    return transport


def reason_of(error: BaseException) -> str:
    """Return the reason of a failed connection; Thrift keeps the cause as an attribute of its own error."""
    cause = getattr(error, "inner", None) or error
    return getattr(cause, "verify_message", None) or str(cause)


def advice_of(address: SourceAddress) -> str:
    """Return advice for a server that does not respond as expected."""
    kerberos = "with Kerberos" if "kerberos" in address.options else "without Kerberos"
    if is_tls(address):
        return f"check that a metastore with TLS and {kerberos} is running there, and that {CA} names its authority"
    return (
        f"check that a metastore {kerberos} and without TLS is running there, or change ?kerberos=hive or ?tls=true "
        "in the address"
    )


def is_tls(address: SourceAddress) -> bool:
    """Return whether an address requests TLS."""
    return address.options.get("tls") == "true"


def _socket(address: SourceAddress) -> Any:
    if not is_tls(address):
        return TSocket.TSocket(address.host, address.port)
    return TSSLSocket.TSSLSocket(address.host, address.port, ssl_context=_tls_context())


def _tls_context() -> ssl.SSLContext:
    """Return a context that verifies the server's certificate and host name, and presents the client's certificate."""
    used, ca = CA, os.environ.get(CA)
    certificate, key = os.environ.get(CERTIFICATE), os.environ.get(KEY)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            used = CERTIFICATE
            # An empty password, because an encrypted key would prompt for one at the terminal.
            context.load_cert_chain(certificate, key or None, password="")
    except (OSError, ValueError) as error:
        raise InvalidConfigurationError(
            f"{used} is {os.environ.get(used)!r}, which cannot be used: {error}; use a readable PEM file, and a key "
            "without a password"
        ) from error
    return context


def _authenticated(address: SourceAddress, socket: Any, service: str) -> Any:
    try:
        import kerberos
        from puresasl import SASLError
    except ImportError as error:
        raise SourceClientMissingError(
            f"{address} cannot be used: {error}; install the packages pure-sasl and kerberos"
        ) from error
    name, _, host = service.partition("/")
    try:
        transport = TTransport.TSaslClientTransport(socket, host or address.host, name)
        transport.open()
    except (kerberos.KrbError, SASLError) as error:
        raise SourceUnavailableError(
            f"{address} cannot be accessed with Kerberos: {_last_text(error)}; get a ticket with kinit, or correct the "
            "service in ?kerberos="
        ) from error
    return transport


def _last_text(error: BaseException) -> str:
    """Return the most specific message of a GSSAPI error: pairs of text and code, general ones first."""
    part: Any = error.args
    while isinstance(part, tuple) and part:
        texts = [inner for inner in part if isinstance(inner, str | tuple)]
        if not texts:
            break
        part = texts[-1]
    return str(part)
