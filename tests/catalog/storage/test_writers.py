"""Each SQL table is written only by its own package of the catalog and by those listed here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CATALOG = Path(__file__).parents[3] / "catalog"
WRITES = {"insert", "update", "delete", "insert_rows"}

WRITERS = {
    "ApprovalRow": {"operations"},
    "BackfillRangeRow": {"indexes", "tables"},
    "ColumnStatisticsRow": {"partitions", "tables"},
    "DataFileRow": {"datafiles"},
    "DatabaseRow": {"tables"},
    "DescriptorRow": {"partitions"},
    "FailedSampleRow": {"loading"},
    "FormerFileRow": {"datafiles"},
    "FunctionRow": {"tables"},
    "GivenAnswerRow": {"engine_tables"},
    "IcebergFolderRow": {"iceberg"},
    "IcebergNamespaceRow": {"engine_tables", "tables"},
    "IcebergPlacesRow": {"iceberg"},
    "IcebergTableRow": {"iceberg"},
    "IndexItemRow": {"partitions"},
    "JobRow": {"operations"},
    "MetastoreLockRow": {"operations"},
    "OperationRow": {"maintenance", "operations", "partitions"},
    "PartitionChangeRow": {"maintenance", "operations", "partitions"},
    "PartitionCheckRow": {"loading", "partitions"},
    "PartitionIndexRow": {"indexes", "tables"},
    "PartitionRow": {"importing", "loading", "partitions", "tables"},
    "PartitionVersionRow": {"partitions"},
    "ProposalRow": {"advice"},
    "PurgedFolderRow": {"tables"},
    "QualityCheckRow": {"loading"},
    "RevisionRow": {"datafiles"},
    "SetAsideFileRow": {"loading"},
    "SharedLocationRow": {"iceberg"},
    "SourceFileRow": {"loading"},
    "SparkApplicationRow": {"operations"},
    "StagedPartitionRow": {"loading", "maintenance", "partitions"},
    "TableRow": {"datafiles", "migration", "storage", "tables"},
    "TableVersionRow": {"tables"},
}
"""SQL table → the packages with statements that write it. Adding a package needs a reason."""


def test_sql_tables_are_written_by_their_rooms_only() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in CATALOG.rglob("*.py"):
        room = path.relative_to(CATALOG).parts[0]
        if "versions" not in path.parts:
            for table in _written_tables(ast.parse(path.read_text())):
                found[table].add(room)
    assert found == WRITERS


def _written_tables(module: ast.Module) -> Iterator[str]:
    """Yield the classes of `catalog.storage.schema` that statements of a module write."""
    names = _aliases(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _called(node.func) in WRITES:
            for argument in node.args:
                if isinstance(argument, ast.Name) and (table := names.get(argument.id, argument.id)).endswith("Row"):
                    yield table
                elif isinstance(argument, ast.Attribute) and isinstance(argument.value, ast.Name):
                    table = names.get(argument.value.id, argument.value.id)
                    if table.endswith("Row"):
                        yield table


def _called(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _aliases(module: ast.Module) -> dict[str, str]:
    """Return the short names that functions give to classes of rows, as in `row, other = PartitionRow, JobRow`."""
    names: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            targets, values = node.targets[0], node.value
            if isinstance(targets, ast.Name):
                pairs = [(targets, values)]
            elif isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple):
                pairs = list(zip(targets.elts, values.elts, strict=False))
            else:
                continue
            names |= {
                name.id: value.id
                for name, value in pairs
                if isinstance(name, ast.Name) and isinstance(value, ast.Name) and value.id.endswith("Row")
            }
    return names
