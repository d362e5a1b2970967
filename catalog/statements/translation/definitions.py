"""Statements on databases, tables and views."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.visitors import v_args

from catalog.model import Column, IndexDefinition
from catalog.statements import model as m
from catalog.statements.translation.words import Clause, Placed, Words, made, together


@v_args(inline=True)
class Definitions(Words):
    """Statements on databases, tables and views."""

    def create_database(self, exists: bool | None, name: Placed[str], *clauses: Clause) -> m.Statement:
        return made(m.CreateDatabase, name=name, if_not_exists=exists, **self.clauses(clauses))

    def drop_database(self, exists: bool | None, name: Placed[str], cascade: Token | None) -> m.Statement:
        if cascade is not None:
            raise self.unsupported("a database is dropped when it has no tables; drop these first", cascade)
        return made(m.DropDatabase, name=name, if_exists=exists)

    def use_database(self, name: Placed[str]) -> m.Statement:
        return made(m.UseDatabase, name=name)

    def show_databases(self) -> m.Statement:
        return m.ShowDatabases()

    def describe_database(self, name: Placed[str]) -> m.Statement:
        return made(m.DescribeDatabase, name=name)

    def show_tables(self, database: Placed[str] | None) -> m.Statement:
        return made(m.ShowTables, database=database)

    def describe_table(self, detail: Token | None, table: Placed[m.TableReference]) -> m.Statement:
        return made(m.DescribeTable, table=table, is_formatted=detail is not None)

    def show_create_table(self, table: Placed[m.TableReference]) -> m.Statement:
        return made(m.ShowCreateTable, table=table)

    def create_table(
        self,
        external: Token | None,
        exists: bool | None,
        table: Placed[m.TableReference],
        columns: Placed[tuple[Column, ...]] | None,
        *clauses: Clause,
    ) -> m.Statement:
        fields = self.clauses(clauses)
        return made(
            m.CreateTable,
            table=table,
            columns=columns,
            if_not_exists=exists,
            is_external=external is not None,
            **fields,
        )

    def partitioned_by(self, columns: Placed[tuple[Column, ...]]) -> Clause:
        return Clause("PARTITIONED BY", columns.position, {"partition_keys": columns})

    def index_definition(self, name: Placed[str], keys: Placed[tuple[str, ...]]) -> Placed[IndexDefinition]:
        return Placed(IndexDefinition(name.value, keys.value), name.position)

    def index_definitions(self, *definitions: Placed[IndexDefinition]) -> Clause:
        indexes = together(definitions)
        return Clause("PARTITION INDEX", indexes.position, {"indexes": indexes})

    def buckets(
        self, columns: Placed[tuple[str, ...]], sorting: tuple[m.SortColumn, ...] | None, count: Token
    ) -> Clause:
        buckets = m.Buckets(columns.value, self.whole(count), sorting or ())
        return Clause("CLUSTERED BY", columns.position, {"buckets": Placed(buckets, columns.position)})

    def sort_columns(self, *columns: m.SortColumn) -> tuple[m.SortColumn, ...]:
        return columns

    def sort_column(self, name: Placed[str], direction: Token | None) -> m.SortColumn:
        return m.SortColumn(name.value, direction is not None and direction.type == "DESCENDING")

    def stored_by(self, name: Placed[str]) -> Clause:
        return Clause("STORED", name.position, {"stored_by": name})

    def stored_as(self, name: Token) -> Clause:
        position = name.start_pos or 0
        if name.lower() == "carbondata":
            return Clause("STORED", position, {"stored_by": Placed("carbondata", position)})
        return Clause("STORED", position, {"format": Placed(name.upper(), position)})

    def stored_as_classes(self, input_format: Placed[str], output_format: Placed[str]) -> Clause:
        classes = together([input_format, output_format])
        return Clause("STORED", input_format.position, {"classes": classes})

    def serde(self, name: Placed[str], properties: Placed[dict[str, str]] | None) -> Clause:
        given = {} if properties is None else properties.value
        return Clause("ROW FORMAT", name.position, {"serde": name, "serde_properties": given})

    def delimited(self, *parts: dict[str, str]) -> Clause:
        found: dict[str, str] = {}
        for part in parts:
            found.update(part)
        return Clause("ROW FORMAT", 0, {"is_delimited": True, "serde_properties": found})

    # What the words stand for. Source: Hive's `serdeConstants`.

    def fields_terminated(self, text: Placed[str], escape: Placed[str] | None) -> dict[str, str]:
        found = {"field.delim": text.value, "serialization.format": text.value}
        return found if escape is None else {**found, "escape.delim": escape.value}

    def items_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"collection.delim": text.value}

    def keys_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"mapkey.delim": text.value}

    def lines_terminated(self, text: Placed[str]) -> dict[str, str]:
        return {"line.delim": text.value}

    def null_defined(self, text: Placed[str]) -> dict[str, str]:
        return {"serialization.null.format": text.value}

    def create_from_another(self, word: Token, _rest: Token) -> m.Statement:
        raise self.unsupported(
            "a table's columns are named; create the table first, then use INSERT INTO … SELECT"
            if word.upper() == "AS"
            else "a table is not created like another; SHOW CREATE TABLE prints the statement to begin with",
            word,
        )

    def create_view(
        self,
        replace: Token | None,
        exists: bool | None,
        table: Placed[m.TableReference],
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

    def drop_table(self, exists: bool | None, table: Placed[m.TableReference], purge: Token | None) -> m.Statement:
        return made(m.DropTable, table=table, if_exists=exists, purge=purge is not None)

    def drop_view(self, exists: bool | None, table: Placed[m.TableReference]) -> m.Statement:
        return made(m.DropView, table=table, if_exists=exists)
