"""Fields that several trigger forms have."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import Param

TABLE_PATTERN = r"^[^./\x00-\x1f]+\.[^./\x00-\x1f]+$"
"""Names may have blanks; the task refuses the other ones that no table has."""

AS_LISTED = "as listed"
"""The choice that takes a field's value from the table's entry in the YAML list."""


def table_param(table: str | None = None, suggested: str | None = None) -> Param:
    """Return the form field for a table; if a table is given, the field allows only that table.

    Args:
        suggested: The table that an empty form has; None for an example.
    """
    if table is not None:
        return Param(table, type="string", const=table, title="Table", description="The table of this DAG.")
    return Param(
        suggested or "demo.flights",
        type="string",
        pattern=TABLE_PATTERN,
        title="Table",
        description="Written as database.table.",
    )


def as_listed(choices: Sequence[str], title: str, description: str) -> Param:
    """Return a field that overrides one of the table's entry in the YAML list, or leaves it."""
    return Param(AS_LISTED, type="string", enum=[AS_LISTED, *choices], title=title, description=description)


def patterns_param(description: str) -> Param:
    """Return the required field for tables and patterns of tables; `description` follows how they are written."""
    return Param(
        type="array",
        items={"type": "string", "pattern": TABLE_PATTERN},
        minItems=1,
        title="Tables",
        description="Written as database.table, one per line; * and ? are wildcards: sales.orders_*, or sales.* for "
        f"the whole database. {description}",
    )


def tables_param(description: str) -> Param:
    """Return the optional field for tables; `description` follows how they are written."""
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string", "pattern": TABLE_PATTERN},
        title="Tables",
        description=f"Written as database.table, one per line. {description}",
    )
