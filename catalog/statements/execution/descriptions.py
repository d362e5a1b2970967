"""Execution of DESCRIBE and SHOW CREATE TABLE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from catalog.catalog import Catalog
from catalog.model import Buckets, Column, IndexState, Table, TableKind
from catalog.partitions.counting import count_visible
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import Cell, StatementResult
from catalog.tables.own_properties import without_records
from catalog.types.literals import quoted, quoted_name

_KINDS = {
    TableKind.MANAGED: "MANAGED_TABLE",
    TableKind.EXTERNAL: "EXTERNAL_TABLE",
    TableKind.VIEW: "VIRTUAL_VIEW",
}
_COLUMNS = ("col_name", "data_type", "comment")


# --- DESCRIBE ---------------------------------------------------------------------------------------------------------


def describe_table(context: Context, statement: m.DescribeTable) -> StatementResult:
    """Run DESCRIBE; as in Hive and Spark, list all columns and then repeat the partition columns."""
    table = described(context.catalog, context.name(statement.table))
    columns, keys = described_columns(table)
    rows: list[list[Cell]] = [_described(column) for column in (*columns, *keys)]
    if keys:
        rows += [["# Partition Information", None, None], ["# col_name", "data_type", "comment"]]
        rows += [_described(key) for key in keys]
    if statement.is_formatted:
        rows += [["", None, None], ["# Detailed Table Information", None, None]]
        rows += [[name, value, None] for name, value in facts(context.catalog, table) if value]
    return StatementResult(_COLUMNS, rows)


def show_columns(context: Context, statement: m.ShowColumns) -> StatementResult:
    """Run SHOW COLUMNS: the names of the columns, and then those of the partition keys."""
    columns, keys = described_columns(described(context.catalog, context.name(statement.table)))
    return StatementResult(_COLUMNS[:1], [[column.name] for column in (*columns, *keys)])


def _described(column: Column) -> list[Cell]:
    return [column.name, column.type, column.comment]


def described(catalog: Catalog, name: str) -> Table:
    """Return a table as it is now: the columns of a migrated one are those of its metadata, as far as they can be read.

    Raises:
        TableNotFoundError, DatabaseNotFoundError: It does not exist.
    """
    table = catalog.get_table(name)
    if not table.is_iceberg or table.is_only_iceberg:
        return table
    from catalog.iceberg.live_columns import as_engines_see_it

    return as_engines_see_it(table)


def described_columns(table: Table) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Return a table's columns, and its partition keys or the partition column of its scheme."""
    if table.scheme is None:
        return table.columns, table.partition_keys
    name = table.scheme.column
    return (
        tuple(column for column in table.columns if column.name != name),
        tuple(column for column in table.columns if column.name == name),
    )


