"""The trigger forms of partition indexes."""

from __future__ import annotations

from airflow.sdk import Param

from calve_airflow.forms.fields import table_param, tables_param


def index_params() -> dict[str, Param]:
    """Return the form of a partition index."""
    return {
        "table": table_param(),
        "index": Param(
            "by_route",
            type="string",
            minLength=1,
            title="Name of the index",
            description="A table has at most 3 indexes. If the index is being built, the run continues its build.",
        ),
        "keys": Param(
            ["origin", "carrier", "month"],
            type="array",
            items={"type": "string"},
            minItems=1,
            title="Keys",
            description="Partition keys in index order: first the keys that filters compare with =.",
        ),
    }


def backfill_params() -> dict[str, Param]:
    """Return the form of a backfill of partition indexes."""
    return {
        "tables": tables_param("Empty: all tables that have the keys of an index; the others are skipped."),
        "indexes": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": r"^[^:]+:.+$"},
            title="Indexes",
            description="Name and keys, one index per line, for example: by_day: year, day. They are built for each "
            "table above. Empty: the indexes in the table's entry in the YAML list.",
        ),
    }


def verify_params() -> dict[str, Param]:
    """Return the form of a verification of partition indexes."""
    return {
        "tables": tables_param("Empty: all tables of the catalog. Their ACTIVE indexes are verified."),
        "repair": Param(
            False,
            type="boolean",
            title="Repair",
            description="Repair missing, wrong and superfluous items. Otherwise the run reports a difference and "
            "fails.",
        ),
    }
