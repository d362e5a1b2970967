"""A program that writes tables as Hive-style Spark does, with its own metastore, and says what it reads back.

Run by a test in a process of its own, because Hive's support is a property of a whole JVM.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
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

    def create(self, name: str, columns: str, keys: str, stored: str) -> None:
        partitioned = f"PARTITIONED BY ({keys})" if keys else ""
        place = f"STORED AS {stored} LOCATION '{self.location(name)}'"
        self.spark.sql(f"CREATE EXTERNAL TABLE {name} ({columns}) {partitioned} {place}")

    def insert(self, name: str, keys: str, select: str) -> None:
        partition = f"PARTITION ({keys})" if keys else ""
        self.spark.sql(f"INSERT INTO {name} {partition} {select}")

    def all_types(self, name: str, stored: str) -> None:
        """All types, one key, values that have to be escaped, nulls, and a partition at a location of its own."""
        self.create(name, TYPES, "k string", stored)
        cross = " UNION ALL ".join(f"SELECT {sql_text(each)} AS k" for each in ODD_TEXTS)
        self.insert(name, "k", f"SELECT r.*, keys.k FROM ({ROWS}) r CROSS JOIN ({cross}) keys DISTRIBUTE BY keys.k")
        elsewhere = self.folder / "elsewhere" / name
        self.spark.sql(f"ALTER TABLE {name} ADD PARTITION (k = 'far') LOCATION '{elsewhere}'")
        self.insert(name, "k = 'far'", ROWS)

    def flat(self, name: str, stored: str) -> None:
        """No keys, and columns that came later."""
        self.create(name, "id bigint, note string", "", stored)
        self.insert(name, "", "SELECT /*+ REPARTITION(1) */ id, concat('n', id) FROM range(10)")
        self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (price decimal(9,2), tags array<string>)")
        later = "id + 10, null, CAST(id AS decimal(9,2)), array('t', CAST(id AS string))"
        self.insert(name, "", f"SELECT /*+ REPARTITION(1) */ {later} FROM range(10)")

    def three_keys(self, name: str, stored: str) -> None:
        """Keys of three types, nulls in each of them."""
        self.create(name, "id bigint, amount double", "country string, year int, day date", stored)
        self.insert(
            name,
            "country, year, day",
            """SELECT id, id / 4D, CASE id % 4 WHEN 0 THEN 'nl' WHEN 1 THEN 'be' WHEN 2 THEN 'n l' END,
                CASE WHEN id % 3 > 0 THEN 2020 + CAST(id % 3 AS int) END,
                CASE WHEN id % 5 > 0 THEN date_add(DATE '2024-02-27', CAST(id % 5 AS int)) END
            FROM range(120) DISTRIBUTE BY id % 4""",
        )

    def mixed(self, name: str) -> None:
        """Partitions of three formats."""
        self.create(name, "id bigint, name string", "n int", "ORC")
        for number, stored in enumerate(("ORC", "PARQUET", "AVRO")):
            self.spark.sql(f"ALTER TABLE {name} ADD PARTITION (n = {number})")
            if stored != "ORC":
                # Spark changes no format; the files are written beside, and the catalog is told.
                other = f"{name}_{stored.lower()}"
                self.create(other, "id bigint, name string", "", stored)
                self.insert(other, "", f"SELECT /*+ REPARTITION(1) */ id + {100 * number}, 'x' FROM range(5)")
                target = self.location(name) / f"n={number}"
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(self.location(other), target)
            else:
                self.insert(name, "n = 0", "SELECT /*+ REPARTITION(1) */ id, 'x' FROM range(5)")

    def rows(self, name: str) -> pyarrow.Table:
        return self.spark.table(name).toArrow()

    def partitions(self, name: str) -> Iterator[dict[str, Any]]:
        jvm = self.spark.sparkContext._jvm
        identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier(name)
        catalog = self.spark._jsparkSession.sessionState().catalog()
        found = catalog.listPartitions(identifier, jvm.scala.Option.empty())
        for position in range(found.size()):
            partition = found.apply(position)
            values = {}
            iterator = partition.spec().iterator()
            while iterator.hasNext():
                pair = iterator.next()
                values[pair._1()] = pair._2()
            yield {"values": values, "location": partition.location().getPath()}


def main(folder: Path) -> None:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:lake;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        # Hive's own writers and readers, not Spark's in their place.
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
    spark = builder.getOrCreate()
    lake = Lake(spark, folder)
    written = []
    for stored in ("PARQUET", "ORC", "AVRO"):
        short = stored.lower()
        lake.all_types(f"all_{short}", stored)
        lake.flat(f"flat_{short}", stored)
        written += [f"all_{short}", f"flat_{short}"]
    lake.three_keys("keys_parquet", "PARQUET")
    lake.three_keys("keys_orc", "ORC")
    lake.mixed("mixed")
    written += ["keys_parquet", "keys_orc"]
    # Hive's reader in Spark gives the name of the null partition for null.
    spark.conf.set("spark.sql.hive.convertMetastoreParquet", "true")
    spark.conf.set("spark.sql.hive.convertMetastoreOrc", "true")
    tables = {}
    for name in [*written, "mixed"]:
        is_partitioned = not name.startswith("flat_")
        tables[name] = {"partitions": list(lake.partitions(name)) if is_partitioned else None}
        if name != "mixed":
            rows = lake.rows(name)
            with (
                pyarrow.OSFile(str(folder / f"{name}.arrow"), "wb") as file,
                pyarrow.ipc.new_file(file, rows.schema) as out,
            ):
                out.write_table(rows)
    (folder / "tables.json").write_text(json.dumps(tables))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
