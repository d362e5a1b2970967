"""Connections to a Hive Metastore: plain or by TLS, with or without Kerberos.

The address names what the server wants: `hms://host:9083?tls=true`, `…?kerberos=hive`, or both. Files come from the
environment: `CALVE_HMS_CA` (PEM; authorities to trust instead of the system's), `CALVE_HMS_CERTIFICATE` and
`CALVE_HMS_KEY` (PEM; the client's own, where the server wants one), and Kerberos tickets as its other clients find them
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
"""How long a metastore may take for one answer; names of millions of partitions come in one."""

OPENING_SECONDS = 20
"""How long connecting may take: a server that expects another protocol waits for more bytes and answers nothing."""

# Errors carry all that these would log.
for _name in ("TSocket", "TSSLSocket", "sslcompat"):
    logging.getLogger(f"thrift.transport.{_name}").setLevel(logging.CRITICAL)


def connect(address: SourceAddress) -> Any:
    """Open a transport of Thrift to a metastore.

    Raises:
        InvalidConfigurationError: A file that a variable names cannot be used.
        SourceClientMissingError: Kerberos is asked for, and its packages are not installed.
        SourceUnavailableError: Kerberos has no ticket, or the server refuses it.
        OSError, TTransportException: The server does not answer, or not as this side does.
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
        # Before it is connected, a socket of TLS cannot be closed.
        if socket.handle is not None:
            socket.close()
        raise
    socket.setTimeout(1_000 * timeout)
    return transport


def reason_of(error: BaseException) -> str:
    """Return why a connection failed; Thrift keeps the cause as an attribute of its own error."""
    cause = getattr(error, "inner", None) or error
    return getattr(cause, "verify_message", None) or str(cause)


def advice_of(address: SourceAddress) -> str:
    """Return what to look at when a server does not answer as expected."""
    kerberos = "with Kerberos" if "kerberos" in address.options else "without Kerberos"
    if is_tls(address):
        return f"make sure that a metastore with TLS and {kerberos} runs there, and that {CA} names its authority"
    return (
        f"make sure that a metastore {kerberos} and without TLS runs there, or change ?kerberos=hive or ?tls=true in "
        "the address"
    )


def is_tls(address: SourceAddress) -> bool:
    """Return whether an address asks for TLS."""
    return address.options.get("tls") == "true"


def _socket(address: SourceAddress) -> Any:
    if not is_tls(address):
        return TSocket.TSocket(address.host, address.port)
    return TSSLSocket.TSSLSocket(address.host, address.port, ssl_context=_tls_context())


def _tls_context() -> ssl.SSLContext:
    """Return what checks the server's certificate and its host name, and shows the client's certificate."""
    used, ca = CA, os.environ.get(CA)
    certificate, key = os.environ.get(CERTIFICATE), os.environ.get(KEY)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            used = CERTIFICATE
            # Without a password: an encrypted key would ask for one at the terminal.
            context.load_cert_chain(certificate, key or None, password="")
    except (OSError, ValueError) as error:
        raise InvalidConfigurationError(
            f"{used} is {os.environ.get(used)!r}, which cannot be used: {error}; name a readable PEM file, and keys "
            "without a password"
        ) from error
    return context


def _authenticated(address: SourceAddress, socket: Any, service: str) -> Any:
    try:
        import kerberos
        from puresasl import SASLError
    except ImportError as error:
        raise SourceClientMissingError(
            f"{address} cannot be asked: {error}; install the packages pure-sasl and kerberos"
        ) from error
    name, _, host = service.partition("/")
    try:
        transport = TTransport.TSaslClientTransport(socket, host or address.host, name)
        transport.open()
    except (kerberos.KrbError, SASLError) as error:
        raise SourceUnavailableError(
            f"{address} cannot be asked by Kerberos: {_last_text(error)}; get a ticket with kinit, or correct the "
            "service in ?kerberos="
        ) from error
    return transport


def _last_text(error: BaseException) -> str:
    """Return the most precise text of an error of GSSAPI: pairs of text and code, general ones first."""
    part: Any = error.args
    while isinstance(part, tuple) and part:
        texts = [inner for inner in part if isinstance(inner, str | tuple)]
        if not texts:
            break
        part = texts[-1]
    return str(part)
