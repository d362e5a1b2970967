"""A program that writes files with Hive: for each `….<format>.arrow` in a folder, the file without that suffix.

A test runs it in a separate process, because Hive support applies to the whole JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow

from tests.support.hive_lake import hive_session

COLUMNS = b"columns"
"""The key of the schema metadata with the columns in the syntax of CREATE TABLE."""
ENDING = ".arrow"


def main(folder: Path) -> None:
    spark = hive_session(folder)
    for number, source in enumerate(sorted(folder.rglob(f"*{ENDING}"))):
        with pyarrow.OSFile(str(source)) as file, pyarrow.ipc.open_file(file) as stored:
            rows = stored.read_all()
        path, location = source.with_suffix(""), folder / "hive" / str(number)
        columns, stored_as = rows.schema.metadata[COLUMNS].decode(), path.suffix.removeprefix(".")
        spark.sql(f"CREATE EXTERNAL TABLE t{number} ({columns}) STORED AS {stored_as} LOCATION '{location}'")
        spark.createDataFrame(rows.replace_schema_metadata()).coalesce(1).createOrReplaceTempView("given")
        spark.sql(f"INSERT INTO t{number} SELECT * FROM given")
        (written,) = location.glob("part-*")
        written.rename(path)
        source.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
