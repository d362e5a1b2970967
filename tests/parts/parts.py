"""The parts of `make test-all`: each takes at most half an hour on two processors.

The first one is what `make test` runs; the others run what it leaves out, and what they run with more examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Some of the tests.

    Attributes:
        title: What the tests are about.
        paths: Folders and files; a file of a folder may be named by another part, too, which then has it.
        keywords: An expression by which pytest selects tests of these files (its option `-k`).
        markers: The same for its option `-m`.
        processes: How many run at once; 0 for the process of pytest itself, which shows what tests print.
        effort: What tests ask as `CALVE_TEST_EFFORT`: all cases and examples, or a sample of them.
    """

    title: str
    paths: Sequence[str]
    keywords: str = ""
    markers: str = "(long or larger) and not trino and not compose"
    processes: int = 4
    effort: str = "all"


def _split(title: str, paths: Sequence[str], *keywords: str) -> list[Part]:
    """Return a part for each expression of keywords, and one for the tests that none of them selects."""
    rest = f"not ({' or '.join(keywords)})"
    return [Part(f"{title}: {selected}", paths, selected) for selected in (*keywords, rest)]


_CATALOG = "tests/catalog/"
_SPARK = "tests/spark_jobs/"
_CHANGING = f"{_SPARK}changing"
_STACK = "tests/end_to_end/"


def _below(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}{name}" for name in names)


SAMPLE = Part("what `make test` runs", ("tests",), markers="not long and not trino and not compose", effort="sample")

_IN_ORDER = [
    SAMPLE,
    Part(
        "catalog, from advice to loading",
        _below(
            _CATALOG,
            *("advice", "cli", "datafiles", "doors", "errors", "expressions", "files", "iceberg", "importing"),
            *("indexes", "loading"),
        ),
    ),
    Part(
        "catalog, from maintenance to types, without partitions",
        _below(
            _CATALOG,
            *("maintenance", "metastores", "migration", "model", "operations", "rebalancing", "schemes"),
            *("settings", "statements", "storage", "tables", "types"),
        ),
    ),
    Part("catalog: partitions", (f"{_CATALOG}partitions",)),
    Part(
        "Airflow's tasks and pages, set-up, documentation, benchmarks",
        ("tests/plugins", "tests/dags", "tests/standalone", "tests/docs", "tests/benchmarks", "tests/parts"),
    ),
    Part("runs of DAGs in the process", ("tests/dags/runs",)),
    Part("Spark: sources", ("tests/spark_jobs/reading",)),
    Part("Spark: changed rows", (_CHANGING,)),
    Part("Spark: changed rows, beside commits of engines", (f"{_CHANGING}/test_commits_between.py",)),
    Part("Spark: changed rows, beside commits at any time", (f"{_CHANGING}/test_commits_at_any_time.py",)),
    Part("Spark: changed rows, killed", (f"{_CHANGING}/test_killed_changes.py",)),
    Part("Spark: queries, rows, sessions", _below(_SPARK, "checking", "queries", "rows", "sessions", "writing")),
    Part("Spark: filters of random tables", (f"{_SPARK}test_filters_of_random_tables.py",)),
    Part("Spark: random sequences of column changes", (f"{_SPARK}test_column_sequences.py",)),
    Part("Spark: random sequences of statements and commits", (f"{_SPARK}test_mixed_sequences.py",)),
    Part("Spark: random sequences of an engine's commits", (f"{_SPARK}test_open_tables.py",)),
    Part(
        "Spark: engines, killed operations",
        _below(
            _SPARK,
            *("test_engine_commits.py", "test_engines_and_partitions.py", "test_engines_beside_loads.py"),
            *("test_killed_migrations.py", "test_killed_rebalances.py", "test_killed_upkeep.py"),
        ),
    ),
    Part("Spark: jobs", ("tests/spark_jobs",)),
    *_split("operations killed by kill -9", ("tests/killed",), "files and hive", "files and not hive", "s3 and hive"),
    *_split("a stack on S3", ("tests/on_s3",), "test_outages", "cluster and not test_outages"),
    Part(
        "the walk, the shop and the demo", _below(_STACK, "test_walk.py", "test_shop.py", "test_demo.py"), processes=0
    ),
    *_split("a stack on local files", ("tests/end_to_end",), "postgresql"),
    Part("clusters", ("tests/on_cluster", "tests/on_yarn"), processes=0),
    Part("containers", ("tests/compose",), markers="compose", processes=0),
]

PARTS = dict(enumerate(_IN_ORDER, 1))
"""Number → part."""
