"""Addresses that front doors listen on, and their certificates."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from catalog.doors.serving.access import Access
from catalog.doors.serving.keys import KEYS
from catalog.errors import InvalidConfigurationError

LOCAL_HOST = "127.0.0.1"

_BACKLOG = 1024
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[\w.-]+):)?(?P<port>\d{1,5})", re.ASCII)
_UNACKNOWLEDGED_MS = 120_000
"""How long sent data may wait for a client that has vanished, or does not read, before its connection is closed."""


@dataclass(frozen=True)
class Address:
    """A host and a port to listen on; port 0 for any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `port` or `host:port`, with IPv6 addresses in brackets.

        Raises:
            InvalidConfigurationError: It is neither.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65_535:
            raise InvalidConfigurationError(f"{text!r} is no address to listen on; use PORT, HOST:PORT or [IPv6]:PORT")
        return cls((match["host"] or LOCAL_HOST).strip("[]"), int(match["port"]))

    def __str__(self) -> str:
        """Return the address as users write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def listen(self) -> socket.socket:
        """Return a listening socket.

        Raises:
            InvalidConfigurationError: The host is unknown, or the port is in use or not allowed.
        """
        family, place = self._resolved()[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _close_vanished(listener)
            listener.bind(place)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise InvalidConfigurationError(f"cannot listen on {self}: {error.strerror}; choose another port") from None
        return listener

    def is_local(self) -> bool:
        """Return whether only this machine reaches the address.

        Raises:
            InvalidConfigurationError: The host is unknown.
        """
        return all(ip_address(str(place[0]).partition("%")[0]).is_loopback for _, place in self._resolved())

    def _resolved(self) -> list[tuple[socket.AddressFamily, Any]]:
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise InvalidConfigurationError(f"cannot listen on {self}: {error.strerror}; correct the host") from None
        return [(family, place) for family, _, _, _, place in found]


def _close_vanished(listener: socket.socket) -> None:
    """Have the system close connections whose client is gone; accepted sockets inherit the options."""
    options = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MS}
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in options.items():
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, option, value)


@dataclass(frozen=True)
class Certificate:
    """The files of a server's certificate.

    Attributes:
        chain: PEM file of the certificate, and those between it and the authority's.
        key: PEM file of its key, without a password.
        client_authority: PEM file of the authorities that sign the certificates of clients; None if these show none.
    """

    chain: Path
    key: Path
    client_authority: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the settings of encrypted connections: TLS 1.2 or later.

        Raises:
            InvalidConfigurationError: A file cannot be read, or does not fit.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
            context.load_cert_chain(self.chain, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfigurationError(
                f"--tls-cert {self.chain} and --tls-key {self.key} cannot be used: {_reason(error)}; use PEM files of "
                "a certificate and of its key without a password"
            ) from None
        if self.client_authority is not None:
            try:
                context.load_verify_locations(self.client_authority)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfigurationError(
                    f"--tls-client-ca {self.client_authority} cannot be used: {_reason(error)}; use a PEM file of "
                    "certificates"
                ) from None
            # Clients may show keys instead.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror)


def require_credentials(address: Address, access: Access, certificate: Certificate | None, *, is_plain: bool) -> None:
    """Refuse to listen where other machines could use the catalog without credentials, or could read them on the way.

    Args:
        is_plain: Whether the administrator allows plain connections, for instance behind a proxy with TLS.

    Raises:
        InvalidConfigurationError: They could.
    """
    if address.is_local():
        return
    if access.anonymous is not None:
        raise InvalidConfigurationError(
            f"{address} can be reached from other machines, and no credentials are set; set {KEYS}, or listen on "
            f"{LOCAL_HOST}"
        )
    if certificate is None and not is_plain:
        raise InvalidConfigurationError(
            f"{address} can be reached from other machines, and its connections would not be encrypted; set --tls-cert "
            "and --tls-key, or --plain if something before it encrypts them"
        )
