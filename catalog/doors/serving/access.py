"""Who asks through a front door, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from catalog.errors.doors import AccessDeniedError


class Role(IntEnum):
    """What a client may do; a role includes those below it."""

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
