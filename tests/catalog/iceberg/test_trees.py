"""The tree of a table's metadata is read for partition keys of each type."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from catalog.iceberg.named_files import logged_files
from catalog.iceberg.trees import MetadataTree

NOON = datetime(2024, 5, 1, 12, 30, 15, 250)
CASES: list[tuple[IcebergType, list[object]]] = [
    (BooleanType(), [True, False, None]),
    (IntegerType(), [-1, 5, None]),
    (LongType(), [-(2**40), 2**40, None]),
    (FloatType(), [-1.5, 0.25, None]),
    # PyIceberg 0.12 rounds doubles to floats where it writes manifests again.
    (DoubleType(), [0.5, -4.0, None]),
    (DecimalType(9, 2), [Decimal("-1.25"), Decimal("3.00"), None]),
    (DateType(), [date(1960, 1, 1), date(2024, 5, 1), None]),
    (TimeType(), [time(1, 2, 3), time(23, 59), None]),
    (TimestampType(), [NOON, NOON.replace(year=1950), None]),
    (TimestamptzType(), [NOON.replace(tzinfo=UTC), NOON.replace(year=1950, tzinfo=UTC), None]),
    (StringType(), ["a", "ä😀", None]),
    (FixedType(2), [b"\x00\x01", b"\xff\xfe", None]),
    (BinaryType(), [b"\x00", b"\xff", None]),
]


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_all_files_are_named_and_summaries_are_right(tmp_path: Path, kind: IcebergType, values: list[object]) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "k", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"))
    with SqlCatalog("c", uri="sqlite://", warehouse=f"file://{tmp_path}") as engine:
        engine.create_namespace("db")
        table = engine.create_table("db.t", schema, partition_spec=spec)
        arrow = table.schema().as_arrow()
        for number in range(2):
            columns = {"id": [number, 1, 2], "k": pa.array(values, arrow.field("k").type)}
            table.append(pa.table(columns, schema=arrow))
        table.delete(EqualTo("id", 0))
        tree = MetadataTree(table.metadata_location)
        written = {*map(str, Path(tmp_path).rglob("*.parquet"))}
    files = [listed.file.path for listed in tree.files()]
    assert (tree.damaged, tree.hidden) == ([], [])
    assert {path.removeprefix("file://") for path in files} == written
    named = {path.removeprefix("file://") for path in logged_files(tree.location)}
    assert {path for path in named if path.endswith(".parquet")} == written
