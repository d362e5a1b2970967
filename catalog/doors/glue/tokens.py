"""Tokens for the next page: a position in a list, which any process can continue from, also after a restart."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from catalog.doors.glue.failures import GlueError, invalid_input

T = TypeVar("T")

_OUTSIDE = ("NextToken", "MaxResults", "AuditContext", "CatalogId")
"""Members that may differ between the requests for the pages of one list."""

_MAXIMUM_LENGTH = 4_096
_INTEGERS = range(-(2**63), 2**63)
"""Whole numbers of positions; others do not fit into the catalog's columns."""


def make_token(operation: str, members: Mapping[str, Any], position: Sequence[Any]) -> str:
    """Return the token for the page after a position, of JSON values, in the list that a request asks for."""
    content = json.dumps([_digest(operation, members), *position], separators=(",", ":"))
    return urlsafe_b64encode(content.encode()).decode()


def read_token(operation: str, members: Mapping[str, Any], kinds: Sequence[Collection[type]]) -> list[Any] | None:
    """Return the position of a request's token; None for the first page.

    Args:
        kinds: The types that each of the position's values may have.

    Raises:
        GlueError: The token is not one of this list.
    """
    text = members.get("NextToken")
    if not text:
        return None
    try:
        if len(text) > _MAXIMUM_LENGTH:
            raise _foreign()
        digest: Any
        position: list[Any]
        digest, *position = json.loads(urlsafe_b64decode(text.encode()))
    except (ValueError, TypeError, RecursionError):
        raise _foreign() from None
    is_known = len(position) == len(kinds) and all(map(_fits, position, kinds))
    if digest != _digest(operation, members) or not is_known:
        raise _foreign()
    return position


def _fits(value: Any, kinds: Collection[type]) -> bool:
    """Return whether a value, which a client may have changed, can be compared with those of a list."""
    return type(value) in kinds and (type(value) is not int or value in _INTEGERS)


def _foreign() -> GlueError:
    return invalid_input("NextToken is not from a page of this request; begin again without a token")


def _digest(operation: str, members: Mapping[str, Any]) -> str:
    asked = {name: value for name, value in members.items() if name not in _OUTSIDE}
    return blake2b(json.dumps([operation, asked], sort_keys=True).encode(), digest_size=9).hexdigest()


def sorted_page(
    operation: str,
    members: Mapping[str, Any],
    items: Sequence[T],
    name_of: Callable[[T], str],
    *,
    default: int = 100,
) -> tuple[Sequence[T], str | None]:
    """Return a page of items that are sorted by their names, and the token of the next one.

    Args:
        default: The number of items on a page if the request gives no `MaxResults`.

    Raises:
        GlueError: The token is not one of this list.
    """
    position = read_token(operation, members, [{str}])
    if position is not None:
        items = [item for item in items if name_of(item) > position[0]]
    size = members.get("MaxResults", default)
    page = items[:size]
    return page, make_token(operation, members, [name_of(page[-1])]) if len(items) > size else None
