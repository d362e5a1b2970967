"""Who asks through a front door, and what they may do."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from catalog.errors.doors import AccessDeniedError, CredentialsError


class Role(IntEnum):
    """A level of permission; a role includes those below it."""

    READER = 1
    """Read definitions, partitions and statistics."""
    WRITER = 2
    """Also change partitions and statistics, and commit to tables."""
    OWNER = 3
    """Also create, change and drop databases, tables, views and indexes."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a front door.

    Attributes:
        name: The name of its key, or of the certificate's subject; `anonymous` where no credentials are set.
    """

    name: str
    role: Role

    def require(self, role: Role, action: str) -> None:
        """Refuse a client that may do less.

        Args:
            action: The action in the message, for instance `drop table shop.orders`.

        Raises:
            AccessDeniedError: The client's role does not include the other.
        """
        if self.role < role:
            raise AccessDeniedError(
                f"{self.name} has the role {self.role.name.lower()} and may not {action}; the role "
                f"{role.name.lower()} may"
            )


ANONYMOUS = Client("anonymous", Role.OWNER)
"""The client of a server without credentials, which listens on this machine only."""


@dataclass(frozen=True, slots=True)
class Key:
    """The credentials of a client: an access key and a secret key, as Glue's signatures and OAuth2 use them."""

    access_key: str
    secret_key: str = field(repr=False)
    client: Client


@dataclass(frozen=True)
class Access:
    """The clients of the front doors.

    Attributes:
        keys: The credentials, by access key.
        certificates: The clients that a certificate identifies, by the common name of its subject.
        anonymous: The client of requests without credentials; None where credentials are set.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    certificates: Mapping[str, Client] = field(default_factory=dict)
    anonymous: Client | None = None

    def client(self, access_key: str, secret_key: str) -> Client:
        """Return the client of a pair of keys, as passwords and OAuth2 send them.

        Raises:
            CredentialsError: No client has these keys.
        """
        key = self.keys.get(access_key)
        # Compared even if there is no such key, so that the time of the answer does not tell which keys exist.
        expected = "" if key is None else key.secret_key
        is_right = hmac.compare_digest(secret_key.encode(errors="replace"), expected.encode())
        if key is None or not is_right:
            raise CredentialsError("no client has this access key and this secret key; check both")
        return key.client

    def client_of_certificate(self, common_name: str) -> Client:
        """Return the client of a certificate that has been verified.

        Raises:
            CredentialsError: No client has this common name.
        """
        client = self.certificates.get(common_name)
        if client is None:
            raise CredentialsError(f"no client has a certificate of {common_name!r}; add it to the file of keys")
        return client


WITHOUT_CREDENTIALS = Access(anonymous=ANONYMOUS)
"""The access of a server that listens on this machine only."""
