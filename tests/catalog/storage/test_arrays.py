"""Lists as parameters of PostgreSQL come back as they went in."""

from __future__ import annotations

import pytest

from catalog import Catalog
from catalog.storage.arrays import ByteStrings, Numbers


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (Numbers([]), "bigint[]"),
        (Numbers([0, -1, 2**63 - 1, -(2**63)]), "bigint[]"),
        (Numbers([7]), "int[]"),
        (ByteStrings([]), "bytea[]"),
        (ByteStrings([b"", b"\0\xff", b"a" * 1_000]), "bytea[]"),
    ],
)
def test_lists_come_back(catalog: Catalog, values: list[int] | list[bytes], kind: str) -> None:
    if not catalog.storage.is_postgresql:
        pytest.skip("SQLite has no arrays")
    for _ in range(2):
        [(found,)] = catalog.storage.fetch(f"SELECT %b::{kind}", (values,))
        assert found == list(values)
