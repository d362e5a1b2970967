"""Random schemes and random changes of them, with the expected model after each change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from catalog.model import Column
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    SetPartitionCount,
    SplitPartition,
)
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import scheme_from_properties
from tests.support.scheme_model import HashModel, IntervalModel, ListModel, Model, RangeModel, Written
from tests.support.scheme_values import HASHED_TYPES, TYPES, escaped, order, pools, spellings
from tests.support.strategies import Day, days_in_month

COLUMN = "c"


@dataclass(frozen=True)
class Case:
    """A scheme, its model, and typical values of its column, ascending."""

    kind: str
    scheme: Scheme
    model: Model
    pool: Sequence[Any]


@dataclass(frozen=True)
class Step:
    """A valid change of a scheme, and the model after it."""

    change: PartitionChange
    model: Model


def make(kind: str, **properties: str) -> Scheme:
    """Return the scheme of a column that TBLPROPERTIES describe."""
    return scheme_from_properties(Column(COLUMN, kind), properties)


@st.composite
def _written(draw: st.DrawFn, values: Sequence[Any]) -> list[Written]:
    return [(draw(st.sampled_from(texts)), value) for value in values if (texts := spellings(value))]


@st.composite
def _some(draw: st.DrawFn, values: Sequence[Any], maximum: int = 6) -> list[Any]:
    """Some of the values, in their order."""
    chosen = draw(st.lists(st.sampled_from(range(len(values))), min_size=1, max_size=maximum, unique=True))
    return [values[each] for each in sorted(chosen)]


@st.composite
def _groups(draw: st.DrawFn, values: Sequence[Written]) -> list[list[Written]]:
    """All values in random order, in groups."""
    shuffled = draw(st.permutations(values))
    cuts = sorted(draw(st.sets(st.integers(1, len(shuffled) - 1)))) if len(shuffled) > 1 else []
    return [list(shuffled[low:high]) for low, high in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]


def _listed(draw: st.DrawFn, group: Sequence[Written]) -> str:
    """Return a group in the syntax of LIST_INFO; parentheses are optional for a single value."""
    text = ", ".join(escaped(each) for each, _ in group)
    return f"({text})" if len(group) > 1 or draw(st.booleans()) else text


def _item(draw: st.DrawFn, group: Sequence[Written]) -> str:
    """Return a group in the syntax of ADD and SPLIT, without parentheses for a single value."""
    [*_, (text, _)] = group
    if len(group) == 1 and not text.startswith("(") and draw(st.booleans()):
        return text
    return f"({', '.join(escaped(each) for each, _ in group)})"


@st.composite
def cases(draw: st.DrawFn, types: Sequence[str] = TYPES, methods: Sequence[str] = ("RANGE", "LIST", "HASH")) -> Case:
    """A new scheme."""
    method = draw(st.sampled_from(methods))
    kind = draw(st.sampled_from([each for each in types if method != "HASH" or each in HASHED_TYPES]))
    pool = draw(pools(kind).filter(lambda values: any(map(spellings, values))))
    if method == "HASH":
        count = draw(st.integers(1, 12))
        return Case(
            kind,
            make(kind, Partition_Type="hash", PARTITION_NUM=f" {count} "),
            HashModel(COLUMN, count, kind.startswith("char")),
            pool,
        )
    written = draw(_written(draw(_some([value for value in pool if spellings(value)]))))
    if method == "RANGE":
        scheme = make(kind, PARTITION_TYPE="RANGE", RANGE_INFO=" , ".join(escaped(text) for text, _ in written))
        model: Model = RangeModel(COLUMN, (), 0).add(written)
    else:
        groups = draw(_groups(written))
        scheme = make(kind, PARTITION_TYPE="list", LIST_INFO=",".join(_listed(draw, group) for group in groups))
        model = ListModel(COLUMN, (), 0).add(groups)
    return Case(kind, scheme, model, pool)


@st.composite
def interval_cases(draw: st.DrawFn) -> Case:
    """A new RANGE_INTERVAL scheme, with few values, so that few ranges are added."""
    kind, values, choices = draw(st.sampled_from(_INTERVALS))
    pool = sorted(draw(st.lists(values, min_size=2, max_size=10, unique=True)))
    uppers = pool[: draw(st.integers(1, min(3, len(pool) - 1)))]
    number, word, unit = draw(st.sampled_from(choices))
    written = [(str(value).removesuffix(" 00:00:00"), value) for value in uppers]
    information = ", ".join(text for text, _ in written)
    scheme = make(kind, PARTITION_TYPE="RANGE_INTERVAL", RANGE_INFO=information, INTERVAL=f"{number}{word}")
    bounds = tuple((partition_id, text, value) for partition_id, (text, value) in enumerate(written, 1))
    return Case(kind, scheme, IntervalModel(COLUMN, bounds, len(bounds), number, unit, written[-1]), pool)


_HOURS = st.builds(datetime, st.just(2014), st.just(1), st.integers(1, 3), st.integers(0, 23))
_DAYS = st.builds(Day, st.just(2014), st.integers(1, 12), st.sampled_from([1, 15, 28, 29, 30, 31])).filter(
    lambda day: day.day <= days_in_month(day.year, day.month)
)
_INTERVALS: Sequence[tuple[str, st.SearchStrategy[Any], Sequence[tuple[int, str, Any]]]] = (
    ("int", st.integers(-3, 30), [(5, "", 1), (7, "", 1)]),
    ("date", _DAYS, [(1, " month", "month"), (3, " Months", "month")]),
    ("timestamp", _HOURS, [(6, " hours", timedelta(hours=1)), (1, " day", timedelta(days=1))]),
)


def undone(change: PartitionChange, before: Any, after: Any) -> Any:
    """Return the model after the reverse of a change; None if there is no reverse."""
    new = [each for each in after.ids if each not in before.ids]
    match change:
        case AddPartitions():
            return after.drop(new)
        case SplitPartition():
            return after.merge(new)
        case MergePartitions(merged):
            return after.split(new[0], [_parts(before)[each] for each in before.ids if each in merged])
        case DropPartitions((dropped,), False):
            part, position = _parts(before)[dropped], before.ids.index(dropped)
            if isinstance(before, ListModel) or position == len(before.bounds):
                return after.add([part])
            following = before.ids[position + 1]
            return after.split(following, [part, _parts(before)[following]])
        case SetPartitionCount():
            return before
    return None


def _parts(model: Any) -> dict[int, Any]:
    if isinstance(model, ListModel):
        return dict(model.groups)
    return {partition_id: (text, value) for partition_id, text, value in model.bounds}


def steps(model: Model, pool: Sequence[Any]) -> st.SearchStrategy[Step]:
    """A valid change."""
    match model:
        case HashModel():
            return st.integers(1, 24).map(lambda count: Step(SetPartitionCount(count), replace(model, count=count)))
        case RangeModel():
            return _range_steps(model, pool)
        case ListModel():
            return _list_steps(model, pool)
    raise TypeError(model)


@st.composite
def _range_steps(draw: st.DrawFn, model: RangeModel, pool: Sequence[Any]) -> Step:
    uppers = [upper for _, _, upper in model.bounds]
    writable = [value for value in pool if spellings(value)]
    above = [value for value in writable if not uppers or order(value) > order(uppers[-1])]
    inside: dict[int, list[Any]] = {}
    for number, (partition_id, _, upper) in enumerate(model.bounds):
        lower = order(uppers[number - 1]) if number else None
        inside[partition_id] = [
            value for value in writable if order(value) < order(upper) and (lower is None or order(value) > lower)
        ]
    is_droppable = len(model.bounds) > isinstance(model, IntervalModel)
    possible = ["add"] * bool(above) + ["split"] * any(inside.values()) + ["drop"] * is_droppable
    form = draw(st.sampled_from(possible + ["merge"] * (len(model.bounds) > 1)))
    if form == "add":
        new = draw(_written(draw(_some(above, 3))))
        return Step(AddPartitions(tuple(text for text, _ in new)), model.add(new))
    if form == "split":
        partition_id = draw(st.sampled_from([each for each, values in inside.items() if values]))
        upper = next(value for each, _, value in model.bounds if each == partition_id)
        new = draw(_written([*draw(_some(inside[partition_id], 3)), upper]))
        return Step(SplitPartition(partition_id, tuple(text for text, _ in new)), model.split(partition_id, new))
    if form == "drop":
        return draw(_drops(model))
    size = draw(st.integers(2, len(model.bounds)))
    first = draw(st.integers(1, len(model.bounds) - size + 1))
    chosen = tuple(draw(st.permutations(model.ids[first : first + size])))
    return Step(MergePartitions(chosen), model.merge(chosen))


@st.composite
def _drops(draw: st.DrawFn, model: RangeModel | ListModel) -> Step:
    most = min(3, len(model.ids) - 1 - isinstance(model, IntervalModel))
    chosen = tuple(draw(st.lists(st.sampled_from(model.ids[1:]), min_size=1, max_size=most, unique=True)))
    return Step(DropPartitions(chosen, draw(st.booleans())), model.drop(chosen))


@st.composite
def _list_steps(draw: st.DrawFn, model: ListModel, pool: Sequence[Any]) -> Step:
    listed = {order(value) for _, group in model.groups for _, value in group}
    others = [value for value in pool if order(value) not in listed and spellings(value)]
    great = [each for each, group in model.groups if len(group) > 1]
    possible = ["add"] * bool(others) + ["split"] * bool(great) + ["drop"] * bool(model.groups)
    form = draw(st.sampled_from(possible + ["merge"] * (len(model.groups) > 1)))
    if form == "add":
        groups = draw(_groups(draw(_written(draw(_some(others))))))
        return Step(AddPartitions(tuple(_item(draw, group) for group in groups)), model.add(groups))
    if form == "split":
        partition_id = draw(st.sampled_from(great))
        again = draw(_written([value for _, value in model.group(partition_id)]))
        groups = draw(_groups(again).filter(lambda found: len(found) > 1))
        items = tuple(_item(draw, group) for group in groups)
        return Step(SplitPartition(partition_id, items), model.split(partition_id, groups))
    if form == "drop":
        return draw(_drops(model))
    chosen = tuple(draw(st.lists(st.sampled_from(model.ids[1:]), min_size=2, max_size=4, unique=True)))
    return Step(MergePartitions(chosen), model.merge(chosen))


def same_partitions(one: Scheme, other: Scheme) -> dict[int, int]:
    """Return the partition of the other scheme with the same values for each partition of the first."""
    mine, others = _ids_by_values(one), _ids_by_values(other)
    assert mine.keys() == others.keys(), "partitions differ"
    return {mine[values]: others[values] for values in mine}


def _ids_by_values(scheme: Scheme) -> dict[object, int]:
    """Return the partition of each set of values: a rest of the hash, encoded bounds or values; None is all others."""
    if isinstance(scheme, HashScheme):
        return {(number, scheme.count): number for number in scheme.ids}
    if isinstance(scheme, RangeScheme):
        bounds = [None, *scheme.encoded_bounds]
        pairs = zip(bounds, bounds[1:], scheme.ids[1:], strict=False)
        ids: dict[object, int] = {(low, high): partition_id for low, high, partition_id in pairs}
    else:
        assert isinstance(scheme, ListScheme)
        encode, typed = scheme.value_type.encode, scheme.typed
        ids = {frozenset(encode(typed(text)) for text in texts): number for number, texts in scheme.groups}
    return {**ids, None: DEFAULT_PARTITION}
