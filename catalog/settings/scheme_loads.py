"""Settings of loads that tables with a partition scheme do not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from catalog.model import LoadMode, Table
from catalog.settings.quality_rules import OnFailure

MODES = (LoadMode.APPEND, LoadMode.REPLACE, LoadMode.MERGE)
"""The modes of loads into tables with a partition scheme."""


def unsuitable_settings(table: Table, request: Mapping[str, Any], rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the settings of a load ask for that a partition scheme does not have, as sentences without a dot.

    Args:
        table: A table with a partition scheme.
        request: The settings of the jobs that read the files, as `TableConfig.job_request` returns them.
        rules: The quality rules, as in the list of tables.
    """
    scheme = table.scheme
    assert scheme is not None
    if request.get("mode") == LoadMode.NEW:
        yield (
            f"mode is new, but the partitions of {scheme.type} exist before their rows; the modes of such a table are "
            f"{', '.join(MODES)}"
        )
    if keys := request.get("keys"):
        yield (
            f"keys has {', '.join(name for name, _ in keys)}, but {scheme.type} places rows by the column "
            f"{scheme.column}, which the files have to have; leave out keys"
        )
    if indexes := request.get("indexes"):
        yield f"indexes has {', '.join(indexes)}, but a partition scheme needs no partition index; leave out indexes"
    if rules.get("on_failure") == OnFailure.QUARANTINE:
        yield (
            "quality.on_failure is quarantine, which hides new partitions, but rows are added to partitions that "
            "readers see; write warn or fail"
        )
    if rules.get("agree") or (rules.get("row_count") or {}).get("per"):
        yield (
            "quality has agree or row_count.per, which are about partition keys, and the table has none; leave them "
            "out, or write a rule for a column"
        )
    if rules.get("learn"):
        yield (
            "quality.learn compares new partitions with earlier ones, but the partitions of "
            f"{scheme.type} exist before their rows; leave it out"
        )
