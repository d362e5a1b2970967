"""Processes that tests start, kill and stop: forked from one that has imported everything, which takes milliseconds."""

from __future__ import annotations

import multiprocessing

context = multiprocessing.get_context("forkserver")

# A second call would replace these: there is one server, and the modules of all tests have to be in it.
context.set_forkserver_preload(
    [
        "boto3",
        "catalog.catalog",
        "catalog.metastores.glue",
        "catalog.metastores.hms",
        "psycopg",
        "pyarrow.parquet",
        "pyiceberg.catalog.sql",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite",
        "tests.support.killed_builders",
        "tests.support.killed_changes",
        "tests.support.killed_imports",
        "tests.support.killed_loads",
        "tests.support.killed_migrations",
        "tests.support.killed_moves",
        "tests.support.stopped_loads",
        "tests.support.stopped_processes",
        "tests.support.workers",
    ]
)
