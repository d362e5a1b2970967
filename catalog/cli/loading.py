"""`calve load`: loads files into a table, with the steps of the load's DAG in this process."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from catalog.cli.arguments import json_option, table_argument
from catalog.errors import NotFoundError, TableNotFoundError
from catalog.settings.contracts import CONTRACT_MODES
from catalog.settings.table_config import (
    BAD_FILES,
    INVALID_PARTITIONS,
    MODES,
    NULL_KEYS,
    SOURCE_FORMATS,
    TableConfig,
    configured_load,
)

if TYPE_CHECKING:
    from catalog.catalog import Catalog
    from catalog.statements.loads import LoadReport

_STEPS = {
    "validate_source": "checking the files",
    "write_partitions": "writing data files",
    "register": "publishing the partitions",
    "check_quality": "checking the quality",
}


@click.command()
@table_argument
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--mode", type=click.Choice(MODES), help="What to do with partitions that exist.")
@click.option("--source-format", type=click.Choice(SOURCE_FORMATS), help="The format of the files.")
@click.option("--option", "reader_options", multiple=True, metavar="NAME=VALUE", help="An option of the reader: sep=;")
@click.option("--key", "keys", multiple=True, metavar="'NAME TYPE'", help="A partition key of a new table: 'day date'.")
@click.option("--column", "columns", multiple=True, metavar="'NAME TYPE'", help="The type of a column of a new table.")
@click.option("--merge", metavar="JSON", help='The rule of --mode merge: {"keys": ["id"], "order": "updated_at"}.')
@click.option("--bad-files", type=click.Choice(BAD_FILES), help="Fail at files that cannot be loaded, or skip them.")
@click.option("--invalid-partitions", type=click.Choice(INVALID_PARTITIONS), help="Those that an index refuses.")
@click.option("--null-keys", type=click.Choice(NULL_KEYS), help="Rows with null as a partition key.")
@click.option("--contract-columns", type=click.Choice(CONTRACT_MODES), help="Columns that the table does not have.")
@click.option("--contract-types", type=click.Choice(CONTRACT_MODES), help="Values that do not fit their column's type.")
@click.option("--reload", is_flag=True, help="Load files again that were loaded before.")
@click.option("--dry-run", is_flag=True, help="Only check the files, and show the types of a new table.")
@json_option
def load(
    table: str,
    sources: tuple[str, ...],
    reader_options: tuple[str, ...],
    keys: tuple[str, ...],
    columns: tuple[str, ...],
    merge: str | None,
    reload: bool,
    dry_run: bool,
    as_json: bool,
    **fields: str | None,
) -> None:
    """Load the files of SOURCE into TABLE: files, folders or globs; by default the source in the table's entry.

    Does what the DAG add_partitions does, with the same journal: each file is loaded once, and the new partitions are
    checked by the rules of the table's entry in tables.yaml. Options override the entry, which need not exist for a
    table of the catalog. Repeat the command to continue a load that was killed.
    """
    # Imported late, because other commands do not need these modules.
    from catalog.catalog import Catalog
    from catalog.settings.places import allow_everything_by_default
    from catalog.statements.loads import TableLoads

    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    given |= {"table": table, **({"keys": list(keys)} if keys else {})}
    paths = [_path(source) for source in sources]
    if paths:
        given["source"] = paths[0]
    options: dict[str, Any] = {}
    if reader_options:
        options["source_options"] = dict(_pair(option) for option in reader_options)
    if columns:
        options["columns"] = dict(_column(column) for column in columns)
    if merge is not None:
        options["merge"] = _rule(merge)
    config = configured_load(given, options)
    # The commands print what these loggers repeat for the logs of tasks.
    logging.getLogger("spark_jobs").addHandler(logging.NullHandler())
    allow_everything_by_default()
    is_good = True
    with Catalog.open() as catalog:
        if not config.keys:
            _require_table(catalog, config.table)
        loads = TableLoads(catalog, requested_by="calve load", on_step=lambda step: _tell(step, as_json=as_json))
        try:
            for report in loads.load(config, paths or [_own_source(config)], reload=reload, dry_run=dry_run):
                for line in [json.dumps(asdict(report))] if as_json else _lines(report):
                    click.echo(line)
                is_good = is_good and not _has_failed(report)
        finally:
            loads.close()
    sys.exit(0 if is_good else 1)


def _require_table(catalog: Catalog, table: str) -> None:
    """Check that the table of a load without keys exists, before Spark starts.

    Raises:
        TableNotFoundError: It does not.
    """
    try:
        catalog.get_table(table)
    except NotFoundError:
        advice = "for a new table, name its partition keys with their types, such as --key 'day date'"
        raise TableNotFoundError.named(table, advice) from None


def _path(source: str) -> str:
    """Return a source with an absolute path, because the journal keeps it; URIs stay."""
    if not source.strip():
        # Such as an unset variable of the shell; as a path, it would be the working directory.
        raise click.UsageError("a SOURCE is empty; give a file, a folder or a glob")
    return source if "://" in source or source.startswith("file:") else os.path.abspath(os.path.expanduser(source))


def _own_source(config: TableConfig) -> str:
    if "{{" in config.source or "{%" in config.source:
        raise click.UsageError(
            f"the source of {config.table} in tables.yaml is {config.source}, which only Airflow renders; give a SOURCE"
        )
    return config.source


def _pair(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"--option is {option!r}; write a name and a value: --option 'sep=;'")
    return name.strip(), value


def _column(text: str) -> tuple[str, str]:
    name, _, column_type = text.strip().partition(" ")
    if not column_type.strip():
        raise click.UsageError(f"--column is {text!r}; write a name and a type: --column 'amount decimal(9,2)'")
    return name, column_type.strip()


def _rule(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--merge is no JSON: {error}") from None


def _tell(step: str, *, as_json: bool) -> None:
    # Where nobody waits, the report tells enough.
    if not as_json and sys.stderr.isatty():
        click.echo(f"{_STEPS.get(step, step)} …", err=True)


def _lines(report: LoadReport) -> Iterator[str]:
    if report.operation_id is None:
        yield f"{report.table} already has all files, or has set them aside; nothing to load"
        return
    if report.is_continued:
        yield f"continued load {report.operation_id}, whose process had ended"
    # Imported late, because other commands do not need it.
    from catalog.tables.evolution import Evolution

    checked, published = report.validated, report.registered
    if report.is_dry_run:
        yield (
            f"{checked['files']:,} file(s) would be loaded: {checked['partitions']:,} partition(s) with "
            f"{checked['rows']:,} row(s)"
        )
    else:
        yield f"{checked['files']:,} file(s) loaded, {published['row_count']:,} row(s): {_changes(published)}"
    if checked.get("inferred_columns"):
        yield f"inferred types: {', '.join(checked['inferred_columns'])}"
    if checked.get("missing_columns"):
        yield f"columns that files lack, null in their rows: {', '.join(checked['missing_columns'])}"
    if evolution := Evolution.from_json(checked.get("evolution")):
        yield f"the table gets {evolution}" if report.is_dry_run else f"the table got {evolution}"
    yield from _problems(report)
    for index, state in report.indexes.items():
        yield f"index {index}: {state}"
    if report.checked:
        yield from _quality(report.checked, report.quarantined)


def _changes(report: Mapping[str, Any]) -> str:
    counts = {
        "added": report["partitions"],
        "extended": report["partitions_extended"],
        "replaced": report["partitions_replaced"],
        "removed": report["partitions_removed"],
    }
    told = [f"{count:,} partition(s) {change}" for change, count in counts.items() if count]
    return ", ".join(told) or "no partition changed"


def _problems(report: LoadReport) -> Iterator[str]:
    aside = report.validated.get("set_aside", {"files": 0})
    if aside["files"]:
        yield f"{aside['files']:,} file(s) set aside until they change, with {aside['rows']:,} bad row(s):"
        yield from map(_problem, aside["problems"])
    discarded = report.validated.get("discarded", {"files": 0})
    if discarded["files"]:
        yield (
            f"{discarded['rows']:,} row(s) and {discarded['values']:,} value(s) of {discarded['files']:,} file(s) left "
            "out, as the contract says, for instance:"
        )
        yield from map(_problem, discarded["examples"])
    refusal: Mapping[str, Any] = report.registered or report.validated
    if refusal.get("refused"):
        where = f"; their rows are in {refusal['refused_folder']}" if "refused_folder" in refusal else ""
        yield f"{refusal['refused']:,} partition(s) do not fit an index{where}:"
        yield from (f"  {reason}" for reason in refusal["refused_reasons"])


def _problem(row: Mapping[str, Any]) -> str:
    # Whole files, and formats without lines, have none.
    place = row["file"] if row["line"] is None else f"{row['file']}, line {row['line']}"
    return f"  {place}: {row['problem']}"


def _quality(checked: Mapping[str, Any], quarantined: int) -> Sequence[str]:
    if not checked["failed"]:
        return [f"quality: {checked['passed']:,} partition(s) passed"] if checked["checked"] else []
    some = f"; {quarantined:,} of them are quarantined" if quarantined else ""
    hidden = ", and are quarantined" if quarantined == checked["failed"] else some
    page = f"; the report is {checked['docs_path']}" if checked["docs_path"] else ""
    return [
        f"quality: {checked['failed']:,} of {checked['checked']:,} partition(s) failed their checks{hidden}{page}",
        *(f"  {failure}" for failure in checked["failures"]),
    ]


def _has_failed(report: LoadReport) -> bool:
    return bool(report.checked.get("failed")) and report.rules.get("on_failure") == "fail"
