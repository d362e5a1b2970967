"""Requests as handlers get them, and answers as they give them."""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

from sqlalchemy import Connection

from catalog.catalog import Catalog
from catalog.doors.serving.access import Client
from catalog.engine_tables.model import Loaded
from catalog.engine_tables.names import Identifier, Namespace
from catalog.errors import InvalidRequestError
from catalog.iceberg.documents.shapes import Shape, require_fields

SEPARATOR = "\x1f"
"""Between the levels of a namespace, in paths and queries."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Answer:
    """An answer: HTTP's status, and the body as an object of JSON or None."""

    status: int = 200
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """The body as JSON."""
        return None if self.body is None else json.dumps(self.body, separators=(",", ":"), ensure_ascii=False)


DONE = Answer(204)

Finalise = Callable[[Connection, Answer], None]


@dataclass(frozen=True)
class Asking:
    """A request.

    Attributes:
        path: The variable parts of its path, as they were sent.
        query, headers: Names in lower case for headers.
        content: The body.
        finalise: Stores the answer in the transaction of a change, for a request with an idempotency key.
    """

    catalog: Catalog
    client: Client
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    finalise: Finalise | None = None

    @property
    def namespace(self) -> Namespace:
        """The namespace of the path.

        Raises:
            InvalidIdentifierError: It is not valid.
        """
        return Namespace.of(unquote_plus(self.path["namespace"]).split(SEPARATOR))

    @property
    def identifier(self) -> Identifier:
        """The table or view of the path.

        Raises:
            InvalidIdentifierError: It is not valid.
        """
        return Identifier.of(self.namespace, unquote_plus(self.path["name"]))

    def body(self, shape: Shape) -> dict[str, Any]:
        """Return the body, an object of JSON.

        Raises:
            InvalidRequestError: It is not JSON, or a field is missing or has another type.
        """
        return require_fields("the body of the request", parse(self.content), shape)

    def flag(self, name: str) -> bool:
        """Return an option of the query that is true or false; by default false.

        Raises:
            InvalidRequestError: It is neither.
        """
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false"):
            raise InvalidRequestError(f"{name} is {text[:100]!r}; write true or false")
        return text == "true"

    def also(self, answer: Callable[[Sequence[Loaded]], Answer]) -> Callable[[Connection, Sequence[Loaded]], None]:
        """Return what the transaction of a change does besides: store the answer, if the request has a key."""

        def store(connection: Connection, changed: Sequence[Loaded]) -> None:
            if self.finalise is not None:
                self.finalise(connection, answer(changed))

        return store


def parse(content: bytes) -> Any:
    """Return the value of JSON in UTF-8.

    Raises:
        InvalidRequestError: It is not JSON, or has a text that is not valid Unicode, which no file can store.
    """

    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        value = json.loads(content.decode("utf-8-sig"), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise InvalidRequestError("the body of the request is not JSON; send one object") from None
    if _SURROGATE.search(content):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(
                "the body of the request has half of a surrogate pair, which is not valid Unicode; correct its encoding"
            ) from None
    return value


def namespace_of(levels: object, what: str = "namespace") -> Namespace:
    """Return the namespace of a body.

    Raises:
        InvalidRequestError: It is not a list of strings, or not valid.
    """
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise InvalidRequestError(f"{what} is {levels!r}"[:200] + "; write a list of strings")
    return Namespace.of(levels)


def identifier_of(value: object, what: str) -> Identifier:
    """Return the table or view of a body: an object with namespace and name.

    Raises:
        InvalidRequestError: It has another form, or is not valid.
    """
    fields = require_fields(what, value, {"namespace": list, "name": str})
    return Identifier.of(namespace_of(fields["namespace"], f"the namespace of {what}"), fields["name"])


def texts(value: object, what: str) -> dict[str, str]:
    """Return properties of a body.

    Raises:
        InvalidRequestError: A value is not a string.
    """
    if value is None:
        return {}
    fields = require_fields(what, value, {})
    for name, text in fields.items():
        if not isinstance(text, str):
            raise InvalidRequestError(f"{name} of {what} is {text!r}"[:200] + "; write a string")
    return fields


@dataclass(frozen=True)
class Page:
    """A page of a list: the name after which it begins, and its length; None for the whole list."""

    after: str | None
    size: int | None

    @classmethod
    def of(cls, asking: Asking) -> Page:
        """Return the page that a request asks for.

        Raises:
            InvalidRequestError: Its token or its size is not valid.
        """
        token, size = asking.query.get("pageToken"), asking.query.get("pageSize")
        if size is not None and (not size.isascii() or not size.isdecimal() or not 0 < int(size) < _LARGEST):
            raise InvalidRequestError(f"pageSize is {size[:100]!r}; write a whole number from 1")
        try:
            after = b64decode(token, b"-_", validate=True).decode() if token else None
        except (Base64Error, ValueError):
            raise InvalidRequestError(f"pageToken is {token!r}"[:200] + ", which is not of this server") from None
        if after is not None and "\0" in after:
            raise InvalidRequestError(f"pageToken is {token!r}"[:200] + ", which is not of this server")
        if token is None and size is None:
            return cls(None, None)
        return cls(after, int(size) if size else _USUAL)

    @property
    def limit(self) -> int | None:
        """The number of names to read: one more than the page has, to know whether another follows."""
        return None if self.size is None else self.size + 1

    def cut(self, names: Sequence[str]) -> tuple[Sequence[str], dict[str, str | None]]:
        """Return the names of the page, and the token of the next page for the answer."""
        if self.size is None:
            return names, {}
        page = names[: self.size]
        if len(names) <= self.size:
            return page, {"next-page-token": None}
        return page, {"next-page-token": urlsafe_b64encode(page[-1].encode()).decode()}


_USUAL, _LARGEST = 1_000, 1_000_000
