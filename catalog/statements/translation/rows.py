"""Translation of statements on partitions, their indexes, and rows."""

from __future__ import annotations

from lark import Token
from lark.visitors import v_args

from catalog.statements import model as m
from catalog.statements.terms import Literal, TableReference
from catalog.statements.translation.words import Placed, Words, made


@v_args(inline=True)
class Rows(Words):
    """Statements on partitions, their indexes, and rows."""

    def show_partitions(
        self,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        where: Token | None,
    ) -> m.Statement:
        return made(m.ShowPartitions, table=table, values=values, where=self._filter(where))

    def explain_partitions(self, table: Placed[TableReference], where: Token | None) -> m.Statement:
        return made(m.ExplainPartitions, table=table, where=self._filter(where))

    @staticmethod
    def _filter(token: Token | None) -> Placed[str] | None:
        """Return a filter from the text without comments, which the filter language does not support."""
        return None if token is None else Placed(token.rstrip(), token.start_pos or 0)

    def repair_table(self, table: Placed[TableReference], mode: Token | None) -> m.Statement:
        return made(m.RepairTable, table=table, mode=None if mode is None else mode.lower())

    def create_index(
        self, index: Placed[str], table: Placed[TableReference], keys: Placed[tuple[str, ...]]
    ) -> m.Statement:
        return made(m.CreateIndex, table=table, index=index, keys=keys)

    def drop_index(self, exists: bool | None, index: Placed[str], table: Placed[TableReference]) -> m.Statement:
        return made(m.DropIndex, table=table, index=index, if_exists=exists)

    def show_indexes(self, table: Placed[TableReference]) -> m.Statement:
        return made(m.ShowIndexes, table=table)

    def insert_values(
        self,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        columns: Placed[tuple[str, ...]] | None,
        *rows: tuple[Literal, ...],
    ) -> m.Statement:
        return made(m.InsertValues, table=table, values=values, columns=columns, rows=rows)

    def row(self, *literals: Literal) -> tuple[Literal, ...]:
        return literals

    def insert_query(
        self,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        columns: Placed[tuple[str, ...]] | None,
        query: Token,
    ) -> m.Statement:
        return made(m.InsertQuery, table=table, values=values, columns=columns, query=self.verbatim(query))

    def insert_overwrite(self, word: Token, _rest: Token) -> m.Statement:
        raise self.unsupported("INSERT OVERWRITE is not supported, because rows are only added; use INSERT INTO", word)

    def load_data(
        self,
        path: Placed[str],
        overwrite: Token | None,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        options: Placed[dict[str, str]] | None,
    ) -> m.Statement:
        if overwrite is not None:
            raise self.unsupported("OVERWRITE is not supported, because rows are only added; remove it", overwrite)
        if values is not None:
            raise self.wrong("the values of partition keys come from the files; remove PARTITION", values.position)
        upper = None
        if options is not None:
            upper = Placed({name.upper(): value for name, value in options.value.items()}, options.position)
        return made(m.LoadData, table=table, path=path, options=upper)

    def select(self, query: Token) -> m.Statement:
        return made(m.Select, query=self.verbatim(query))
