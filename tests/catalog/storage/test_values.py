from __future__ import annotations

import pytest

from catalog.errors import PartitionValueError
from catalog.model.partition_names import pack_values
from catalog.storage.values import read_packed, read_strictly
from catalog.types.key_types import parse_key_type


def test_numbers_with_more_digits_than_their_type_are_compared_where_values_are_read_strictly() -> None:
    key_type = parse_key_type("decimal(5,2)")
    stored = pack_values(["0.001"], 1)
    assert read_packed(key_type, stored) is None
    assert read_strictly("price", key_type, stored) == key_type.parse_literal("0.001")
    assert read_strictly("price", key_type, pack_values([None], 1)) is None
    with pytest.raises(PartitionValueError, match="price"):
        read_strictly("price", key_type, pack_values(["cheap"], 1))
