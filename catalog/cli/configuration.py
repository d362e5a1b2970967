"""`calve validate-config`: names all that is wrong in the list of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.settings.environment import tables_path
from catalog.settings.table_config import TableConfig, read_table_list
from catalog.settings.table_differences import compare_with_tables, possible_misspellings


@click.command("validate-config")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each problem.")
def validate_config(path: Path | None, as_json: bool) -> None:
    """Check all entries of the list of tables: PATH, or the file that CALVE_TABLES names.

    Prints everything that is wrong, one line each, and fails if there is anything. Entries are also compared with the
    tables of the catalog, if it can be opened. Nothing is created or changed.
    """
    path = path or tables_path()
    listed = read_table_list(path)
    problems = [(table, problem) for table, wrong in listed.wrong.items() for problem in wrong.error.problems]
    for table, differences in _differences(listed.configs).items():
        problems += [(table, f"{path}, table {table}: {difference}") for difference in differences]
    for table, problem in problems:
        click.echo(json.dumps({"table": table, "problem": problem}) if as_json else problem)
    count = len(listed.configs) + len(listed.wrong)
    if wrong_tables := {table for table, _ in problems}:
        raise InvalidConfigurationError(f"{len(wrong_tables):,} of {count:,} tables are wrong; correct their entries")
    if not as_json:
        click.echo(f"{count:,} table{'' if count == 1 else 's'}, all valid")


def _differences(configs: Mapping[str, TableConfig]) -> Mapping[str, list[str]]:
    """Return the differences of entries from the catalog's tables; none, and a note, if it cannot be opened."""
    # Imported late: the list is also checked where there is no catalog.
    from catalog.catalog import Catalog

    try:
        with Catalog.open() as catalog:
            tables = catalog.list_tables()
            differences = compare_with_tables(configs, tables, catalog.get_partition_indexes)
    except CatalogError as error:
        click.echo(f"The entries were not compared with a catalog: {error}", err=True)
        return {}
    for name in sorted(configs.keys() - {table.full_name for table in tables}):
        # No problem: the first load infers the types of columns that are not listed.
        for note in possible_misspellings(configs[name]):
            click.echo(f"Note on {name}: {note}", err=True)
    return differences
