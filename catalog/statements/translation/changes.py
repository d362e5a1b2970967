"""Translation of ALTER TABLE."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.visitors import v_args

from catalog.model import Column
from catalog.statements import model as m
from catalog.statements.terms import TableReference
from catalog.statements.translation.words import Clause, Placed, TypeName, Words, made, together

Change = tuple[type[m.TableStatement], dict[str, Any]]


@v_args(inline=True)
class Changes(Words):
    """ALTER TABLE; each change returns the class of the statement, and its fields."""

    def alter_table(self, table: Placed[TableReference], change: Change) -> m.Statement:
        kind, fields = change
        return made(kind, table=table, **fields)

    def set_properties(self, properties: Placed[dict[str, str]]) -> Change:
        return m.SetProperties, {"properties": properties}

    def unset_properties(self, exists: bool | None, *names: Placed[str]) -> Change:
        return m.UnsetProperties, {"names": together(names), "if_exists": exists}

    def add_columns(self, columns: Placed[tuple[Column, ...]]) -> Change:
        return m.AddColumns, {"columns": columns}

    def add_column(self, column: Placed[Column]) -> Change:
        return m.AddColumns, {"columns": together([column])}

    def change_column(
        self, name: Placed[str], new_name: Placed[str], column_type: TypeName, comment: Clause | None
    ) -> Change:
        text = None if comment is None else comment.fields["comment"]
        return m.ChangeColumn, {"name": name, "new_name": new_name, "type": column_type, "comment": text}

    def rename_column(self, name: Placed[str], new_name: Placed[str]) -> Change:
        return m.ChangeColumn, {"name": name, "new_name": new_name}

    def drop_columns(self, names: Placed[tuple[str, ...]]) -> Change:
        return m.DropColumns, {"names": names}

    def drop_named_columns(self, *names: Placed[str]) -> Change:
        return self.drop_columns(together(names))

    def rename_table(self, new_table: Placed[TableReference]) -> Change:
        return m.RenameTable, {"new_table": new_table}

    def set_location(self, location: Placed[str]) -> Change:
        return m.SetLocation, {"location": location}

    # --- partitions of schemes ----------------------------------------------------------------------------------

    def add_scheme_partitions(self, items: Placed[tuple[str, ...]]) -> Change:
        return m.AddSchemePartitions, {"items": items}

    def split_partition(self, partition_id: Token, items: Placed[tuple[str, ...]]) -> Change:
        placed = Placed(self.whole(partition_id), partition_id.start_pos or 0)
        return m.SplitPartition, {"partition_id": placed, "items": items}

    def drop_scheme_partitions(self, ids: Placed[tuple[int, ...]], with_data: Token | None) -> Change:
        return m.DropSchemePartitions, {"partition_ids": ids, "with_data": with_data is not None}

    def merge_partitions(self, ids: Placed[tuple[int, ...]]) -> Change:
        return m.MergePartitions, {"partition_ids": ids}

    def set_partition_number(self, count: Token) -> Change:
        return m.SetPartitionNumber, {"count": Placed(self.whole(count), count.start_pos or 0)}

    # --- partitions of values -----------------------------------------------------------------------------------

    def new_partition(self, values: Placed[dict[str, str | None]], location: Clause | None) -> Placed[m.PartitionToAdd]:
        place = None if location is None else location.fields["location"].value
        return Placed(m.PartitionToAdd(values.value, place), values.position)

    def add_value_partitions(self, exists: bool | None, *partitions: Placed[m.PartitionToAdd]) -> Change:
        return m.AddValuePartitions, {"partitions": together(partitions), "if_not_exists": exists}

    def drop_value_partitions(self, exists: bool | None, *rest: Any) -> Change:
        *partitions, purge = rest
        placed = Placed(tuple(partitions), partitions[0][0].literal.position)
        return m.DropValuePartitions, {"partitions": placed, "if_exists": exists, "purge": purge is not None}

    def set_partition_location(self, values: Placed[dict[str, str | None]], location: Placed[str]) -> Change:
        return m.SetPartitionLocation, {"values": values, "location": location}

    def set_partition_format(self, values: Placed[dict[str, str | None]], name: Token) -> Change:
        return m.SetPartitionFormat, {"values": values, "format": Placed(name.upper(), name.start_pos or 0)}

    def set_partition_properties(
        self, values: Placed[dict[str, str | None]], properties: Placed[dict[str, str]]
    ) -> Change:
        return m.SetPartitionProperties, {"values": values, "properties": properties}

    def compact_table(self, values: Placed[dict[str, str | None]] | None, _word: Token, _kind: Token | None) -> Change:
        return m.CompactTable, {"values": values}

    def rename_partition(
        self, values: Placed[dict[str, str | None]], new_values: Placed[dict[str, str | None]]
    ) -> Change:
        return m.RenamePartition, {"values": values, "new_values": new_values}
