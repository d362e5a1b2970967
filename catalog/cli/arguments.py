"""Arguments and options that many commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from catalog.errors import CatalogError

if TYPE_CHECKING:
    from catalog.catalog import Catalog


def complete_tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the tables whose names begin with a text, for shells."""
    from catalog.catalog import Catalog

    try:
        with Catalog.open() as catalog:
            names = [table.full_name for table in catalog.list_tables()]
    except CatalogError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete.lower())]


def require_table(catalog: Catalog, name: str | None) -> None:
    """Check that a table exists, of which a command has found nothing: something may be known of a dropped one.

    Args:
        name: None for no check.

    Raises:
        NotFoundError: It does not exist.
    """
    if name is not None:
        catalog.get_table(name)


def _not_blank(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        # A script whose variable is not set, for instance.
        raise click.BadParameter("the filter is empty; leave the option out if no filter is meant")
    return value


table_argument = click.argument("table", shell_complete=complete_tables)

where_option = click.option(
    "--where",
    "expression",
    callback=_not_blank,
    help="Filter on the partition keys, for instance \"origin = 'JFK' and month > 6\".",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
limit_option = click.option("--limit", type=click.IntRange(1), help="List this many at most.")
count_option = click.option("--count", "only_count", is_flag=True, help="Only print how many there are.")
