"""A program that writes tables with Spark's Hive support and an embedded metastore, and stores the rows that it reads.

A test runs it in a separate process, because Hive support applies to the whole JVM.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import SparkSession

TYPES = """
    b boolean, t tinyint, s smallint, i int, l bigint, f float, d double,
    d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,10),
    st string, ch char(5), vc varchar(8), bi binary, da date, ts timestamp,
    ar array<int>, ma map<string,bigint>, sr struct<a:int,b:array<string>,c:struct<d:date>>
"""

ROWS = """
    SELECT true, 1Y, 2S, 3, 4L, 1.5F, 2.25D,
        1234567.89BD, 12345678901234.5678BD, CAST('-1234567890.0123456789' AS decimal(38,10)),
        'text', 'ab', 'vchar', X'00FF10', DATE '2024-02-29', TIMESTAMP '2024-02-29 12:34:56.789012',
        array(1, null, 3), map('k', 1L, 'n', null),
        named_struct('a', 1, 'b', array('x', null), 'c', named_struct('d', DATE '1969-12-31'))
    UNION ALL
    SELECT false, -128Y, -32768S, -2147483648, -9223372036854775808L, CAST('NaN' AS float), CAST('-Infinity' AS double),
        -0.01BD, 0BD, 0BD,
        '', 'abcde', 'äöü', X'', DATE '1582-10-15', TIMESTAMP '1970-01-01 00:00:00',
        array(), map(), named_struct('a', null, 'b', array(), 'c', null)
    UNION ALL
    SELECT null, null, null, null, null, null, null,
        null, null, null, null, null, null, null, null, null, null, null, null
    UNION ALL
    SELECT true, 127Y, 32767S, 2147483647, 9223372036854775807L, -0.0F, 0.0D,
        9999999.99BD, 99999999999999.9999BD, 1BD,
        concat('a long text of more than 16 characters ', repeat('ÿ', 20)), 'z', '12345678',
        X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF', DATE '9999-12-31', TIMESTAMP '2038-01-19 03:14:08', null, null, null
"""

BEFORE = """
    gone string, n int, f float, d decimal(9,2), st struct<a:int>, ar array<struct<a:int>>,
    ma map<string,struct<a:int>>, note string, id bigint
"""
AFTER = """
    id bigint, note string, n bigint, f double, d decimal(18,2), st struct<a:int,b:string>,
    ar array<struct<a:int,b:string>>, ma map<string,struct<a:int,b:string>>, added date
"""
"""The columns reordered, with one dropped, one added, three widened, and structs with an additional field."""

ROWS_BEFORE = """
    SELECT /*+ REPARTITION(1) */ 'gone', CAST(id AS int) AS n, id / 4F, id * 1.25BD, named_struct('a', id),
        array(named_struct('a', id), null), map('k', named_struct('a', id)), concat('n', id), id
    FROM range(5)
"""
ROWS_AFTER = """
    SELECT /*+ REPARTITION(1) */ id, null, id * 10000000000, id / 3D, id * 10000000.25BD,
        named_struct('a', id, 'b', 'x'), array(named_struct('a', id, 'b', 'x')),
        map('k', named_struct('a', id, 'b', null)), date_add(DATE '2024-02-28', CAST(id AS int))
    FROM range(5, 10)
