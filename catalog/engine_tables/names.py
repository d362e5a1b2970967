"""Names of Iceberg's namespaces, tables and views, and how the rows of its SQL catalog store them.

They are compared as all names of the catalog are: in lower case. A namespace of one level whose name a database can
have is the database of that name; only there, names are narrower than Iceberg's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from catalog.errors import InvalidIdentifierError
from catalog.model.identifiers import TableName, normalise_identifier, require_text

_SEPARATOR = "."
"""Between the levels of a stored namespace, as in the SQL catalogs of Iceberg and PyIceberg."""

_DOT = "\x1f"
"""Stored for a dot inside a level. The protocol separates levels by this character, so that no level contains it."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 255


@dataclass(frozen=True)
class Namespace:
    """A namespace.

    Attributes:
        levels: Normalised names, the outermost first.
        shown: As the client wrote it, for messages.
    """

    levels: tuple[str, ...]
    shown: str = field(default="", compare=False)

    @classmethod
    def of(cls, levels: Sequence[str]) -> Namespace:
        """Return the namespace of names.

        Raises:
            InvalidIdentifierError: There is no name, or one is empty, too long or has control characters.
        """
        if not levels:
            raise InvalidIdentifierError("the namespace is empty; name at least one level")
        namespace = cls(tuple(_normal(level, "namespace") for level in levels), _SEPARATOR.join(map(str, levels)))
        if len(namespace.stored) > _LONGEST:
            raise InvalidIdentifierError(
                f"namespace {namespace.shown[:100]!r} has {len(namespace.stored)} characters; at most {_LONGEST} are "
                "allowed"
            )
        return namespace

    @classmethod
    def from_stored(cls, text: str) -> Namespace:
        """Return the namespace of a row."""
        levels = tuple(level.replace(_DOT, ".") for level in text.split(_SEPARATOR))
        return cls(levels, _SEPARATOR.join(levels))

    @cached_property
    def stored(self) -> str:
        """The namespace as rows have it."""
        return _SEPARATOR.join(level.replace(".", _DOT) for level in self.levels)

    @cached_property
    def is_database(self) -> bool:
        """Whether it is a database of the catalog."""
        return len(self.levels) == 1 and _is_identifier(self.levels[0], "database")

    @property
    def parents(self) -> list[Namespace]:
        """The namespaces around it, the outermost first."""
        return [Namespace(self.levels[:count], _SEPARATOR.join(self.levels[:count])) for count in range(1, self.depth)]

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.levels)

    def __str__(self) -> str:
        """Return the namespace as the client wrote it."""
        return self.shown


@dataclass(frozen=True)
class Identifier:
    """The name of a table or view.

    Attributes:
        name: Normalised.
        shown: As the client wrote it, for messages.
    """

    namespace: Namespace
    name: str
    shown: str = field(default="", compare=False)

    @classmethod
    def of(cls, namespace: Namespace, name: str) -> Identifier:
        """Return the identifier of a name.

        Raises:
            InvalidIdentifierError: The name is empty, too long or has control characters.
        """
        return cls(namespace, _normal(name, "table"), name)

    @property
    def table(self) -> TableName | None:
        """The name by which statements find the table; None if only Iceberg has such names."""
        if self.namespace.is_database and _is_identifier(self.name, "table"):
            return TableName(self.namespace.stored, self.name)
        return None

    def __str__(self) -> str:
        """Return namespace and name as the client wrote them."""
        return f"{self.namespace}.{self.shown}"


def _normal(name: str, what: str) -> str:
    normal = unicodedata.normalize("NFC", require_text(name, f"{what} name").lower())
    if not normal.strip():
        raise InvalidIdentifierError(f"{what} name {name!r} is empty; give it at least one character")
    if match := _FORBIDDEN.search(normal):
        raise InvalidIdentifierError(f"{what} name {name!r} contains {match.group()!r}; remove it")
    if len(normal) > _LONGEST:
        raise InvalidIdentifierError(
            f"{what} name {normal[:40]!r}… has {len(normal)} characters; at most {_LONGEST} are allowed"
        )
    return normal


def _is_identifier(name: str, what: str) -> bool:
    try:
        return normalise_identifier(name, what) == name
    except InvalidIdentifierError:
        return False
