"""Texts in the catalog's tables: what no database stores the same way is refused before it is sent."""

from __future__ import annotations

import re

from sqlalchemy import Dialect, TypeDecorator
from sqlalchemy import String as PlainString
from sqlalchemy import Text as PlainText

from catalog.errors import InvalidRequestError

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class _Checked(TypeDecorator[str]):
    """A text without U+0000 and lone surrogates, and no longer than its column, on SQLite too."""

    impl: type[PlainString] = PlainString
    cache_ok = True
    limit: int | None = None

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text.

        Raises:
            InvalidRequestError: It cannot be stored.
        """
        if value is None:
            return None
        limit = self.limit
        if limit is not None and len(value) > limit:
            raise InvalidRequestError(f"text {value[:40]!r}… has {len(value)} characters; at most {limit} are allowed")
        if match := _UNSTORABLE.search(value):
            raise InvalidRequestError(
                f"text {value[:40]!r} holds {match.group()!r}, which no database can store; take it out"
            )
        return value


class String(_Checked):
    """A text of limited length."""

    cache_ok = True

    def __init__(self, limit: int) -> None:
        """Take the number of characters."""
        super().__init__(limit)
        self.limit = limit


class Text(_Checked):
    """A text of any length."""

    impl = PlainText
    cache_ok = True
