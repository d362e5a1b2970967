"""Parsing and serialising the DAGs of many tables, as Airflow's DAG processor does again and again."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.spark_process import in_new_process
from benchmarks.timing import seconds, settled_garbage
from standalone.environment import REPOSITORY

HEADINGS = {
    "listed_tables": "Seconds in which Airflow parses and serialises the DAGs of a list of tables ÷ the seconds that "
    "this may take: 5 and 10 for 1,000 tables",
}

TABLES = 1_000
_SECONDS_OF_A_THOUSAND = {"parse": 5, "serialise": 10}
_ENTRY = """\
  lake.table_{number}:
    source: /landing/table_{number}
    source_options: {{header: true}}
    keys: {{country: string, day: date}}
    columns: {{id: bigint, amount: "decimal(9,2)", name: string, ordered_at: timestamp}}
    indexes: {{by_day: [day, country], by_country: [country]}}
    schedule: "@daily"
    quality:
      on_failure: quarantine
      row_count: {{min: 1}}
      columns: {{amount: {{min: 0, max_null_ratio: 0.01}}}}
      agree: {{day: to_date(ordered_at)}}
"""

log = logging.getLogger(__name__)


def measure(ground: Ground, count: int = TABLES) -> Iterator[Figure]:
    """Yield the time of parsing the DAG file of loads, and of serialising its DAGs."""
    log.info("Parsing the DAGs of %s tables", f"{count:,}")
    path = ground.folder / "tables.yaml"
    path.write_text("tables:\n" + "".join(_ENTRY.format(number=number) for number in range(count)))
    runs = ground.effort.least_runs
    # A new process for each run, because the DAG processor forks one for each file.
    times = [in_new_process(ground.folder / "airflow.log", times_of, ground.folder, count) for _ in range(runs)]
    for case, allowed in _SECONDS_OF_A_THOUSAND.items():
        taken = median(run[case] for run in times)
        name = f"listed_tables.{case}.{count}.airflow"
        yield Figure(name=name, ours=taken, peer=allowed * count / 1_000, unit="s", runs=runs, goal=1.0)


def times_of(folder: Path, count: int) -> dict[str, float]:
    """Return the seconds of parsing and of serialising, of a list of tables in a folder."""
    os.environ |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "CALVE_TABLES": str(folder / "tables.yaml"),
    }
    # Imported late: Airflow reads its settings when it is imported.
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    bags: list[DagBag] = []
    path = str(REPOSITORY / "dags" / "add_partitions_dag.py")
    # Airflow's DAG processor also freezes its objects before it forks.
    with settled_garbage():
        parse = seconds(lambda: bags.append(DagBag(path, bundle_name="dags-folder")))
        (bag,) = bags
        serialise = seconds(lambda: [DagSerialization.to_dict(dag) for dag in bag.dags.values()])
    if len(bag.dags) != count + 1:
        raise BenchmarkError(f"{path} has {len(bag.dags):,} DAGs instead of {count + 1:,}: {bag.import_errors}")
    return {"parse": parse, "serialise": serialise}
