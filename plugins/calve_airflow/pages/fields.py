"""Types of the fields in the pages' addresses, with the bounds that keep each request small."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number that databases can store, such as the id of a partition."""

PageNumber = Annotated[int, Field(le=1_000_000_000)]
"""The number of a page of a list; the first page for what is below 1."""

Filter = Annotated[str, Field(max_length=10_000)]
"""A filter of partitions: one of 50,000 characters takes a minute of the database."""
