"""Arguments and options that many commands have."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from catalog.errors import CatalogError, NotFoundError

if TYPE_CHECKING:
    from catalog.catalog import Catalog
    from catalog.model import Table

_SUGGESTED = 3


def complete_tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the tables whose names begin with a text, for shells."""
    from catalog.catalog import Catalog

    try:
        with Catalog.open() as catalog:
            names = [table.full_name for table in catalog.list_tables()]
    except CatalogError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete.lower())]


def find_table(catalog: Catalog, name: str) -> Table:
    """Return a table of a command's argument.

    Raises:
        NotFoundError: It does not exist; the message has similar names that do.
    """
    try:
        return catalog.get_table(name)
    except NotFoundError as error:
        names = [table.full_name for table in catalog.list_tables()]
        bare = name.lower().rpartition(".")[2]
        found = [full for full in names if full.rpartition(".")[2] == bare] or get_close_matches(name.lower(), names)
        if not found:
            raise
        raise type(error)(f"{error}. Did you mean {' or '.join(found[:_SUGGESTED])}?") from None


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