def facts(catalog: Catalog, table: Table) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of what DESCRIBE FORMATTED tells about a table; those without a value are left out."""
    yield "Database", table.database
    yield "Table", table.name
    yield "Comment", table.description
    yield "Type", _KINDS[table.kind]
    if table.is_view:
        yield "View Text", table.view_text
    else:
        yield "Provider", "iceberg" if table.is_iceberg or table.is_stored_as_iceberg else None
        yield "Format", table.format.upper()
        yield "Location", table.location
        yield "Metadata Location", table.published_location if table.is_stored_as_iceberg else table.metadata_location
        if not table.is_iceberg:
            yield from _partition_facts(catalog, table)
    if table.buckets is not None:
        yield "Bucket Columns", ", ".join(table.buckets.columns)
        yield "Num Buckets", str(table.buckets.count)
    yield "Table Properties", _pairs(table.properties) if table.properties else None


def _partition_facts(catalog: Catalog, table: Table) -> Iterator[tuple[str, str | None]]:
    if table.scheme is not None:
        properties = table.scheme.properties()
        yield "Partition Type", properties["PARTITION_TYPE"]
        for name, value in properties.items():
            if name not in ("PARTITION_TYPE", "SORT_COLUMNS"):
                yield name.replace("_", " ").title(), value
        yield "Sort Columns", ", ".join(table.scheme.sort_columns)
        partitions = catalog.scheme_partitions(table.full_name)
        yield "Partitions", str(len(partitions))
        yield "Rows", str(sum(partition.row_count for partition in partitions))
        yield "Size in Bytes", str(sum(partition.size_bytes for partition in partitions))
        yield "Files", str(sum(partition.file_count for partition in partitions))
    elif table.partition_keys:
        total = count_visible(catalog.storage, table)
        yield "Partition Type", "VALUE"
        yield "Partitions", str(total.partitions)
        yield "Rows", _count(total.rows)
        yield "Size in Bytes", _count(total.size_bytes)
        yield "Files", _count(total.files)
        yield "Partition Indexes", ", ".join(_index_texts(catalog, table))
    elif table.is_stored_as_iceberg:
        files = catalog.scan_partition_files(table.full_name).files
        yield "Rows", str(sum(file.row_count for file in files))
        yield "Size in Bytes", str(sum(file.size_bytes for file in files))
        yield "Files", str(len(files))


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _index_texts(catalog: Catalog, table: Table) -> list[str]:
    indexes = catalog.get_partition_indexes(table.full_name)
    return [f"{index.name} ({', '.join(index.keys)}) {index.state}" for index in indexes]


def _pairs(properties: Mapping[str, str]) -> str:
    return "[" + ", ".join(f"{name}={value}" for name, value in sorted(properties.items())) + "]"


# --- SHOW CREATE TABLE ------------------------------------------------------------------------------------------------


def show_create_table(context: Context, statement: m.ShowCreateTable) -> StatementResult:
    """Run SHOW CREATE TABLE, which returns a statement that creates an equal table, except for partition ids.

    For an Iceberg table, it is Hive's statement with the location of its metadata, which Calve cannot run.
    """
    table = described(context.catalog, context.name(statement.table))
    text = _create_view(table) if table.is_view else _create_table(context, table)
    return StatementResult(("createtab_stmt",), [[text]])


def _create_view(table: Table) -> str:
    columns = ", ".join(f"{quoted_name(column.name)}{_comment(column.comment)}" for column in table.columns)
    lines = [f"CREATE VIEW {_full_name(table)}{f' ({columns})' if columns else ''}"]
    lines += [*_description(table), *_properties(without_records(table.properties)), f"AS {table.view_text}"]
    return "\n".join(lines)


def _create_table(context: Context, table: Table) -> str:
    columns, keys = described_columns(table)
    external = "EXTERNAL " if table.kind is TableKind.EXTERNAL else ""
    lines = [f"CREATE {external}TABLE {_full_name(table)}{_column_list(columns)}"]
    lines += _description(table)
    if keys:
        lines.append("PARTITIONED BY (" + ", ".join(map(_column, keys)) + ")")
    lines += _indexes(context, table)
    if not table.is_iceberg:
        lines += _buckets(table.buckets)
    if table.is_iceberg:
        lines.append("STORED BY ICEBERG")
    elif table.is_stored_as_iceberg:
        lines.append("STORED AS ICEBERG")
    elif table.scheme is None:
        lines.append(f"STORED AS {table.format.upper()}")
    else:
        lines.append("STORED BY 'carbondata'")
    if external or table.location != _default_location(context, table):
        lines.append(f"LOCATION {quoted(table.location)}")
    metadata = {"metadata_location": table.metadata_location} if table.metadata_location else {}
    lines += _properties({**_scheme_properties(table), **without_records(table.properties), **metadata})
    return "\n".join(lines)


def _full_name(table: Table) -> str:
    return f"{quoted_name(table.database)}.{quoted_name(table.name)}"


def _column_list(columns: Sequence[Column]) -> str:
    return " (\n  " + ",\n  ".join(map(_column, columns)) + ")" if columns else ""


def _column(column: Column) -> str:
    return f"{quoted_name(column.name)} {column.type}{_comment(column.comment)}"


def _comment(text: str | None) -> str:
    return "" if text is None else f" COMMENT {quoted(text)}"


def _description(table: Table) -> list[str]:
    return [] if table.description is None else [f"COMMENT {quoted(table.description)}"]


def _indexes(context: Context, table: Table) -> list[str]:
    if not table.partition_keys or table.is_iceberg:
        return []
    states = (IndexState.CREATING, IndexState.ACTIVE)
    indexes = [index for index in context.catalog.get_partition_indexes(table.full_name) if index.state in states]
    definitions = [f"{quoted_name(index.name)} ({', '.join(map(quoted_name, index.keys))})" for index in indexes]
    return [f"PARTITION INDEX {', '.join(definitions)}"] if definitions else []


def _buckets(buckets: Buckets | None) -> list[str]:
    if buckets is None:
        return []
    return [f"CLUSTERED BY ({', '.join(map(quoted_name, buckets.columns))}) INTO {buckets.count} BUCKETS"]


def _default_location(context: Context, table: Table) -> str:
    return f"{context.catalog.get_database(table.database).location}/{table.name}"


def _scheme_properties(table: Table) -> dict[str, str]:
    if table.scheme is None:
        return {}
    sorting = {"SORT_COLUMNS": ", ".join(table.scheme.sort_columns)} if table.scheme.sort_columns else {}
    return {**table.scheme.properties(), **sorting}


def _properties(properties: Mapping[str, str]) -> list[str]:
    if not properties:
        return []
    return ["TBLPROPERTIES (" + ", ".join(f"{quoted(n)}={quoted(v)}" for n, v in properties.items()) + ")"]
