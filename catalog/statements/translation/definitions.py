"""Translation of statements on databases, tables and views."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.visitors import v_args

from catalog.errors import UnsupportedStatementError
from catalog.model import ICEBERG, Buckets, Column, FileFormat, IndexDefinition
from catalog.statements import model as m
from catalog.statements.terms import TableReference
from catalog.statements.translation.words import Clause, Placed, Words, made, together

_ICEBERG_HANDLER = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"

# Hive's own classes, as its SHOW CREATE TABLE writes them → the format. Source: Hive's `StorageFormatDescriptor`s.
_CLASSES = {
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": "PARQUET",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe": "PARQUET",
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": "ORC",
    "org.apache.hadoop.hive.ql.io.orc.OrcSerde": "ORC",
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat": "AVRO",
    "org.apache.hadoop.hive.serde2.avro.AvroSerDe": "AVRO",
    "org.apache.hadoop.hive.ql.io.RCFileInputFormat": "RCFILE",
    "org.apache.hadoop.hive.serde2.columnar.LazyBinaryColumnarSerDe": "RCFILE",
    "org.apache.hadoop.mapred.SequenceFileInputFormat": "SEQUENCEFILE",
    "org.apache.hadoop.mapred.TextInputFormat": "TEXTFILE",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe": "TEXTFILE",
    "org.apache.hive.hcatalog.data.JsonSerDe": "JSONFILE",
}


@v_args(inline=True)
class Definitions(Words):
    """Statements on databases, tables and views."""

    def create_database(self, exists: bool | None, name: Placed[str], *clauses: Clause) -> m.Statement:
        return made(m.CreateDatabase, name=name, if_not_exists=exists, **self.clauses(clauses))

    def drop_database(self, exists: bool | None, name: Placed[str], cascade: Token | None) -> m.Statement:
        return made(m.DropDatabase, name=name, if_exists=exists, cascade=cascade is not None)

    def use_database(self, name: Placed[str]) -> m.Statement:
        return made(m.UseDatabase, name=name)

    def show_databases(self, pattern: Placed[str] | None) -> m.Statement:
        return made(m.ShowDatabases, pattern=pattern)

    def describe_database(self, name: Placed[str]) -> m.Statement:
        return made(m.DescribeDatabase, name=name)

    def show_tables(self, database: Placed[str] | None, pattern: Placed[str] | None) -> m.Statement:
        return made(m.ShowTables, database=database, pattern=pattern)

    def show_columns(self, table: Placed[TableReference], database: Placed[str] | None) -> m.Statement:
        if database is not None:
            if table.value.database not in (None, database.value):
                raise self.wrong(
                    f"the table is in {table.value.database}, not in {database.value}; name one database",
                    database.position,
                )
            table = Placed(TableReference(database.value, table.value.name), table.position)
        return made(m.ShowColumns, table=table)

    def describe_table(self, detail: Token | None, table: Placed[TableReference]) -> m.Statement:
        return made(m.DescribeTable, table=table, is_formatted=detail is not None)

    def show_create_table(self, table: Placed[TableReference]) -> m.Statement:
        return made(m.ShowCreateTable, table=table)

    def create_table(
        self,
        external: Token | None,
        exists: bool | None,
        table: Placed[TableReference],
        columns: Placed[tuple[Column, ...]] | None,
        *clauses: Clause,
    ) -> m.Statement:
        fields = self.clauses(clauses)
        query = fields.get("query")
        if query is not None:
            self._check_created_as(external, columns, query)
        elif (names := fields.pop("key_names", None)) is not None:
            columns, fields["partition_keys"] = self._divided(columns, names)
        row_format = fields.pop("row_format", None)
        if row_format is not None and fields.setdefault("format", row_format).value != row_format.value:
            raise UnsupportedStatementError(
                f"the row format {row_format.value} does not fit the file format {fields['format'].value}; remove ROW "
                "FORMAT",
                self.original,
                fields["format"].position,
            )
        return made(
            m.CreateTable if query is None else m.CreateTableAs,
            table=table,
            columns=columns,
            if_not_exists=exists,
            is_external=external is not None,
            **fields,
        )

    def partitioned_by(self, columns: Placed[tuple[Column, ...]]) -> Clause:
        return Clause("PARTITIONED BY", columns.position, {"partition_keys": columns})

    def partitioned_by_names(self, names: Placed[tuple[str, ...]]) -> Clause:
        return Clause("PARTITIONED BY", names.position, {"key_names": names})

    def _divided(
        self, columns: Placed[tuple[Column, ...]] | None, names: Placed[tuple[str, ...]]
    ) -> tuple[Placed[tuple[Column, ...]], Placed[tuple[Column, ...]]]:
        """Return the columns without the partition keys, and the partition keys, which are named without types."""
        known = {column.name: column for column in (columns.value if columns is not None else ())}
        if unknown := [name for name in names.value if name not in known]:
            raise self.wrong(
                f"{unknown[0]} is not among the columns of the table; add it, or give its type in PARTITIONED BY",
                names.position,
            )
        position = names.position if columns is None else columns.position
        others = tuple(column for name, column in known.items() if name not in names.value)
        return Placed(others, position), Placed(tuple(known[name] for name in names.value), names.position)

    def index_definition(self, name: Placed[str], keys: Placed[tuple[str, ...]]) -> Placed[IndexDefinition]:
        return Placed(IndexDefinition(name.value, keys.value), name.position)

    def index_definitions(self, *definitions: Placed[IndexDefinition]) -> Clause:
        indexes = together(definitions)
        return Clause("PARTITION INDEX", indexes.position, {"indexes": indexes})

    def buckets(self, columns: Placed[tuple[str, ...]], sorting: Token | None, *rest: Any) -> Clause:
        if sorting is not None:
            raise self.unsupported("the order of rows in buckets is not supported; remove SORTED BY", sorting)
        buckets = Buckets(columns.value, self.whole(rest[-1]))
        return Clause("CLUSTERED BY", columns.position, {"buckets": Placed(buckets, columns.position)})

    def sort_columns(self, *_columns: Any) -> None:
        return None

    def sort_column(self, *_parts: Any) -> None:
        return None

    def stored_by(self, name: Placed[str]) -> Clause:
        if name.value == _ICEBERG_HANDLER:
            return Clause("STORED", name.position, {"format": Placed(ICEBERG.upper(), name.position)})
        return Clause("STORED", name.position, {"stored_by": name})

    def stored_as(self, name: Token) -> Clause:
        position = name.start_pos or 0
        if name.lower() == "carbondata":
            return Clause("STORED", position, {"stored_by": Placed("carbondata", position)})
        return Clause("STORED", position, {"format": Placed(name.upper(), position)})

    def stored_as_classes(self, input_format: Placed[str], _output_format: Placed[str]) -> Clause:
        return Clause("STORED", input_format.position, {"format": self._format_of(input_format, "input format")})

    def serde(self, name: Placed[str], word: Token | None, properties: Placed[dict[str, str]] | None) -> Clause:
        # Hive's SHOW CREATE TABLE contains this property for every table.
        if word is not None and properties is not None and properties.value != {"serialization.format": "1"}:
            raise self.unsupported("properties of a SerDe are not supported; remove them", word)
        return Clause("ROW FORMAT", name.position, {"row_format": self._format_of(name, "SerDe")})

    def _format_of(self, name: Placed[str], what: str) -> Placed[str]:
        format_name = _CLASSES.get(name.value)
        if format_name is None:
            raise UnsupportedStatementError(
                f"unknown {what} {name.value}; use STORED AS with one of "
                f"{', '.join(known.upper() for known in FileFormat if known is not FileFormat.OTHER)}",
                self.original,
                name.position,
            )
        return Placed(format_name, name.position)

    def delimited(self, *parts: dict[str, str]) -> Clause:
        delimiters: dict[str, str] = {}
        for part in parts:
            delimiters.update(part)
        return Clause("ROW FORMAT", 0, {"delimiters": delimiters, "row_format": Placed("TEXTFILE", 0)})

    # Names of Hive's properties. Source: Hive's `serdeConstants`.

    def fields_terminated(self, text: Placed[str], escape: Placed[str] | None) -> dict[str, str]:
        delimiters = {"field.delim": text.value, "serialization.format": text.value}
        return delimiters if escape is None else {**delimiters, "escape.delim": escape.value}

    def items_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"collection.delim": text.value}

    def keys_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"mapkey.delim": text.value}

    def lines_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"line.delim": text.value}

    def null_defined(self, text: Placed[str]) -> dict[str, str]:
        return {"serialization.null.format": text.value}

    def as_query(self, query: Token) -> Clause:
        return Clause("AS", query.start_pos or 0, {"query": self.verbatim(query)})

    def _check_created_as(
        self, external: Token | None, columns: Placed[tuple[Column, ...]] | None, query: Placed[str]
    ) -> None:
        if external is not None:
            problem = "an external table cannot be created from a SELECT, because others own its files; remove EXTERNAL"
            raise self.unsupported(problem, external)
        if columns is not None:
            raise self.wrong(
                "the SELECT gives the columns and their types; remove the list of columns, and name and cast them in "
                "the SELECT",
                columns.position,
            )

    def create_from_another(self, word: Token, _rest: Token) -> m.Statement:
        raise self.unsupported(
            "CREATE TABLE … LIKE is not supported; SHOW CREATE TABLE prints a statement to start from", word
        )

    def create_view(
        self,
        replace: Token | None,
        exists: bool | None,
        table: Placed[TableReference],
        columns: tuple[tuple[str, str | None], ...] | None,
        *rest: Any,
    ) -> m.Statement:
        *clauses, query = rest
        return made(
            m.CreateView,
            table=table,
            columns=columns,
            if_not_exists=exists,
            or_replace=replace is not None,
            query=self.verbatim(query),
            **self.clauses(clauses),
        )

    def view_columns(self, *columns: tuple[str, str | None]) -> tuple[tuple[str, str | None], ...]:
        return columns

    def view_column(self, name: Placed[str], comment: Clause | None) -> tuple[str, str | None]:
        return name.value, None if comment is None else comment.fields["comment"]

    def drop_table(self, exists: bool | None, table: Placed[TableReference], purge: Token | None) -> m.Statement:
        return made(m.DropTable, table=table, if_exists=exists, purge=purge is not None)

    def drop_view(self, exists: bool | None, table: Placed[TableReference]) -> m.Statement:
        return made(m.DropView, table=table, if_exists=exists)
