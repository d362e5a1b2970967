"""Selection of the column metrics in manifests by a table's properties.

Sources: Apache Iceberg's `MetricsConfig` and `MetricsModes`; the table properties `write.metadata.metrics.*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import BinaryType, IcebergType, StringType, StructType

from catalog.iceberg.bounds import CUT_LENGTH, cut_binary_lower, cut_binary_upper, cut_text_lower, cut_text_upper
from catalog.iceberg.types import fields_inside

if TYPE_CHECKING:
    from catalog.iceberg.footers.facts import FileFacts
    from catalog.iceberg.layout import Layout

USUAL_MODE = f"truncate({CUT_LENGTH})"
"""Iceberg's default of `write.metadata.metrics.default`."""

MOST_INFERRED = 100
"""Iceberg's default of `write.metadata.metrics.max-inferred-column-defaults`."""

_PREFIX = "write.metadata.metrics."
_COLUMN_PREFIX = f"{_PREFIX}column."
_TRUNCATE = re.compile(r"truncate\(([0-9]+)\)")
_LONGEST = (1 << 31) - 1

_Value = TypeVar("_Value")
_Cut = tuple[Callable[[bytes, int], bytes], Callable[[bytes, int], bytes | None]]

_CUTS: dict[type[IcebergType], _Cut] = {
    StringType: (cut_text_lower, cut_text_upper),
    BinaryType: (cut_binary_lower, cut_binary_upper),
}


def metrics_modes(properties: Mapping[str, str], schema: Schema, sort_order: SortOrder | None = None) -> dict[int, str]:
    """Return field id → mode of the columns whose mode is not `truncate(16)`.

    Without a configured default, only the first 100 columns (`max-inferred-column-defaults`), the sort columns and
    columns with their own mode have metrics. An invalid mode is ignored.

    Args:
        schema: Of the table, with its fields in order.
    """
    default, modes = _defaults(properties, schema)
    sorted_mode = USUAL_MODE if default in ("none", "counts") else default
    for sort_field in () if sort_order is None else sort_order.fields:
        if sort_field.transform.preserves_order:
            modes[sort_field.source_id] = sorted_mode
    ids = {schema.find_column_name(field_id): field_id for field_id in index_by_id(schema)}
    for name, text in properties.items():
        field_id = ids.get(name.removeprefix(_COLUMN_PREFIX)) if name.startswith(_COLUMN_PREFIX) else None
        if field_id is not None:
            modes[field_id] = _valid(text) or default
    all_modes = ((field_id, modes.get(field_id, default)) for field_id in ids.values())
    return {field_id: mode for field_id, mode in all_modes if mode != USUAL_MODE}


def _defaults(properties: Mapping[str, str], schema: Schema) -> tuple[str, dict[int, str]]:
    """Return the default mode, and the columns with another mode."""
    configured = properties.get(f"{_PREFIX}default")
    if configured is not None:
        return _valid(configured) or USUAL_MODE, {}
    most = _most_inferred(properties)
    if sum(1 for _ in _leaves_and_structs(schema.as_struct())) <= most:
        return USUAL_MODE, {}
    return "none", dict.fromkeys(islice(_leaves(schema.as_struct()), most), USUAL_MODE)


def _most_inferred(properties: Mapping[str, str]) -> int:
    text = properties.get(f"{_PREFIX}max-inferred-column-defaults", "")
    return int(text) if text.isascii() and text.isdigit() else MOST_INFERRED


def _valid(text: str) -> str | None:
    """Return a mode in its normal spelling; None for an invalid one."""
    mode = text.lower()
    if match := _TRUNCATE.fullmatch(mode):
        length = int(match[1])
        return f"truncate({length})" if 0 < length <= _LONGEST else None
    return mode if mode in ("none", "counts", "full") else None


def _leaves(kind: IcebergType) -> Iterator[int]:
    """Yield the ids of primitive columns: those of a struct before those nested in its fields."""
    fields = fields_inside(kind)
    yield from (field.field_id for field in fields if field.field_type.is_primitive)
    for field in fields:
        yield from _leaves(field.field_type)


def _leaves_and_structs(kind: IcebergType) -> Iterator[int]:
    for field in fields_inside(kind):
        if field.field_type.is_primitive or isinstance(field.field_type, StructType):
            yield field.field_id
        yield from _leaves_and_structs(field.field_type)


class _Length(NamedTuple):
    """The length to which the bounds of a column are truncated."""

    longest: int
    lower: Callable[[bytes, int], bytes]
    upper: Callable[[bytes, int], bytes | None]


class MetricsFilter:
    """Filter for the facts of a file that a table's manifests contain."""

    def __init__(self, layout: Layout) -> None:
        """Prepare the modes of the table's columns."""
        fields = index_by_id(layout.schema)
        modes = {field_id: layout.metrics.get(field_id, USUAL_MODE) for field_id in fields}
        self._uncounted = frozenset(field_id for field_id, mode in modes.items() if mode == "none")
        self._unbounded = self._uncounted | {field_id for field_id, mode in modes.items() if mode == "counts"}
        self._lengths: dict[int, _Length] = {}
        for field_id, mode in modes.items():
            cut, match = _CUTS.get(type(fields[field_id].field_type)), _TRUNCATE.fullmatch(mode)
            if cut is not None and match is not None:
                self._lengths[field_id] = _Length(int(match[1]), *cut)

    def apply(self, facts: FileFacts) -> FileFacts:
        """Return the facts without excluded metrics, and with truncated bounds of strings and binaries."""
        if self._unbounded:
            facts = replace(
                facts,
                column_sizes=_without(facts.column_sizes, self._uncounted),
                value_counts=_without(facts.value_counts, self._uncounted),
                null_counts=_without(facts.null_counts, self._uncounted),
                nan_counts=_without(facts.nan_counts, self._uncounted),
                lower_bounds=_without(facts.lower_bounds, self._unbounded),
                upper_bounds=_without(facts.upper_bounds, self._unbounded),
            )
        lengths = self._lengths
        if not any(
            len(bound) > lengths[field_id].longest
            for bounds in (facts.lower_bounds, facts.upper_bounds)
            for field_id, bound in bounds.items()
            if field_id in lengths
        ):
            return facts
        lower, upper = dict(facts.lower_bounds), {}
        for field_id, bound in facts.lower_bounds.items():
            if field_id in lengths:
                lower[field_id] = lengths[field_id].lower(bound, lengths[field_id].longest)
        for field_id, bound in facts.upper_bounds.items():
            length = lengths.get(field_id)
            cut = bound if length is None else length.upper(bound, length.longest)
            if cut is not None:
                upper[field_id] = cut
        return replace(facts, lower_bounds=lower, upper_bounds=upper)


def _without(values: Mapping[int, _Value], left_out: frozenset[int]) -> Mapping[int, _Value]:
    return {field_id: value for field_id, value in values.items() if field_id not in left_out}
