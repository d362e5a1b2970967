"""Where tables are brought in from, in one text: `hms://host:9083/sales.*`, `glue://eu-west-1/sales.orders`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from catalog.errors import InvalidSourceError
from catalog.identifiers import TableName
from catalog.locations import without_passwords

HMS_PORT = 9083

_SERVICE = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?")
"""The service of a Kerberos principal, and its host where that is another than the address's."""

_FORMS = "hms://host:port[/database[.table]] or glue://region[/database[.table]]"


class SourceKind(StrEnum):
    """The protocol that a source speaks."""

    HMS = "hms"
    """A Hive Metastore, over Thrift."""
    GLUE = "glue"
    """AWS Glue, or what speaks its protocol."""


_OPTIONS: Mapping[SourceKind, frozenset[str]] = {
    SourceKind.HMS: frozenset({"timeout_seconds", "tls", "kerberos"}),
    SourceKind.GLUE: frozenset({"endpoint_url", "catalog_id", "profile"}),
}


@dataclass(frozen=True)
class SourceAddress:
    """A source, without credentials, which come from the environment.

    Attributes:
        host: Of a Hive Metastore.
        region: Of Glue; None for the one that the environment names.
        options: `timeout_seconds`, `tls` (true or false) and `kerberos` (its service) of a Hive Metastore;
            `endpoint_url`, `catalog_id` and `profile` of Glue.
    """

    kind: SourceKind
    host: str = ""
    port: int = HMS_PORT
    region: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> tuple[SourceAddress, tuple[str, ...]]:
        """Read an address, and the patterns of databases and tables behind it, of which there may be none.

        Raises:
            InvalidSourceError: It has not one of the two forms, an option that there is not, or a password.
        """
        if (shown := without_passwords(text)) != text:
            raise InvalidSourceError(f"source {shown!r} has a password in it; set credentials in the environment")
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError as error:
            raise InvalidSourceError(f"source {text!r} cannot be read: {error}; write {_FORMS}") from None
        try:
            kind = SourceKind(parts.scheme)
        except ValueError:
            raise InvalidSourceError(f"source {text!r} is neither hms:// nor glue://; write {_FORMS}") from None
        if parts.username is not None or parts.password is not None:
            raise InvalidSourceError("source: its address has credentials; set them in the environment")
        host = parts.hostname or ""
        if kind is SourceKind.HMS and not host:
            raise InvalidSourceError(f"source {text!r} names no host; write {_FORMS}")
        if kind is SourceKind.GLUE and port is not None:
            raise InvalidSourceError(
                f"source {text!r} has a port where a region is meant; write glue://region?endpoint_url=http://host:port"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        _check_options(text, kind, options)
        patterns = tuple(each.strip() for each in unquote(parts.path).strip("/").split(",") if each.strip())
        if kind is SourceKind.HMS:
            return cls(kind, host=host, port=port or HMS_PORT, options=options), patterns
        return cls(kind, region=host or None, options=options), patterns

    def __str__(self) -> str:
        """Return the address without patterns."""
        return self._text("")

    def of_table(self, table: TableName) -> str:
        """Return the address of one table, which `parse` reads."""
        return self._text(f"/{table}")

    def _text(self, path: str) -> str:
        where = self.region or ""
        if self.kind is SourceKind.HMS:
            where = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        query = urlencode(sorted(self.options.items()), safe=":/")
        return f"{self.kind}://{where}{path}{'?' if query else ''}{query}"


def _check_options(text: str, kind: SourceKind, options: Mapping[str, str]) -> None:
    known = _OPTIONS[kind]
    if unknown := sorted(options.keys() - known):
        raise InvalidSourceError(
            f"source {text!r} has the option {', '.join(unknown)}; the options of {kind}:// are "
            f"{', '.join(sorted(known))}"
        )
    timeout = options.get("timeout_seconds", "1")
    if not (timeout.isascii() and timeout.isdigit() and int(timeout) > 0):
        raise InvalidSourceError(f"source {text!r}: timeout_seconds is {timeout!r}; write a whole number above 0")
    if (tls := options.get("tls", "true")) not in {"true", "false"}:
        raise InvalidSourceError(f"source {text!r}: tls is {tls!r}; write true or false")
    if not _SERVICE.fullmatch(service := options.get("kerberos", "hive")):
        raise InvalidSourceError(
            f"source {text!r}: kerberos is {service!r}; write the metastore's service, such as hive or hive/host"
        )


@dataclass(frozen=True)
class Selection:
    """Which databases and tables are meant: patterns such as `sales`, `sales.*`, `sales.order_*`, `*.orders`.

    `*` stands for any text, `?` for one character; case does not count. A database alone means all of its tables.

    Attributes:
        patterns: (database, table) pairs, in lower case.
    """

    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Selection:
        """Read patterns; none means everything.

        Raises:
            InvalidSourceError: A pattern has more than two parts, or an empty one.
        """
        pairs = []
        for text in texts or ["*"]:
            database, dot, table = text.strip().lower().partition(".")
            if not database or "." in table or (dot and not table):
                raise InvalidSourceError(f"pattern {text!r} is neither database nor database.table, such as sales.*")
            pairs.append((database, table or "*"))
        return cls(tuple(pairs))

    @property
    def named(self) -> frozenset[TableName]:
        """The tables that are named one by one."""
        return frozenset(TableName(*pair) for pair in self.patterns if not _is_pattern("".join(pair)))

    @property
    def named_databases(self) -> frozenset[str]:
        """The databases that are named, perhaps with patterns of tables."""
        return frozenset(database for database, _ in self.patterns if not _is_pattern(database))

    def has_database(self, database: str) -> bool:
        """Say whether any table of a database may be meant."""
        return any(_matches(database.lower(), wanted) for wanted, _ in self.patterns)

    def has_whole_database(self, database: str) -> bool:
        """Say whether a database itself is meant, even if it has no tables."""
        return any(_matches(database.lower(), wanted) and table == "*" for wanted, table in self.patterns)

    def has_table(self, table: TableName) -> bool:
        """Say whether a table is meant."""
        database, name = table.database.lower(), table.name.lower()
        return any(_matches(database, wanted) and _matches(name, tables) for wanted, tables in self.patterns)


def _is_pattern(text: str) -> bool:
    return any(character in text for character in "*?")


def _matches(name: str, pattern: str) -> bool:
    return _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    known = {"*": ".*", "?": "."}
    return re.compile("".join(known.get(each) or re.escape(each) for each in pattern), re.DOTALL)
