"""The sample job for the class archive: it reads CSV, groups, and writes and reads partitioned Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def run(work_dir: Path) -> None:
    """Run typical operations of Calve's jobs on a few rows below `work_dir`."""
    source, target = work_dir / "source.csv", str(work_dir / "target")
    source.write_text("a,b,c,d\n" + "".join(f"{i},{i / 7},x{i % 3},2024-01-0{i % 9 + 1}\n" for i in range(1000)))
    session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = session.read.csv(str(source), header=True, schema="a int, b double, c string, d date")
    rows.repartition(2, "c").sortWithinPartitions("a").write.partitionBy("c").parquet(target)
    written = session.read.parquet(target).filter(F.col("a") > 1)
    written.groupBy("c").agg(F.count("*"), F.min("a"), F.max("d"), F.sum("b")).orderBy("c").collect()
    session.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
