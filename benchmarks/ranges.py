"""A table of ranges of equal size, and the same changes with plain Spark."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from catalog import Catalog
from catalog.rebalancing.changes import AddPartitions, PartitionChange, SplitPartition
from catalog.schemes.ranges import RangeScheme

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (("id", "bigint"), ("customer", "int"), ("amount", "double"), ("note", "string"))


class RangeTable:
    """A table with a partition scheme in the catalog.

    Attributes:
        rows_a_range: The number of rows of each initial range.
        last_bound: The end of the last range.
    """

    def __init__(self, spark: SparkSession, catalog: Catalog, location: Path, count: int, rows_a_range: int) -> None:
        """Create a table with a number of ranges, and fill them; the default partition is empty."""
        self._spark, self._catalog = spark, catalog
        self.name = f"bench.ranges_{count}"
        self.rows_a_range = rows_a_range
        self.last_bound = count * rows_a_range
        self._operations = 0
        bounds = tuple((number, str(number * rows_a_range)) for number in range(1, count + 1))
        scheme = RangeScheme("id", "bigint", (), count + 1, bounds)
        self._table = catalog.create_table(self.name, columns=COLUMNS, scheme=scheme, location=str(location))
        self._load(0, self.last_bound)

    def _load(self, first: int, end: int) -> None:
        from pyspark.sql import functions as f

        from spark_jobs.writing.scheme_loading import load_rows

        rows = self._spark.range(first, end).select(
            "id",
            (f.xxhash64("id") % 1_000_000).cast("int").alias("customer"),
            f.rand(7).alias("amount"),
            f.hex(f.xxhash64("id", f.lit("note"))).alias("note"),
        )
        load_rows(self._spark, self._catalog, self._operation(), self.name, rows)

    def _operation(self) -> str:
        self._operations += 1
        return f"{self.name}-{self._operations}"

    def change(self, change: PartitionChange) -> None:
        """Change the partitions."""
        from spark_jobs.rebalance import rebalance

        rebalance(self._spark, self._catalog, self._operation(), self.name, change)

    def split(self, number: int) -> None:
        """Split an initial range in the middle, given by its number from 1."""
        [whole] = self.parts(number)
        self.change(SplitPartition(whole, (str(self.middle(number)), str(number * self.rows_a_range))))

    def fill_default(self) -> None:
        """Load the number of rows of a range beyond the last bound."""
        self._load(self.last_bound, self.last_bound + self.rows_a_range)

    def add_half(self) -> None:
        """Add a range for half of the rows in the default partition."""
        self.change(AddPartitions((str(self.last_bound + self.rows_a_range // 2),)))

    def add_rest(self) -> None:
        """Add a range for the other half, whose file need not be read."""
        self.last_bound += self.rows_a_range
        self.change(AddPartitions((str(self.last_bound),)))

    def middle(self, number: int) -> int:
        """Return the middle of an initial range, given by its number from 1."""
        return number * self.rows_a_range - self.rows_a_range // 2

    def parts(self, number: int) -> tuple[int, ...]:
        """Return the current partitions of an initial range, given by its number from 1."""
        first = (number - 1) * self.rows_a_range
        where = f"id >= {first} and id < {first + self.rows_a_range}"
        return self._catalog.scan_files(self.name, where).partition_ids

    def paths(self, *partition_ids: int) -> list[str]:
        """Return the data files of the given partitions, by default of all."""
        where = f"_partition_id in ({', '.join(map(str, partition_ids))})" if partition_ids else None
        return [f"{self._table.location}/{file.path}" for file in self._catalog.scan_files(self.name, where).files]

    def sides(self, cut: int) -> list[list[str]]:
        """Return the data files of the partitions below and above a cut between two partitions."""
        return [
            self.paths(*self._catalog.scan_files(self.name, f"id = {value}").partition_ids) for value in (cut - 1, cut)
        ]


class BareSpark:
    """The same changes without a catalog: Spark reads the same files and writes to separate folders."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Use a folder that only this object uses."""
        self._spark = spark
        self._folder = folder

    def clear(self) -> None:
        """Delete all written files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def write_in_one_pass(self, paths: Sequence[str], cut: int) -> None:
        """Read files once, and write a folder for each side of a cut."""
        from pyspark.sql import functions as f

        rows = self._read(paths).withColumn("part", f.when(f.col("id") < cut, 0).otherwise(1))
        rows.write.partitionBy("part").parquet(str(self._folder / "one_pass"))

    def write_in_two_passes(self, paths: Sequence[str], cut: int) -> None:
        """Read files twice, and write one side of a cut at a time."""
        for part, where in enumerate((f"id < {cut}", f"id >= {cut}")):
            self._read(paths).where(where).write.parquet(str(self._folder / "two_passes" / f"part={part}"))

    def write_together(self, paths: Sequence[str]) -> None:
        """Read files, and write all rows into one folder."""
        self._read(paths).write.parquet(str(self._folder / "together"))

    def write_ranges(self, paths: Sequence[str], rows_a_range: int) -> None:
        """Read files, and write a folder for each range."""
        from pyspark.sql import functions as f

        rows = self._read(paths).withColumn("part", f.floor(f.col("id") / rows_a_range))
        rows.write.partitionBy("part").parquet(str(self._folder / "ranges"))

    def write_without_spark(self, paths: Sequence[str], cut: int) -> None:
        """Read files in this process, and write a file for each side of a cut: the machine's limit."""
        import pyarrow.compute
        import pyarrow.parquet

        folder = self._folder / "without_spark"
        folder.mkdir(parents=True)
        rows = pyarrow.parquet.read_table(paths, partitioning=None)
        is_below = pyarrow.compute.less(rows["id"], cut)
        pyarrow.parquet.write_table(rows.filter(is_below), folder / "0.parquet")
        pyarrow.parquet.write_table(rows.filter(pyarrow.compute.invert(is_below)), folder / "1.parquet")

    def sides(self) -> list[tuple[int, ...]]:
        """Return the contents of the two folders that `write_in_one_pass` wrote."""
        return [self.contents([str(self._folder / "one_pass" / f"part={part}")]) for part in range(2)]

    def contents(self, paths: Sequence[str]) -> tuple[int, ...]:
        """Return the number of rows in files, and a checksum of their values."""
        rows = self._read(paths).selectExpr("count(*)", "sum(cast(xxhash64(*) as decimal(38, 0)))").first()
        assert rows is not None
        return tuple(rows)

    def _read(self, paths: Sequence[str]) -> DataFrame:
        schema = ", ".join(f"{name} {type_name}" for name, type_name in COLUMNS)
        return self._spark.read.schema(schema).parquet(*paths)
