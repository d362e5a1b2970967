"""`calve advise`: proposals of partition schemes."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TextIO

import click

from catalog.advice.report import HEADERS, advise_table
from catalog.catalog import Catalog
from catalog.cli.output import print_table
from catalog.maintenance.compaction import is_compacted
from catalog.statements.engine import start_engine
from catalog.statements.splitting import split


@click.command()
@click.argument("table")
@click.option("--queries", "file", type=click.File(encoding="utf-8"), help="SELECTs that read it; each ends with `;`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def advise(table: str, file: TextIO | None, as_json: bool) -> None:
    """Recommend a partition scheme for TABLE: measures its columns, and what the queries would read, with Spark.

    Also recommends a compaction if partitions have many small files, and for a table with a partition scheme, which
    partitions to split, merge or add.
    """
    queries = [] if file is None else [statement.text for statement in split(file.read())]
    with Catalog.open() as catalog:
        definition = catalog.get_table(table)
        rebalancing = None if definition.scheme is None else catalog.rebalancing.advise(definition.full_name)
        compaction = catalog.maintenance.plan_compaction(table).proposals() if is_compacted(definition) else []
        with closing(start_engine(catalog)) as engine:
            report = advise_table(engine, definition, queries, definition.database, rebalancing)
    report = replace(report, compaction=compaction)
    if as_json:
        click.echo(json.dumps(report.as_json()))
        return
    print_table(HEADERS, report.rows())
    for line in report.lines():
        click.echo(line)
