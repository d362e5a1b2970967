"""The demo of `make demo`: loads real flights through Airflow and Spark into an indexed, checked table."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from catalog import Catalog
from catalog.errors import NotFoundError
from catalog.files.filesystem import Folder
from catalog.files.locations import is_local
from catalog.indexes.items import count_items
from catalog.partitions.explaining import Explanation
from standalone import delays, migrating
from standalone.guide import DemoError, Guide
from standalone.landing import deliver_flights, remove_flights
from standalone.stack import Stack

TABLE = "demo.flights"
LOAD = f"add_partitions.{TABLE}"
WRONG_FILE = "wrong/flights-2013-foo.csv"
"""A raw file that the demo delivers beside its folder of flights."""
INDEX, INDEX_KEYS = "by_route", ["origin", "carrier", "month"]
EXPRESSIONS = (
    "origin = 'JFK' and carrier = 'B6'",
    "origin = 'JFK' and carrier = 'B6' and month between 6 and 8",
    "year = 2013 and month = 12",
    "origin = 'LGA' and month >= 11",
    "month = 7",
)
_TIMED_RUNS = 15


def run(stack: Stack) -> int:
    """Run the demo on a running stack; return the exit code.

    Raises:
        DemoError: A step did not have the expected result.
    """
    started = time.monotonic()
    with Catalog.open(stack.catalog_url, warehouse=stack.warehouse) as catalog:
        _Demo(stack, catalog).run()
    print(f"\nThe demo took {time.monotonic() - started:.0f} s. The data is in {stack.home}.")
    return 0


class _Demo:
    def __init__(self, stack: Stack, catalog: Catalog) -> None:
        self._guide = Guide(stack)
        self._title, self._say, self._run_dag = self._guide.title, self._guide.say, self._guide.run_dag
        self._home = stack.home
        self._start_command, self._stop_command = stack.start_command, stack.stop_command
        self._catalog = catalog
        self._raw = Folder(stack.landing)
        self._landing = self._raw.inside("flights")

    def run(self) -> None:
        """Run all sections."""
        self._remove_earlier_demos()
        self._load_eleven_months()
        self._build_index()
        report = self._add_december()
        self._refuse_foo()
        self._compare()
        self._show_quality(report)
        delays.run(self._guide, self._catalog)
        migrating.run(self._guide, self._catalog, TABLE)
        self._show_next()

    # --- sections -----------------------------------------------------------------------------------------------

    def _remove_earlier_demos(self) -> None:
        for table in (TABLE, delays.TABLE):
            for operation in self._catalog.operations.list(table):
                # Jobs of an interrupted demo, if they still run, cannot commit afterwards.
                self._catalog.operations.fail(operation.id, "CANCELLED", "cancelled by a new demo")
            try:
                location = self._catalog.get_table(table).location
            except NotFoundError:
                continue
            self._catalog.drop_table(table)
            Folder(location).delete("")
        # Users have raw files of their own beside those of the demo.
        remove_flights(self._landing.location)
        self._raw.delete_file(WRONG_FILE)

    def _load_eleven_months(self) -> None:
        self._title("1. Load raw files as partitions")
        names = deliver_flights(self._landing.location, range(1, 12))
        self._say(f"A source system has delivered {len(names)} CSV files: {names[0]} … {names[-1]}")
        self._run_dag(LOAD, {})
        self._say(f"{TABLE} has {self._count():,} partitions with {self._row_count():,} flights.")

    def _build_index(self) -> None:
        self._title(f"2. Build a partition index on ({', '.join(INDEX_KEYS)}) while the table is in use")
        self._run_dag("build_partition_index", {"table": TABLE, "index": INDEX, "keys": INDEX_KEYS})
        self._show_index()

    def _add_december(self) -> dict[str, Any]:
        self._title("3. Load December; the index gets its items in the same transaction")
        deliver_flights(self._landing.location, [12])
        run_id = self._run_dag(LOAD, {})
        self._show_index()
        explanation = self._explained("origin = 'JFK' and carrier = 'B6' and month = 12")
        self._say(
            f"JetBlue's December from JFK, through {explanation.index}: {explanation.partitions_found} partition found"
        )
        report: dict[str, Any] = self._guide.api.xcom(LOAD, run_id, "check_quality")
        return report

    def _refuse_foo(self) -> None:
        self._title("4. Refuse an invalid partition")
        before = self._count(), self._row_count(), self._files()
        source = self._land_foo()
        run_id = self._run_dag("add_partitions", {"table": TABLE, "source": source, "dry_run": False}, "failed")
        job = self._catalog.operations.get_job(f"add_partitions/{run_id}", "validate_source")
        self._say(f"{job.error_class}: {job.error_message}" if job else "no result")
        if (self._count(), self._row_count(), self._files()) != before:
            raise DemoError(f"{TABLE} changed although its new partitions were refused")
        self._say(
            f"Nothing changed: {before[0]:,} partitions, {before[1]:,} flights, {len(before[2]):,} files, as before."
        )

    def _land_foo(self) -> str:
        """Write a source file with two flights of the month `foo`; return its location."""
        with self._landing.open_text("flights-2013-12.csv") as december, self._raw.writing(WRONG_FILE) as wrong:
            rows = csv.DictReader(december)
            writer = csv.DictWriter(wrong, rows.fieldnames or ())
            writer.writeheader()
            for row, _ in zip(rows, range(2), strict=False):
                writer.writerow({**row, "month": "foo"})
        return f"{self._raw.location}/{WRONG_FILE}"

    def _compare(self) -> None:
        self._title("5. Find partitions with and without an index")
        total = self._count()
        for expression in EXPRESSIONS:
            explanation = self._explained(expression)
            with_index, without = self._milliseconds(expression)
            self._say(f"\n{expression}: {explanation.partitions_found:,} partitions")
            if explanation.index is None:
                self._say(f"  no index: {'; '.join(f'{name}: {why}' for name, why in explanation.not_used.items())}")
            else:
                more = f" and {len(explanation.ranges) - 1} more" if len(explanation.ranges) > 1 else ""
                self._say(f"  {explanation.index}, range {explanation.ranges[0]}{more}")
                self._say(f"  {explanation.partitions_fetched:7,} partitions loaded in {with_index:6.1f} ms with it")
            self._say(f"  {total:7,} partitions loaded in {without:6.1f} ms without an index")
        self._say("\nThe difference grows with the table: a search with an index loads only matching partitions.")

    def _explained(self, expression: str) -> Explanation:
        explanation = self._catalog.explain_partitions(TABLE, expression)
        assert isinstance(explanation, Explanation)
        return explanation

    def _milliseconds(self, expression: str) -> tuple[float, float]:
        """The time of a search with indexes and without, which take turns: other processes slow down both."""
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(_TIMED_RUNS):
            for use_indexes, taken in times.items():
                started = time.perf_counter()
                for _partition in self._catalog.get_partitions(TABLE, expression, use_indexes=use_indexes):
                    pass
                taken.append((time.perf_counter() - started) * 1000)
        return median(times[True]), median(times[False])

    def _show_quality(self, report: Mapping[str, Any]) -> None:
        self._title("6. Check the quality of the new partitions")
        self._say(
            f"Great Expectations: {report['passed']} of December's {report['checked']} partitions passed, "
            f"{report['failed']} failed."
        )
        for failure in report["failures"]:
            self._say(f"  {failure}")
        if page := report["docs_path"]:
            self._say(f"The report, which can be read offline: {Path(page).as_uri() if is_local(page) else page}")

    def _show_next(self) -> None:
        self._title("Next steps")
        environment = self._home / "calve.env"
        for command, meaning in (
            (self._start_command, "start Airflow's UI, and print its address and password"),
            (f". {environment}", "set up this shell for the commands below"),
            ("calve tables", "list the tables"),
            (
                f"spark-sql --properties-file {self._home}/spark-iceberg.conf",
                f"query calve.{TABLE}, an Iceberg table, in Spark",
            ),
            ("calve sql \"CALL iceberg.system.revert('demo', 'flights')\"", "revert it to a Hive table"),
            (f'calve partitions {TABLE} --where "month = 12" --explain', "explain how partitions are found"),
            (f"calve indexes {TABLE}", "list its indexes"),
            (f'calve sql "SHOW PARTITIONS {delays.TABLE}" --long', "list the ranges, with rows, bytes and files"),
            ("calve operations", "list the operations"),
            ("$EDITOR tables.yaml", "add a table, then trigger its add_partitions DAG"),
            (self._stop_command, "stop the stack"),
        ):
            self._say(f"  {command:66} {meaning}")

    # --- helpers ------------------------------------------------------------------------------------------------

    def _count(self) -> int:
        return sum(1 for _ in self._catalog.get_partitions(TABLE))

    def _row_count(self) -> int:
        return sum(partition.row_count or 0 for partition in self._catalog.get_partitions(TABLE))

    def _files(self) -> list[tuple[str, int]]:
        """Return path and size of all files of the table."""
        files = Folder(self._catalog.get_table(TABLE).location).all_files("")
        return sorted((file.path, file.size_bytes) for file in files)

    def _show_index(self) -> None:
        index = self._catalog.get_partition_index(TABLE, INDEX)
        with self._catalog.storage.read() as connection:
            items = count_items(connection, index.id)
        self._say(f"{index.name} is {index.state}: {items:,} items for {self._count():,} partitions")
