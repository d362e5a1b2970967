"""Names of the folders in which attempts at operations write: those of no other attempt, operation or catalog.

`<catalog>-<number of the operation>-<attempt>`: several catalogs may keep tables in the same folders, and each may
only judge what it wrote itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from catalog.operations import Operation
from catalog.storage import Storage


class AttemptName(NamedTuple):
    """The name of an attempt's folder, with the numbers of the operation and of the attempt."""

    name: str
    number: int
    attempt: int


def attempt_folder(operation: Operation, attempt: int) -> str:
    """Return the name of the folder of an attempt."""
    return f"{operation.folder}-{attempt}"


def attempts_among(storage: Storage, names: Iterable[str], prefix: str = "") -> Iterator[AttemptName]:
    """Yield the folders of attempts at this catalog's operations, in the order of the names.

    Args:
        prefix: What the names of such folders begin with.
    """
    form = re.compile(rf"{prefix}{storage.identity}-([1-9][0-9]{{0,17}})-([1-9][0-9]{{0,8}})")
    for name in names:
        if numbers := form.fullmatch(name):
            yield AttemptName(name, int(numbers[1]), int(numbers[2]))
