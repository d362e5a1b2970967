"""A string is the same value of a partition, or no value, at every entry: statements, repairs and the front doors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes

from catalog import Catalog
from catalog.errors import InvalidPartitionError
from catalog.model.partition_names import escape, partition_path
from catalog.statements.session import Session
from catalog.storage.bulk import batched
from catalog.types.key_types import KeyValueError, StringType, parse_key_type
from catalog.types.literals import quoted
from tests.support.effort import effort, sampled
from tests.support.glue_door import KEYS as ACCESS_KEYS
from tests.support.glue_door import serving_glue
from tests.support.hms_door import HmsDoor, partition
from tests.support.random_texts import random_texts

TYPES = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(38,10)", "boolean"),
    *("date", "timestamp", "string", "char(3)", "varchar(3)"),
)
NAMES = ("statement", "repair", "hive", "glue")
LONGEST_NAME = 200
"""In bytes; the names of folders may have some more."""


@pytest.fixture
def hive(catalog: Catalog, tmp_path: Path) -> Iterator[HmsDoor]:
    """A Hive door."""
    (tmp_path / "metrics").mkdir()
    with HmsDoor(catalog, tmp_path / "metrics", tmp_path / "warehouse") as door:
        yield door


@pytest.fixture
def glue(catalog: Catalog, tmp_path: Path) -> Iterator[Any]:
    """A client of the Glue door."""
    with serving_glue(catalog, tmp_path, ACCESS_KEYS) as door:
        yield door.client()


class Entries:
    """Tables with the partition key `k`, one for each way in, with and without an index."""

    def __init__(self, catalog: Catalog, hive: HmsDoor, glue: Any, key_type: str) -> None:
        self.catalog, self.hive, self.glue = catalog, hive, glue
        self.session = Session(catalog, database="demo")
        for number, name in enumerate(NAMES):
            catalog.create_table(f"demo.{name}", columns=[("id", "bigint")], partition_keys=[("k", key_type)])
            if number % 2:
                catalog.create_partition_index(f"demo.{name}", "by_k", ["k"])

    def statement(self, texts: Sequence[str]) -> None:
        """Add partitions by a statement; the first string that is no value fails it."""
        parts = " ".join(f"PARTITION (k={quoted(text)})" for text in texts)
        self.session.execute(f"ALTER TABLE statement ADD IF NOT EXISTS {parts}")

    def through_hive(self, texts: Sequence[str]) -> None:
        """Add partitions by a request of the Hive door; the first string that is no value fails it."""
        given = [partition("demo", "hive", [text]) for text in texts]
        request = ttypes.AddPartitionsRequest("demo", "hive", given, ifNotExists=True, needResult=False)
        refusal = None
        # The door ends idle connections.
        with self.hive.client() as client:
            try:
                client.add_partitions_req(request)
            except ttypes.InvalidObjectException as error:
                # Thrift's exceptions cannot pass through a context manager.
                refusal = error.message
        if refusal is not None:
            raise ValueError(refusal)

    def through_glue(self, texts: Sequence[str]) -> set[str]:
        """Add partitions by requests of the Glue door; return the strings that it refuses."""
        refused = set[str]()
        for batch in batched(texts, 100):
            inputs = [{"Values": [text]} for text in batch]
            answer = self.glue.batch_create_partition(DatabaseName="demo", TableName="glue", PartitionInputList=inputs)
            for error in answer.get("Errors", ()):
                if error["ErrorDetail"]["ErrorCode"] != "AlreadyExistsException":
                    refused.add(error["PartitionValues"][0])
        return refused

    def repair(self, texts: Sequence[str]) -> int:
        """Add partitions for folders; return the number of those that become none."""
        location = Path(self.catalog.get_table("demo.repair").location)
        for text in texts:
            Path(location, partition_path(["k"], [text])).mkdir(parents=True)
        return self.catalog.repair_table("demo.repair").unfit_count

    def refused_alone(self, texts: Collection[str]) -> None:
        """Check that each string is refused by the entries that take all partitions of a request or none."""
        for text in texts:
            with pytest.raises(InvalidPartitionError):
                self.statement([text])
            with pytest.raises(ValueError, match="refused"):
                self.through_hive([text])


@pytest.mark.parametrize("key_type", sampled(TYPES, ["date"]))
def test_each_entry_takes_the_same_values(catalog: Catalog, hive: HmsDoor, glue: Any, key_type: str) -> None:
    kind, entries, values = parse_key_type(key_type), Entries(catalog, hive, glue, key_type), dict[str, Any]()
    texts = [
        text for text in random_texts(effort(100, 2_000), seed=TYPES.index(key_type)) if is_in_paths(text, key_type)
    ]
    for text in texts:
        try:
            values[text] = kind.parse(text)
        except KeyValueError:
            continue
    unfit = [text for text in texts if text not in values]
    assert entries.through_glue(texts) == set(unfit)
    assert entries.repair(texts) == len(texts) - len(set(values.values()))
    for batch in batched(values, 500):
        entries.statement(batch)
        entries.through_hive(batch)
    entries.refused_alone(unfit[:: effort(10, 30)])
    distinct = set(values.values())
    for name in NAMES:
        found = [stored.values[0] for stored in catalog.get_partitions(f"demo.{name}")]
        assert len(found) == len(distinct), name
        assert {kind.parse(str(text)) for text in found} == distinct, name
    for text in list(values)[:: effort(5, 20)]:
        for name in NAMES:
            [same] = catalog.get_partitions(f"demo.{name}", f"k = {StringType().format(text)}")
            assert kind.parse(str(same.values[0])) == values[text], (name, text)


def is_in_paths(text: str, key_type: str) -> bool:
    """Return whether a folder's name and an index can have a string; indexes of chars have no control characters."""
    is_printed = not key_type.startswith("char") or min(text, default="") >= " "
    return bool(text.strip()) and is_printed and len(escape(text).encode()) <= LONGEST_NAME