"""

FORMATS = ("PARQUET", "ORC", "AVRO")
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "ID", "type": ["null", "long"]},
            {"name": "Note", "type": ["null", "string"]},
            {
                "name": "Part",
                "type": [
                    "null",
                    {"type": "record", "name": "part", "fields": [{"name": "Name", "type": ["null", "string"]}]},
                ],
            },
        ],
    }
)

ODD_TEXTS = ["plain", "a b", "a/b:c=d%41", "ünï-日本", "it''s \"quoted\"", "__x", ".y", "", None]


def sql_text(value: str | None) -> str:
    return "null" if value is None else f"'{value}'"


class Lake:
    """Writes the tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def location(self, name: str) -> Path:
        return self.folder / name

    def create(
        self, name: str, columns: str, keys: str, stored: str, at: str | None = None, properties: str = ""
    ) -> None:
        partitioned = f"PARTITIONED BY ({keys})" if keys else ""
        place = f"STORED AS {stored} LOCATION '{self.location(at or name)}'"
        rest = f"TBLPROPERTIES ({properties})" if properties else ""
        self.spark.sql(f"CREATE EXTERNAL TABLE {name} ({columns}) {partitioned} {place} {rest}")

    def insert(self, name: str, keys: str, select: str) -> None:
        partition = f"PARTITION ({keys})" if keys else ""
        self.spark.sql(f"INSERT INTO {name} {partition} {select}")

    def all_types(self, name: str, stored: str) -> None:
        """All types, one key, values that are escaped, nulls, and a partition with another location."""
        # A char in an ORC file is refused, because filters of Iceberg's readers do not find its values.
        self.create(name, TYPES.replace("char(5)", "varchar(5)", 1) if stored == "ORC" else TYPES, "k string", stored)
        keys = f"array({', '.join(map(sql_text, ODD_TEXTS))})"
        self.insert(name, "k", f"SELECT *, explode({keys}) AS k FROM ({ROWS}) DISTRIBUTE BY k")
        elsewhere = self.folder / "elsewhere" / name
        self.spark.sql(f"ALTER TABLE {name} ADD PARTITION (k = 'far') LOCATION '{elsewhere}'")
        self.insert(name, "k = 'far'", ROWS)

    def flat(self, name: str, stored: str) -> None:
        """No keys, files from before and after a change of the columns, and nested folders."""
        self.create(f"{name}_before", BEFORE, "", stored, at=name)
        self.insert(f"{name}_before", "", f"SELECT * FROM ({ROWS_BEFORE})")
        self.create(name, AFTER, "", stored)
        with self.in_folders_inside(name):
            self.insert(name, "", f"SELECT * FROM ({ROWS_AFTER})")

    def capitals(self, name: str, stored: str) -> None:
        """Files whose column names have capitals, unlike those in a metastore."""
        columns = "id bigint, note string, part struct<name:string>"
        if stored == "AVRO":
            # Hive's writer uses the schema in the table's properties, which its reader needs.
            self.create(name, columns, "", stored, properties=f"'avro.schema.literal' = '{AVRO_SCHEMA}'")
            self.insert(name, "", "SELECT id, concat('n', id), struct('x' AS name) FROM range(10)")
            return
        self.create(name, columns, "", stored)
        # Spark's writer uses the column names of the DataFrame.
        rows = self.spark.range(10).selectExpr("concat('n', id) AS Note", "id AS ID", "struct('x' AS Name) AS Part")
        rows.repartition(1).write.format(stored).mode("append").save(str(self.location(name)))

    def two_keys(self, name: str, stored: str) -> None:
        """As `flat`, with files from before and after the change in each partition."""
        keys, of_row = "flag boolean, rate decimal(5,2)", "id % 2 = 0, nullif(id % 3 * 1.5BD, 0)"
        self.create(f"{name}_before", BEFORE, keys, stored, at=name)
        self.insert(f"{name}_before", "flag, rate", f"SELECT *, {of_row} FROM ({ROWS_BEFORE})")
        self.create(name, AFTER, keys, stored)
        # Hive deletes the files in the folder of a partition that is not in the metastore.
        self.spark.sql(f"ALTER TABLE {name} RECOVER PARTITIONS")
        with self.in_folders_inside(name):
            self.insert(name, "flag, rate", f"SELECT *, {of_row} FROM ({ROWS_AFTER})")

    @contextmanager
    def in_folders_inside(self, name: str) -> Iterator[None]:
        """Move the files that the block writes two folders deeper, and leave copies in hidden folders."""
        before = self.data_files(name)
        yield
        for file in self.data_files(name) - before:
            for folder in ("_temporary", "sub/.hidden", "sub/deep"):
                (file.parent / folder).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, file.parent / folder)
            file.unlink()

    def data_files(self, name: str) -> set[Path]:
        return {each for each in self.location(name).rglob("part-*") if each.is_file()}

    def three_keys(self, name: str, stored: str) -> None:
        """Keys of three types with nulls, and two files in each partition, one with greater ids."""
        self.create(name, "id bigint, amount double", "country string, at timestamp, day date", stored)
        self.insert(
            name,
            "country, at, day",
            """SELECT /*+ REPARTITION_BY_RANGE(2, id) */ id, id / 4D,
                CASE id % 4 WHEN 0 THEN 'nl' WHEN 1 THEN 'be' WHEN 2 THEN 'n l' END,
                CASE id % 3 WHEN 0 THEN TIMESTAMP '2024-02-29 12:34:56'
                    WHEN 1 THEN TIMESTAMP '1969-12-31 23:59:59.25' END,
                CASE id % 6 WHEN 0 THEN DATE '2024-02-29' WHEN 1 THEN DATE '2024-02-29'
                    WHEN 2 THEN DATE '1582-10-15' WHEN 3 THEN DATE '1582-10-15' END
            FROM range(120)""",
        )

    def mixed(self, name: str) -> None:
        """Partitions of three formats."""
        self.create(name, "id bigint, name string", "n int", "ORC")
        for number, stored in enumerate(FORMATS):
            self.spark.sql(f"ALTER TABLE {name} ADD PARTITION (n = {number})")
            part = f"{name}_{number}"
            self.create(part, "id bigint, name string", "", stored, at=f"{name}/n={number}")
            self.insert(part, "", f"SELECT /*+ REPARTITION(1) */ id + {100 * number}, 'x' FROM range(5)")
            self.set_storage(name, number, part)

    def set_storage(self, name: str, position: int, like: str) -> None:
        """Set a partition's format and folder to those of a table, as Hive's SET FILEFORMAT does, which Spark lacks."""
        jvm, catalog = self.spark.sparkContext._jvm, self.session_catalog
        old = catalog.listPartitions(self.identifier(name), jvm.scala.Option.empty()).apply(position)
        storage = catalog.getTableMetadata(self.identifier(like)).storage()
        rest = old.parameters(), old.createTime(), old.lastAccessTime(), old.stats()
        changed = jvm.java.util.List.of(old.copy(old.spec(), storage, *rest))
        catalog.alterPartitions(
            self.identifier(name), jvm.scala.jdk.javaapi.CollectionConverters.asScala(changed).toSeq()
        )

    @property
    def session_catalog(self) -> Any:
        return self.spark._jsparkSession.sessionState().catalog()

    def identifier(self, name: str) -> Any:
        return self.spark.sparkContext._jvm.org.apache.spark.sql.catalyst.TableIdentifier(name)

    def rows(self, name: str) -> pyarrow.Table:
        return self.spark.table(name).coalesce(1).toArrow()

    def partitions(self, name: str) -> Iterator[dict[str, Any]]:
        nothing = self.spark.sparkContext._jvm.scala.Option.empty()
        found = self.session_catalog.listPartitions(self.identifier(name), nothing)
        for position in range(found.size()):
            partition = found.apply(position)
            values = {}
            iterator = partition.spec().iterator()
            while iterator.hasNext():
                pair = iterator.next()
                values[pair._1()] = pair._2()
            yield {"values": values, "location": partition.location().getPath()}


