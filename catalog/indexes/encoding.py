"""Vectorized encoding of index keys: each distinct value is parsed once, and Arrow joins the bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from catalog.indexes.keys import MAXIMUM_KEY_BYTES
from catalog.model import PartitionIndex, Table
from catalog.model.partition_names import given_values
from catalog.types.key_types import NULL_BYTES, KeyType, KeyValueError


def split_lines(text: str) -> pa.StringArray:
    """Return the lines of a string."""
    return pc.split_pattern(pa.array([text]), "\n").values


def encode_index_keys(table: Table, index: PartitionIndex, packed_values: pa.StringArray) -> pa.BinaryArray | None:
    """Return the cut index keys of partitions, in their order; None when the index refuses one of them.

    The keys equal those of `ValueEncoder`, which also gives the reason for a refused partition.

    Args:
        packed_values: The partitions' values in the form of `catalog.model.partition_names.pack_values`.
    """
    parts = pc.split_pattern(packed_values, "/")
    pieces = []
    for key in index.keys:
        position = table.key_names.index(key)
        texts = pc.list_element(parts, position).dictionary_encode()
        encoded = [encode_packed(table.key_types[position], text) for text in texts.dictionary.to_pylist()]
        if None in encoded:
            return None
        pieces.append(pa.array(encoded, pa.binary()).take(texts.indices))
    return pc.binary_slice(pc.binary_join_element_wise(*pieces, b""), 0, MAXIMUM_KEY_BYTES)


def encode_packed(key_type: KeyType, packed: str) -> bytes | None:
    """Return the bytes of one packed value in keys and identities; None when it is missing or not of the type."""
    match given_values(packed):
        case (None,):
            return NULL_BYTES
        case (str() as text,):
            try:
                return key_type.encode(key_type.parse(text))
            except KeyValueError:
                return None
        case _:
            return None
