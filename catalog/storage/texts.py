"""String columns of the catalog; values that some database cannot store are refused on all of them."""

from __future__ import annotations

import re

from sqlalchemy import Dialect, TypeDecorator
from sqlalchemy import String as PlainString
from sqlalchemy import Text as PlainText

from catalog.errors import InvalidRequestError

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def require_storable(value: str) -> str:
    """Return a string.

    Raises:
        InvalidRequestError: It has U+0000 or an unpaired surrogate.
    """
    if match := _UNSTORABLE.search(value):
        raise InvalidRequestError(
            f"string {value[:40]!r} contains {match.group()!r}, which databases cannot store; remove it"
        )
    return value


def storable(text: str) -> str:
    r"""Return a message with the characters that databases cannot store as escapes, such as `\x00`."""
    return _UNSTORABLE.sub(lambda match: ascii(match.group())[1:-1], text)


class _Checked(TypeDecorator[str]):
    """A string without U+0000 and unpaired surrogates, limited to the column's length on SQLite, too."""

    impl: type[PlainString] = PlainString
    cache_ok = True
    limit: int | None = None

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the string.

        Raises:
            InvalidRequestError: It cannot be stored.
        """
        if value is None:
            return None
        limit = self.limit
        if limit is not None and len(value) > limit:
            raise InvalidRequestError(
                f"string {value[:40]!r}… has {len(value)} characters; at most {limit} are allowed"
            )
        return require_storable(value)


class String(_Checked):
    """A string of limited length."""

    cache_ok = True

    def __init__(self, limit: int) -> None:
        """Create a column type with a maximum number of characters."""
        super().__init__(limit)
        self.limit = limit


class Text(_Checked):
    """A string of any length."""

    impl = PlainText
    cache_ok = True
