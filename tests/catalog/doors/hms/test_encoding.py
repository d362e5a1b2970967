"""Partitions as bytes are those that the protocol's own classes write, whatever they have in common."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hive_metastore.ThriftHiveMetastore import get_partition_names_result, get_partitions_result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from catalog import Catalog, NewPartition
from catalog.doors.entries import Entries
from catalog.doors.hms.encoding import COLUMNS, EncodedList, encode_names, encode_texts, encoder_of
from catalog.doors.hms.structures import PartitionWriter
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model.identifiers import TableName
from catalog.model.partition_names import NULL_VALUE
from catalog.partitions import spooling
from catalog.partitions.names import SortedNames
from tests.support.effort import effort
from tests.support.entries import ORDERS, PARQUET, STRANGE
from tests.support.hms_door import partition, table

NUMBERS = count()
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
values = st.tuples(texts.filter(bool) | st.sampled_from([NULL_VALUE, "a/b", "50%", "%2F"]), st.integers(-9, 9).map(str))
counts = st.dictionaries(
    st.sampled_from(["numFiles", "numRows", "totalSize"]), st.sampled_from(["0", "7", "07", "-1", "x", str(2**63)])
)
parameters = st.builds(lambda one, other: {**one, **other}, st.dictionaries(texts, texts, max_size=2), counts)
members = st.builds(
    HivePartition,
    values,
    st.sampled_from([PARQUET, replace(STRANGE, skew=None)]),
    parameters.filter(lambda found: not any(name.startswith("calve.") for name in found)),
    st.sampled_from([None, "local", "s3://bucket/ä"]),
    st.none() | st.integers(0, 2**31 - 1),
    st.sampled_from([0, 1, 2**31 - 1]),
)


def decoded(answer: EncodedList, kind: Any = get_partitions_result) -> list[Any]:
    """Return the members of an answer as a client reads them."""
    result = kind()
    result.read(TBinaryProtocolAccelerated(TMemoryBuffer(b"".join(answer.as_result()))))
    assert len(result.success) == answer.count
    return list(result.success)


def rows_of(entries: Entries, name: TableName) -> list[Any]:
    """Return all partitions of a table, encoded from rows and decoded."""
    forms, pages = entries.partition_rows(name, lambda _entry: None, COLUMNS, -1)
    return decoded(encoder_of(forms).encode_pages(pages))


@settings(max_examples=effort(25, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_members=st.lists(members, min_size=1, max_size=6, unique_by=lambda member: member.values))
def test_rows_are_encoded_as_the_classes_of_the_protocol_are(
    entries: Entries, tmp_path: Path, given_members: list[HivePartition]
) -> None:
    name = TableName("demo", f"e{next(NUMBERS)}")
    entry = entries.create_table(HiveTable(name, "EXTERNAL_TABLE", ORDERS.columns, ORDERS.partition_keys, PARQUET))
    places = {"local": tmp_path, "s3://bucket/ä": "s3://bucket/ä"}
    located = [
        member._replace(location=member.location and f"{places[member.location]}/{name.name}/{number}")
        for number, member in enumerate(given_members)
    ]
    entries.add_partitions(name, located)
    expected = PartitionWriter(entry).write_all(entries.partitions(name))
    assert sorted(rows_of(entries, name), key=repr) == sorted(map(read_back, expected), key=repr)
    by_names = encoder_of(entries.forms(name)).encode(entries.partitions(name))
    assert sorted(decoded(by_names), key=repr) == sorted(map(read_back, expected), key=repr)


def read_back(written: Any) -> Any:
    """Return a structure as a client reads it, with lists instead of tuples."""
    buffer = TMemoryBuffer()
    written.write(TBinaryProtocolAccelerated(buffer))
    read = type(written)()
    read.read(TBinaryProtocolAccelerated(TMemoryBuffer(buffer.getvalue())))
    return read


@given(st.lists(st.tuples(texts, texts)))
def test_names_are_encoded_as_strings_with_their_lengths(pairs: list[tuple[str, str]]) -> None:
    parts = [pa.array([pair[place] for pair in pairs], pa.string()) for place in range(2)]
    joined = [(one + other).encode() for one, other in pairs]
    assert bytes(encode_texts(parts)) == b"".join(len(text).to_bytes(4) + text for text in joined)
    assert decoded(encode_names(SortedNames(())), get_partition_names_result) == []


@pytest.fixture
def many(catalog: Catalog, client: Any) -> int:
    """Add more partitions than are sent in one piece, or kept in memory."""
    client.create_table(table("demo", "many", {"day": "string", "hour": "int"}))
    number = 7_000
    catalog.add_partitions(
        "demo.many",
        [NewPartition([f"d{day}", str(hour)], row_count=hour) for day in range(number // 100) for hour in range(100)],
    )
    return number


def test_long_answers_are_sent_in_parts(client: Any, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "_ROWS_IN_MEMORY", 5_000)
    found = client.get_partitions("demo", "many", -1)
    names = client.get_partition_names("demo", "many", -1)
    assert len(found) == len(names) == many
    assert names == sorted({f"day={day}/hour={hour}" for day, hour in (entry.values for entry in found)})
    assert all(entry.parameters["numRows"] == entry.values[1] for entry in found)
    assert len(client.get_partitions_by_filter("demo", "many", "hour = 7", -1)) == many // 100
    assert len(client.get_partitions_by_filter("demo", "many", "hour > 1", -1)) == many // 100 * 98


def test_a_search_sees_changes_of_the_table_since_the_last_one(client: Any) -> None:
    for key in ("p", "q", "p"):
        client.create_table(table("demo", "t", {key: "string"}))
        for value in ("a", "b"):
            client.add_partition(partition("demo", "t", [value]))
            assert [entry.values for entry in client.get_partitions_by_filter("demo", "t", f'{key} = "{value}"', -1)]
            assert client.get_partition_names_ps("demo", "t", [value], -1) == [f"{key}={value}"]
        assert client.get_partitions_by_filter("demo", "t", f'{key} = "c"', -1) == []
        renamed = client.get_table("demo", "t")
        renamed.parameters["changed"] = "yes"
        client.alter_table("demo", "t", renamed)
        assert len(client.get_partitions("demo", "t", -1)) == 2
        client.drop_table("demo", "t", True)
        with pytest.raises(Exception, match="does not exist"):
            client.get_partitions("demo", "t", -1)
