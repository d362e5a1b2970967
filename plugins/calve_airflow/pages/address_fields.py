"""Types of numbers in the addresses of pages, within what databases store; others are refused with a reason."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

_MAXIMUM = 2**63 - 1

Id = Annotated[int, Query(ge=-_MAXIMUM, le=_MAXIMUM)]
"""The id of a row, its number, or a time in milliseconds."""

PageNumber = Annotated[int, Query(le=1_000_000_000)]
"""The number of a page of a list, from 1; smaller ones are the first page."""
