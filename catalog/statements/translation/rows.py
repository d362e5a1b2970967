"""Translation of statements on partitions, their indexes, and rows."""

from __future__ import annotations

from lark import Token
from lark.visitors import v_args

from catalog.statements import model as m
from catalog.statements.merges import ClauseParts, MergeSyntaxError, split_merge
from catalog.statements.splitting import Part, names_of, split_update
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

    def create_hive_index(
        self,
        index: Placed[str],
        table: Placed[TableReference],
        columns: Placed[tuple[str, ...]],
        _word: Token | None,
        _kind: Token | None,
    ) -> m.Statement:
        return made(m.CreateIndex, table=table, index=index, keys=columns, is_of_hive=True)

    def alter_hive_index(self, word: Token, _rest: Token) -> m.Statement:
        raise self.unsupported(
            "partition indexes are never out of date, so there is nothing to rebuild; SHOW PARTITION INDEXES ON … "
            "tells their states, and CREATE PARTITION INDEX … ON … builds a new one",
            word,
        )

    def drop_index(self, exists: bool | None, index: Placed[str], table: Placed[TableReference]) -> m.Statement:
        return made(m.DropIndex, table=table, index=index, if_exists=exists)

    def show_indexes(self, table: Placed[TableReference]) -> m.Statement:
        return made(m.ShowIndexes, table=table)

    def insert_into(self) -> bool:
        return False

    def insert_overwrite(self) -> bool:
        return True

    def insert_values(
        self,
        overwrite: bool,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        columns: Placed[tuple[str, ...]] | None,
        *rows: tuple[Literal, ...],
    ) -> m.Statement:
        return made(m.InsertValues, overwrite=overwrite, table=table, values=values, columns=columns, rows=rows)

    def row(self, *literals: Literal) -> tuple[Literal, ...]:
        return literals

    def insert_query(
        self,
        overwrite: bool,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        columns: Placed[tuple[str, ...]] | None,
        query: Token,
    ) -> m.Statement:
        verbatim = self.verbatim(query)
        return made(m.InsertQuery, overwrite=overwrite, table=table, values=values, columns=columns, query=verbatim)

    def delete_rows(self, table: Placed[TableReference], where: Token | None) -> m.Statement:
        return made(m.DeleteRows, table=table, where=None if where is None else self.verbatim(where))

    def update_rows(self, table: Placed[TableReference], rest: Token) -> m.Statement:
        assignments, where = split_update(self.original, rest.start_pos or 0)
        values: dict[str, str] = {}
        for name, value in assignments:
            if not name.text or not value.text:
                raise self.wrong(
                    "an assignment is a column, = and its new value", (value if name.text else name).position
                )
            column = self.column_name(name.text, name.position)
            if column in values:
                raise self.wrong(f"column {column} is set twice", name.position)
            values[column] = value.text
        if where is not None and not where.text:
            raise self.wrong("WHERE has no condition", where.position)
        condition = None if where is None else Placed(where.text, where.position)
        return made(m.UpdateRows, table=table, assignments=values, where=condition)

    def merge_rows(self, rest: Token) -> m.Statement:
        try:
            parts = split_merge(self.original, rest.start_pos or 0)
        except MergeSyntaxError as error:
            raise self.wrong(str(error), error.position) from None
        names = [self.column_name(name.text, name.position) for name in names_of(parts.target)]
        source = names_of(parts.source)
        if not 1 <= len(names) <= 2 or (not source and not parts.source.text.startswith("(")):
            raise self.wrong("expected a table, written as database.table", parts.target.position)
        table = Placed(TableReference(names[0] if len(names) > 1 else None, names[-1]), parts.target.position)
        alias = self._alias(parts.target_alias) or names[-1]
        source_alias = self._alias(parts.source_alias)
        if not source_alias:
            if not source:
                raise self.wrong("a query after USING needs an alias", parts.source.position)
            source_alias = self.column_name(source[-1].text, source[-1].position)
        if alias == source_alias:
            raise self.wrong(f"target and source are both named {alias}; give one an alias", parts.source.position)
        clauses = [self._merge_clause(clause) for clause in parts.clauses]
        for number, clause in enumerate(clauses):
            if clause.condition is None and any(later.case is clause.case for later in clauses[number + 1 :]):
                raise self.wrong(
                    f"WHEN {clause.case} without a condition is followed by another, which never applies; give the "
                    "first one a condition",
                    rest.start_pos,
                )
        condition = Placed(parts.condition.text, parts.condition.position)
        if not condition.value:
            raise self.wrong("ON has no condition", condition.position)
        return made(
            m.MergeRows,
            table=table,
            alias=alias,
            source=Placed(parts.source.text, parts.source.position),
            source_alias=source_alias,
            condition=condition,
            clauses=clauses,
        )

    def _alias(self, part: Part) -> str:
        return self.column_name(part.text, part.position) if part.text else ""

    def _merge_clause(self, parts: ClauseParts) -> m.MergeClause:
        condition = None if parts.condition is None else parts.condition.text
        if parts.condition is not None and not condition:
            raise self.wrong("AND has no condition", parts.condition.position)
        if parts.values is None:
            return m.MergeClause(parts.case, parts.action, condition, None)
        values: dict[str, str] = {}
        for column, value in parts.values:
            if not value.text:
                raise self.wrong("a column has no value", value.position)
            # Of INSERT without a list of columns, values go by their position.
            written = (names_of(column) or [column])[-1]
            name = self.column_name(written.text, written.position) if column.text else str(len(values))
            if name in values:
                raise self.wrong(f"column {name} is set twice", column.position)
            values[name] = value.text
        by_position = bool(parts.values) and not parts.values[0][0].text
        return m.MergeClause(parts.case, parts.action, condition, list(values.values()) if by_position else values)

    def truncate_table(
        self, table: Placed[TableReference], values: Placed[dict[str, str | None]] | None
    ) -> m.Statement:
        return made(m.TruncateTable, table=table, values=values)

    def load_data(
        self,
        path: Placed[str],
        overwrite: Token | None,
        table: Placed[TableReference],
        values: Placed[dict[str, str | None]] | None,
        options: Placed[dict[str, str]] | None,
    ) -> m.Statement:
        if values is not None:
            raise self.wrong("the values of partition keys come from the files; remove PARTITION", values.position)
        upper = None
        if options is not None:
            upper = Placed({name.upper(): value for name, value in options.value.items()}, options.position)
        return made(m.LoadData, table=table, path=path, options=upper, overwrite=overwrite is not None)

    def explain_select(self, query: Token) -> m.Statement:
        return made(m.ExplainSelect, query=self.verbatim(query))

    def select(self, query: Token) -> m.Statement:
        return made(m.Select, query=self.verbatim(query))