KINDS = {
    "flat": Lake.flat,
    "all": Lake.all_types,
    "two": Lake.two_keys,
    "three": Lake.three_keys,
    "capitals": Lake.capitals,
}
"""The name prefixes of tables that exist in each format."""


def hive_session(folder: Path) -> SparkSession:
    """Return a session with an embedded metastore that reads and writes with Hive's formats."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:lake;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        # Otherwise, Hive starts a process for the permissions of each file and folder.
        "spark.hadoop.hive.warehouse.subdir.inherit.perms": "false",
        "spark.hadoop.hive.stats.autogather": "false",
        "spark.hadoop.mapreduce.input.fileinputformat.input.dir.recursive": "true",
        "spark.sql.adaptive.enabled": "false",
        # Use Hive's writers and readers instead of Spark's.
        "spark.sql.hive.convertMetastoreParquet": "false",
        "spark.sql.hive.convertMetastoreOrc": "false",
        "spark.log.level": "OFF",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -Duser.timezone=UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("hive lake").enableHiveSupport()
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(folder: Path) -> None:
    spark = hive_session(folder)
    lake = Lake(spark, folder)
    written = []
    for stored in FORMATS:
        for prefix, write in KINDS.items():
            written.append(f"{prefix}_{stored.lower()}")
            write(lake, written[-1], stored)
    lake.mixed("mixed")
    written.append("mixed")
    tables = {}
    for name in written:
        is_partitioned = not name.startswith(("flat_", "capitals_"))
        tables[name] = {"partitions": list(lake.partitions(name)) if is_partitioned else None}
        # Hive's reader returns null for column names with capitals in ORC files; Spark's reader does not.
        spark.conf.set("spark.sql.hive.convertMetastoreOrc", str(name == "capitals_orc").lower())
        rows = lake.rows(name)
        with (
            pyarrow.OSFile(str(folder / f"{name}.arrow"), "wb") as file,
            pyarrow.ipc.new_file(file, rows.schema) as out,
        ):
            out.write_table(rows)
    (folder / "tables.json").write_text(json.dumps(tables))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
