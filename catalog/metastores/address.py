"""Addresses of import sources as one string: `hms://host:9083/sales.*`, `glue://eu-west-1/sales.orders`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from catalog.errors import InvalidSourceError
from catalog.files.credentials import decoded, has_credentials
from catalog.model.identifiers import TableName

HMS_PORT = 9083

_HOST = re.compile(r"(?=.{1,253}\Z)\w[\w-]{0,62}(\.\w[\w-]{0,62})*\.?", re.ASCII)
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
_AUTHORITY = re.compile(r"(?P<host>\[.*\]|[^:]*)(:(?P<port>.*))?", re.DOTALL)
_PORT = re.compile("[0-9]{1,5}")
_NAME = re.compile("[a-z_]{1,40}")
_REGION = re.compile(r"[a-z0-9-]{0,63}")

_FORMS = "hms://host:port[/database[.table]] or glue://region[/database[.table]]"


class SourceKind(StrEnum):
    """The protocol of a source."""

    HMS = "hms"
    """A Hive Metastore, over Thrift."""
    GLUE = "glue"
    """AWS Glue, or a service with its protocol."""


_OPTIONS: Mapping[SourceKind, frozenset[str]] = {
    SourceKind.HMS: frozenset({"timeout_seconds", "tls", "kerberos"}),
    SourceKind.GLUE: frozenset({"endpoint_url", "catalog_id", "profile"}),
}

_MAX_SECONDS = 86_400
_VALUES = {
    "timeout_seconds": re.compile("[0-9]{1,5}"),
    "tls": re.compile("true|false"),
    "kerberos": re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?"),
    "endpoint_url": re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/[!-~]*)?"),
    "catalog_id": re.compile(r"[A-Za-z0-9._:/-]{1,255}"),
    "profile": re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}"),
}
_MEANINGS = {
    "timeout_seconds": f"a whole number from 1 to {_MAX_SECONDS}",
    "tls": "true or false",
    "kerberos": "the metastore's service, such as hive or hive/host",
    "endpoint_url": "a URL such as http://host:port",
    "catalog_id": "the number of an account",
    "profile": "the name of a profile",
}


@dataclass(frozen=True)
class SourceAddress:
    """The address of a source, without credentials, which come from the environment.

    Attributes:
        host: Of a Hive Metastore.
        region: Of Glue; None for the one of the environment.
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
        """Parse an address, and the patterns of databases and tables after it, if any.

        Raises:
            InvalidSourceError: It has neither of the two forms, an unknown option or a password. The message shows a
                part of the address only if that cannot be a password.
        """
        scheme, _, rest = text.strip().partition("://")
        try:
            kind = SourceKind(scheme.lower())
        except ValueError:
            raise InvalidSourceError(f"source is neither hms:// nor glue://; use {_FORMS}") from None
        place, options = _read_options(kind, rest)
        authority, _, path = place.partition("/")
        # A password may contain slashes, after which its rest looks like patterns.
        if "@" in decoded(place):
            raise InvalidSourceError(f"source {kind}://*** has a password in it; set credentials in the environment")
        selected = tuple(pattern.strip() for pattern in unquote(path).strip("/").split(",") if pattern.strip())
        if kind is SourceKind.GLUE:
            return cls(kind, region=_region(authority), options=options), selected
        host, port = _host_and_port(authority)
        return cls(kind, host=host, port=port, options=options), selected

    def __str__(self) -> str:
        """Return the address without patterns."""
        return self._text("")

    def of_table(self, table: TableName) -> str:
        """Return the address of one table, which `parse` accepts."""
        return self._text(f"/{table}")

    def _text(self, path: str) -> str:
        where = self.region or ""
        if self.kind is SourceKind.HMS:
            where = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        query = urlencode(sorted(self.options.items()), safe=":/")
        return f"{self.kind}://{where}{path}{'?' if query else ''}{query}"


