"""Tables and partitions come back through the door as through a real Hive Metastore."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import Catalog
from tests.support.effort import effort
from tests.support.hive_metastore import HiveMetastoreServer
from tests.support.hms_door import HmsDoor, connected, partition, table

pytestmark = pytest.mark.spark

DATABASE = "round_trips"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
WORDS = NAMES | st.sampled_from(["a.b", "x-y", "EXTERNAL_", "Größe"])
PARAMETERS = st.dictionaries(WORDS, TEXTS.filter(bool), max_size=3)
TYPES = st.sampled_from(
    ["int", "string", "decimal(10,2)", "array<string>", "struct<a:int,b:map<string,date>>", "char(3)"]
)
COLUMNS = st.lists(st.builds(ttypes.FieldSchema, st.just(""), TYPES, st.none() | TEXTS), min_size=1, max_size=4).map(
    lambda fields: [ttypes.FieldSchema(f"c{n}", field.type, field.comment) for n, field in enumerate(fields)]
)
CLASSES = st.sampled_from(["org.example.Format", "org.apache.hadoop.mapred.TextInputFormat", ""])


@st.composite
def skews(draw: st.DrawFn, names: list[str]) -> Any:
    columns = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    values = st.lists(TEXTS.filter(bool), min_size=len(columns), max_size=len(columns))
    frequent = draw(st.lists(values, unique_by=tuple, max_size=2)) if columns else []
    placed = draw(st.lists(st.sampled_from(frequent), unique_by=tuple)) if frequent else []
    return ttypes.SkewedInfo(columns, frequent, {tuple(each): f"file:/tmp/{n}" for n, each in enumerate(placed)})


@st.composite
def storages(draw: st.DrawFn) -> Any:
    fields = draw(COLUMNS)
    names = [field.name for field in fields]
    return ttypes.StorageDescriptor(
        cols=fields,
        location=None,
        inputFormat=draw(CLASSES),
        outputFormat=draw(CLASSES),
        compressed=draw(st.booleans()),
        numBuckets=draw(st.sampled_from([-1, 0, 4])),
        serdeInfo=ttypes.SerDeInfo(name=draw(NAMES), serializationLib=draw(CLASSES), parameters=draw(PARAMETERS)),
        bucketCols=draw(st.lists(st.sampled_from(names), unique=True, max_size=2)),
        sortCols=[
            ttypes.Order(name, order)
            for name, order in draw(
                st.dictionaries(st.sampled_from(names), st.sampled_from([0, 1]), max_size=2)
            ).items()
        ],
        parameters=draw(PARAMETERS),
        skewedInfo=draw(skews(names)),
        storedAsSubDirectories=draw(st.booleans()),
    )


@st.composite
def entries(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return a table with the key `p`, and a partition of it."""
    made = table(
        DATABASE,
        "made",
        {"p": "string"},
        sd=draw(storages()),
        owner=draw(TEXTS.filter(bool)),
        retention=draw(st.integers(0, 2**31 - 1)),
        parameters=draw(PARAMETERS),
        lastAccessTime=draw(st.integers(0, 2**31 - 1)),
    )
    value = draw(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8))
    return made, partition(DATABASE, "made", [value], sd=draw(storages()), parameters=draw(PARAMETERS))


@pytest.fixture(scope="module")
def metastore(hive_metastore: HiveMetastoreServer) -> Iterator[Any]:
    with connected(hive_metastore.port) as client:
        client.create_database(
            ttypes.Database(name=DATABASE, locationUri=f"file:{hive_metastore.warehouse}/{DATABASE}.db")
        )
        yield client
        client.drop_database(DATABASE, False, True)


@pytest.fixture(scope="module")
def door_client(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("round-trips")
    shutil.copyfile(sqlite_template, folder / "catalog.db")
    with (
        Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse")) as catalog,
        HmsDoor(catalog, folder, folder / "warehouse") as door,
        door.client() as client,
    ):
        client.create_database(ttypes.Database(name=DATABASE))
        yield client


def stored(client: Any, made: Any, part: Any) -> tuple[Any, Any, str]:
    """Create a table and a partition, return them as they come back, and drop them."""
    client.create_table(made)
    try:
        client.add_partition(part)
        found = client.get_table(DATABASE, "made")
        [member] = client.get_partitions(DATABASE, "made", -1)
        [name] = client.get_partition_names(DATABASE, "made", -1)
        assert member.sd.location == f"{found.sd.location}/{name}"
        assert client.get_partition_by_name(DATABASE, "made", name) == member
        assert client.get_partitions_by_names(DATABASE, "made", [name]) == [member]
        return _plain(found), _plain(member), name
    finally:
        client.drop_table(DATABASE, "made", True)


def _plain(entry: Any) -> Any:
    """Return an entry without the times of servers, their folders, and fields that only later releases have."""
    entry.createTime = entry.sd.location = entry.catName = None
    entry.parameters = {
        name: value
        for name, value in entry.parameters.items()
        if name
        not in ("transient_lastDdlTime", "numFiles", "totalSize", "COLUMN_STATS_ACCURATE", "numRows", "rawDataSize")
    }
    if isinstance(entry, ttypes.Table):
        entry.temporary = entry.rewriteEnabled = entry.id = None
    return entry


@settings(max_examples=effort(10, 100))
@given(made=entries())
def test_tables_and_partitions_come_back_as_from_a_metastore(
    metastore: Any, door_client: Any, made: tuple[Any, Any]
) -> None:
    assert stored(door_client, *made) == stored(metastore, *made)
