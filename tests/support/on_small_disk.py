"""Use a catalog and a warehouse on a disk that is full and then read-only; print the error of each attempt as JSON.

It mounts the disk, so it runs in a separate mount namespace: `unshare --map-root-user --mount`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner

from catalog import Catalog, NewPartition
from catalog.cli.main import main
from catalog.errors import CatalogError
from catalog.files.filesystem import Folder

OUTCOMES: dict[str, list[str]] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    """Record the class and message of an action's error."""
    try:
        action()
    except CatalogError as error:
        OUTCOMES[name] = [type(error).__name__, str(error)]
    else:
        OUTCOMES[name] = ["", ""]


def command(url: str, *arguments: str) -> None:
    """Record the exit code and the stderr of a command."""
    done = CliRunner(env={"CALVE_CATALOG_URL": url}).invoke(main, arguments)
    OUTCOMES[f"{arguments[0]} {OUTCOMES['state'][0]}"] = [str(done.exit_code), done.stderr.strip()]


def use(disk: Path, url: str, catalog: Catalog) -> None:
    """Fill the disk, write, free space, and write again."""
    catalog.create_database("demo")
    catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
    warehouse = Folder(str(disk / "warehouse"))
    with open(disk / "rest", "wb", buffering=0) as rest:
        try:
            while rest.write(b"x" * 4096):
                pass
        except OSError:
            OUTCOMES["state"] = ["full"]
    rows = pa.table({"v": pa.array(range(100_000))})
    attempt("write a file", lambda: warehouse.write_rows("a/x.parquet", rows))
    attempt("add", lambda: catalog.add_partitions("demo.t", [NewPartition([str(n)]) for n in range(5_000)]))
    attempt("create", lambda: catalog.create_database("other"))
    attempt("initialise", lambda: Catalog.initialise(f"sqlite:///{disk}/other.db"))
    command(url, "sql", "CREATE DATABASE other")
    attempt("read", lambda: list(catalog.get_partitions("demo.t")))
    (disk / "rest").unlink()
    attempt("add again", lambda: catalog.add_partitions("demo.t", [NewPartition([str(n)]) for n in range(50)]))
    OUTCOMES["partitions"] = [str(len(list(catalog.get_partitions("demo.t"))))]


def main_(disk: Path) -> None:
    """Run all attempts on a disk of 2 MB that is mounted at a folder."""
    url = f"sqlite:///{disk}/catalog.db"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    with Catalog.initialise(url, warehouse=str(disk / "warehouse")) as catalog:
        use(disk, url, catalog)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    OUTCOMES["state"] = ["read-only"]
    attempt("open", lambda: Catalog.open(url).list_tables())
    attempt("initialise read-only", lambda: Catalog.initialise(f"sqlite:///{disk}/other.db"))
    attempt("write a file read-only", lambda: Folder(str(disk)).write_bytes("x", b"x"))
    attempt("delete read-only", lambda: Folder(str(disk)).delete("warehouse"))
    command(url, "sql", "CREATE DATABASE other")
    command(url, "tables")
    print(json.dumps(OUTCOMES))


if __name__ == "__main__":
    main_(Path(sys.argv[1]))