def _host_and_port(authority: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(authority)
    host, port = (authority, None) if match is None else (match["host"], match["port"])
    if not host:
        raise InvalidSourceError(f"source hms:// has no host; use {_FORMS}")
    if port and not (_PORT.fullmatch(port) and 0 < int(port) < 65_536):
        raise InvalidSourceError(
            f"source hms://*** cannot be parsed: its port is not a number from 1 to 65535; use {_FORMS}"
        )
    name = host[1:-1] if host.startswith("[") and _is_ipv6(host[1:-1]) else host
    if name == host and not _HOST.fullmatch(host):
        shown = f" {host[:80]!r}" if _PLAIN.fullmatch(host) else ""
        raise InvalidSourceError(
            f"source hms://*** cannot be parsed: its host{shown} is not a valid host name; use {_FORMS}"
        )
    return name.lower(), int(port or HMS_PORT)


def _is_ipv6(text: str) -> bool:
    try:
        return ip_address(text).version == 6
    except ValueError:
        return False


def _region(authority: str) -> str | None:
    region, colon, _ = authority.partition(":")
    if colon:
        raise InvalidSourceError(
            "source glue://*** has a port instead of a region; use glue://region?endpoint_url=http://host:port"
        )
    if not _REGION.fullmatch(region.lower()):
        raise InvalidSourceError(
            f"source glue://*** cannot be parsed: its region is not a valid region name; use {_FORMS}"
        )
    return region.lower() or None


def _read_options(kind: SourceKind, rest: str) -> tuple[str, dict[str, str]]:
    """Return the part of an address before its options, and the options."""
    if "#" in rest:
        raise InvalidSourceError(f"source {kind}://*** has a # in it; write it as %23, or use {_FORMS}")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _OPTIONS[kind]):
        # Anything but a name may be the end of a password that contains a question mark.
        shown = f"the option {unknown[0]!r}" if _NAME.fullmatch(unknown[0]) else "an unknown option"
        raise InvalidSourceError(
            f"source {kind}://*** has {shown}; the options of {kind}:// are {', '.join(sorted(_OPTIONS[kind]))}"
        )
    for name, value in options.items():
        if has_credentials(value):
            raise InvalidSourceError(
                f"source {kind}://*** has a password in its option {name}; set credentials in the environment"
            )
        if not _is_right(name, value):
            # The message omits the value, which may be a secret under a wrong name.
            raise InvalidSourceError(f"source {kind}://***: {name} has an invalid value; use {_MEANINGS[name]}")
    return place, options


def _is_right(name: str, value: str) -> bool:
    if not _VALUES[name].fullmatch(value):
        return False
    if name == "timeout_seconds":
        return 0 < int(value) <= _MAX_SECONDS
    try:
        return name != "endpoint_url" or urlsplit(value).port != 0
    except ValueError:
        return False


@dataclass(frozen=True)
class Selection:
    """A selection of databases and tables by patterns such as `sales`, `sales.*`, `sales.order_*`, `*.orders`.

    `*` matches any string, `?` one character; matching ignores case. A database alone selects all of its tables.

    Attributes:
        patterns: (database, table) pairs, in lower case.
    """

    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Selection:
        """Parse patterns; none selects everything.

        Raises:
            InvalidSourceError: A pattern has more than two parts, or an empty part.
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
        """The tables that are selected by name."""
        return frozenset(TableName(*pair) for pair in self.patterns if not _is_pattern("".join(pair)))

    @property
    def named_databases(self) -> frozenset[str]:
        """The databases that are selected by name, perhaps with table patterns."""
        return frozenset(database for database, _ in self.patterns if not _is_pattern(database))

    def has_database(self, database: str) -> bool:
        """Return whether any table of a database may be selected."""
        return any(_matches(database.lower(), databases) for databases, _ in self.patterns)

    def has_whole_database(self, database: str) -> bool:
        """Return whether a database itself is selected, even if it has no tables."""
        return any(_matches(database.lower(), databases) and table == "*" for databases, table in self.patterns)

    def has_table(self, table: TableName) -> bool:
        """Return whether a table is selected."""
        database, name = table.database.lower(), table.name.lower()
        return any(_matches(database, databases) and _matches(name, tables) for databases, tables in self.patterns)


def _is_pattern(text: str) -> bool:
    return any(character in text for character in "*?")


def _matches(name: str, pattern: str) -> bool:
    return _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    known = {"*": ".*", "?": "."}
    return re.compile("".join(known.get(character) or re.escape(character) for character in pattern), re.DOTALL)
