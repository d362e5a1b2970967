"""A process that appends rows to two tables through Iceberg's REST protocol, in small commits, until all are in."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException

COMMITS, MOST_ATTEMPTS = 3, 200


def main(address: str, number: int) -> None:
    """Append rows, and print the number of commits that lost against others and were made again."""
    rest = RestCatalog("calve", uri=address)
    repeated = 0
    for name in ("demo.notes", "demo.visits"):
        for commit in range(COMMITS):
            rows = pa.table({"id": pa.array([number * 100 + commit], pa.int64()), "note": ["x"]})
            for _ in range(MOST_ATTEMPTS):
                try:
                    rest.load_table(name).append(rows)
                    break
                except CommitFailedException:
                    repeated += 1
            else:
                raise RuntimeError(f"the row {number * 100 + commit} could not be appended to {name}")
    print(json.dumps(repeated))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
