"""Proposals for a table's partitions: expected and valid ones, and none after they are applied."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.datafiles.files import ColumnStatistics, DataFile
from catalog.errors import InvalidConfigurationError
from catalog.model import Column
from catalog.rebalancing.advising import Advice, advise
from catalog.rebalancing.contents import ValueCount, contents_of
from catalog.rebalancing.requests import RebalanceRequest
from catalog.schemes.model import DEFAULT_PARTITION, Scheme
from catalog.settings.rebalance_rules import RebalanceRules
from catalog.tables.schemes import scheme_from_properties

MIB = 1024 * 1024
RULES = RebalanceRules()
ROW_BYTES = 1000

Row = Any
"""A value of the partition column, or None."""


def scheme_of(column_type: str = "int", **properties: str) -> Scheme:
    return scheme_from_properties(Column("c", column_type), properties)


File = Mapping[Row, int]
"""Value → how many rows have it."""


@dataclass(frozen=True)
class World:
    """A table: its scheme, and the rows of each file."""

    scheme: Scheme
    files: tuple[File, ...]

    @classmethod
    def of(cls, scheme: Scheme, rows: Iterable[Row], file_rows: int = 10**9) -> World:
        """Return a table with loaded rows, in files of a maximum number of rows, in the order of the rows."""
        partition_of = Partitions(scheme)
        by_partition: dict[int, list[Row]] = {}
        for row in rows:
            by_partition.setdefault(partition_of(row), []).append(row)
        files = [
            Counter(own[first : first + file_rows])
            for own in by_partition.values()
            for first in range(0, len(own), file_rows)
        ]
        return cls(scheme, tuple(files))

    def rows(self) -> File:
        return sum(map(Counter, self.files), Counter())

    def data_files(self) -> list[DataFile]:
        partition_of = Partitions(self.scheme)
        found = [_data_file(self.scheme, partition_of, number, file) for number, file in enumerate(self.files)]
        return sorted(found, key=lambda file: (file.partition_id, file.id))

    def advice(self, rules: RebalanceRules, target_bytes: int, *, counts: bool = True) -> Advice:
        """Return the advice, after counting the values that it needs."""
        known: dict[int, Sequence[ValueCount]] = {}
        while True:
            contents = contents_of(self.scheme, self.data_files(), known)
            advice = advise("demo.t", self.scheme, contents, rules, target_bytes)
            if not counts or not advice.to_count:
                return advice
            assert not known.keys() & set(advice.to_count)
            known |= {number: self.counts(number) for number in advice.to_count}

    def counts(self, number: int) -> list[ValueCount]:
        partition_of = Partitions(self.scheme)
        own = {row: count for row, count in self.rows().items() if row is not None and partition_of(row) == number}
        return [ValueCount(str(row), str(row), own[row]) for row in sorted(own)]

    def done(self, advice: Advice) -> World:
        """Return the table after all proposals, applied in another order."""
        scheme = self.scheme
        for request in reversed(advice.requests(dry_run=False)):
            scheme = RebalanceRequest.from_form(json.loads(json.dumps(request))).change.of(scheme).scheme
        partition_of = Partitions(scheme)
        kept: list[File] = []
        moved: dict[int, Counter[Row]] = {}
        for file in self.files:
            targets = {partition_of(row) for row in file}
            if len(targets) == 1:
                kept.append(file)
                continue
            for row, count in file.items():
                moved.setdefault(partition_of(row), Counter())[row] += count
        return World(scheme, (*kept, *moved.values()))


class Partitions(dict[Row, int]):
    """Value → its partition."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    def __missing__(self, row: Row) -> int:
        self[row] = self._scheme.partition_of(None if row is None else self._scheme.typed(str(row)))
        return self[row]

    def __call__(self, row: Row) -> int:
        return self[row]


def _data_file(scheme: Scheme, partition_of: Partitions, number: int, file: File) -> DataFile:
    values = [scheme.typed(str(row)) for row in file if row is not None]
    nulls = file.get(None, 0)
    statistics = ColumnStatistics(None, None, nulls)
    if values:
        statistics = ColumnStatistics.of_values(scheme.value_type, min(values), max(values), nulls)
    [partition] = {partition_of(row) for row in file}
    row_count = sum(file.values())
    text = json.dumps({"c": statistics.as_json()})
    return DataFile(number, partition, f"1-1/{number}.parquet", row_count, row_count * ROW_BYTES, text)


def statements(advice: Advice) -> list[str]:
    return [str(each.change) for each in advice.proposals]


def spread(**rows: int) -> list[int]:
    """Return rows by value: a number of each."""
    return [int(name[1:]) for name, count in rows.items() for _ in range(count)]


TARGET = 100 * ROW_BYTES
RANGES = scheme_of(PARTITION_TYPE="RANGE", RANGE_INFO="10, 20, 30, 40, 50")
LISTS = scheme_of("string", PARTITION_TYPE="LIST", LIST_INFO="(a, b, c, d), e, f, (g, h)")


# --- proposals --------------------------------------------------------------------------------------------------------


def test_even_partitions_are_left_alone() -> None:
    advice = World.of(RANGES, [value for value in range(50) for _ in range(20)]).advice(RULES, TARGET)
    assert (advice.proposals, advice.to_count, advice.skew) == ((), (), 1.0)


def test_a_partition_much_larger_than_the_others_is_split_into_parts_like_them() -> None:
    rows = [value for value in range(50) for _ in range(200 if 20 <= value < 30 else 20)]
    world = World.of(RANGES, rows)
    coarse = world.advice(RULES, TARGET, counts=False)
    assert (coarse.proposals, coarse.to_count) == ((), (3,))
    advice = world.advice(RULES, TARGET)
    bounds = ", ".join(f"'{bound}'" for bound in range(21, 31))
    assert statements(advice) == [f"SPLIT PARTITION (3) INTO ({bounds})"]
    [proposal] = advice.proposals
    assert proposal.reason == "partition 3 (20 <= c < 30) has 1.9 MiB, 10.0 times the median of 195.3 KiB"
    assert advice.as_json()["skew"] == 10.0
    assert advice.as_json()["proposals"][0]["request"] == {
        "table": "demo.t",
        "operation": "split",
        "items": [str(bound) for bound in range(21, 31)],
        "partition_ids": [3],
        "with_data": False,
        "count": None,
        "dry_run": True,
    }


def test_the_files_of_many_loads_tell_where_to_split_without_reading_them() -> None:
    rows = [value for value in range(50) for _ in range(200 if 20 <= value < 30 else 20)]
    world = World.of(RANGES, sorted(rows), file_rows=400)
    advice = world.advice(RULES, TARGET, counts=False)
    assert statements(advice) == ["SPLIT PARTITION (3) INTO ('22', '24', '26', '28', '30')"]


def test_small_partitions_are_not_split_whatever_the_others_have() -> None:
    rows = spread(v1=25, v11=25, v21=299, v31=25, v45=25)
    assert World.of(RANGES, rows).advice(RULES, TARGET).proposals == ()


def test_a_partition_of_one_value_cannot_be_split() -> None:
    rows = spread(v1=30, v11=30, v21=9000, v31=30, v45=30)
    advice = World.of(RANGES, rows).advice(RULES, TARGET)
    assert (advice.proposals, advice.to_count, advice.skew) == ((), (), 300.0)


def test_partitions_beyond_all_measure_are_split_even_if_all_are() -> None:
    rules = replace(RULES, maximum_files=8)
    rows = [value for value in range(50) for _ in range(100)]
    advice = World.of(RANGES, rows).advice(rules, TARGET)
    assert len(advice.proposals) == 5
    assert statements(advice)[0] == "SPLIT PARTITION (1) INTO ('3', '7', '10')"


def test_runs_of_tiny_neighbours_are_merged_but_not_the_last_range_with_rows() -> None:
    scheme = scheme_of(PARTITION_TYPE="RANGE", RANGE_INFO="10, 20, 30, 40, 50, 60, 70, 80")
    rows = spread(v1=5, v11=6, v21=500, v31=5, v51=5, v61=3)
    advice = World.of(scheme, rows).advice(RULES, TARGET)
    assert statements(advice) == ["MERGE PARTITION (1, 2)", "MERGE PARTITION (4, 5, 6)"]
    assert advice.proposals[0].reason == "2 neighbours have 10.7 KiB together, and each less than 12.2 KiB"


def test_merged_partitions_do_not_exceed_one_file() -> None:
    bounds = ", ".join(map(str, range(1, 40)))
    scheme = scheme_of(PARTITION_TYPE="RANGE", RANGE_INFO=bounds)
    rows = [value for value in range(38) for _ in range(11)]
    advice = World.of(scheme, rows).advice(RULES, TARGET)
    sizes = [str(each).count(",") + 1 for each in statements(advice)]
    assert sizes == [9, 9, 9, 9]


def test_a_default_partition_that_has_grown_gets_ranges() -> None:
    rows = [value for value in range(130) for _ in range(20)] + [None] * 5000
    advice = World.of(RANGES, rows).advice(RULES, TARGET)
    assert statements(advice) == ["ADD PARTITION ('60', '70', '80', '90', '100', '110', '120')"]
    assert advice.proposals[0].reason == "the default partition has 1.5 MiB, 8.0 times the median of 195.3 KiB"


def test_nulls_are_nobodys_fault() -> None:
    rows = [value for value in range(50) for _ in range(20)] + [None] * 5000
    assert World.of(RANGES, rows).advice(RULES, TARGET).proposals == ()


def test_ranges_that_come_by_themselves_are_not_added() -> None:
    scheme = scheme_of("date", PARTITION_TYPE="RANGE_INTERVAL", RANGE_INFO="2024/01/01, 2024/02/01", INTERVAL="1 month")
    rows = ["2023-12-05"] * 200 + [f"2024-01-{day:02}" for day in range(1, 31) for _ in range(100)]
    advice = World.of(scheme, rows).advice(RULES, TARGET)
    assert [each.partition("INTO")[0] for each in statements(advice)] == ["SPLIT PARTITION (2) "]
    assert "'2024/01/03'" in statements(advice)[0]
    assert statements(advice)[0].endswith("'2024/02/01')")


def test_a_group_is_split_between_its_values() -> None:
    rows = ["a"] * 900 + ["b"] * 100 + ["c"] * 50 + ["e"] * 60 + ["f"] * 80 + ["g"] * 70
    advice = World.of(LISTS, rows).advice(RULES, TARGET)
    assert statements(advice) == ["SPLIT PARTITION (1) INTO ('a', 'b', '(c, d)')"]


def test_the_values_of_a_default_partition_that_has_grown_get_groups() -> None:
    rows = ["e"] * 100 + ["f"] * 100 + ["x"] * 300 + ["y, z"] * 200 + ["rare"] * 5
    advice = World.of(LISTS, rows).advice(RULES, TARGET)
    assert statements(advice) == ["ADD PARTITION ('x', '(y\\\\, z)')"]


def test_neighbouring_groups_with_few_rows_are_merged_but_not_those_without() -> None:
    rows = ["a"] * 5 + ["e"] * 5 + ["f"] * 500
    assert statements(World.of(LISTS, rows).advice(RULES, TARGET)) == ["MERGE PARTITION (1, 2)"]


@pytest.mark.parametrize(("count", "row_count", "wanted"), [(2, 100, None), (4, 9000, 8), (8, 40, 2), (6, 40, 3)])
def test_hash_partitions_get_a_sensible_number(count: int, row_count: int, wanted: int | None) -> None:
    scheme = scheme_of(PARTITION_TYPE="HASH", PARTITION_NUM=str(count))
    rules = replace(RULES, maximum_files=20, split_files=5, merge_files=0.4)
    advice = World.of(scheme, range(row_count)).advice(rules, min(row_count, 100) * ROW_BYTES)
    assert statements(advice) == ([] if wanted is None else [f"SET PARTITION_NUM {wanted}"])


def test_tables_that_fit_into_one_file_are_left_alone() -> None:
    assert World.of(RANGES, spread(v1=1, v11=1, v21=90, v41=1)).advice(RULES, TARGET).proposals == ()
    empty = World.of(RANGES, []).advice(RULES, TARGET)
    assert (empty.proposals, empty.skew, empty.largest_bytes) == ((), None, 0)


def test_files_without_statistics_have_to_be_counted() -> None:
    world = World.of(RANGES, [value for value in range(50) for _ in range(200 if 20 <= value < 30 else 20)])
    files = [replace(file, statistics_json="{}") for file in world.data_files()]
    contents = contents_of(RANGES, files)
    assert advise("demo.t", RANGES, contents, RULES, TARGET).to_count == (3,)


def test_bounds_that_nobody_can_write_are_not_proposed() -> None:
    scheme = scheme_of("string", PARTITION_TYPE="RANGE", RANGE_INFO="m, n")
    rows = ["a"] * 20 + [f"m{' ' * (number % 2)}" for number in range(4000)] + ["m" + "x" * 500 + "1"] * 3000
    advice = World.of(scheme, sorted(rows), file_rows=500).advice(RULES, TARGET, counts=False)
    for each in advice.proposals:
        each.change.of(scheme)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_rules_of_an_entry_replace_the_usual_ones() -> None:
    assert RebalanceRules.from_config({}) == RebalanceRules()
    rules = RebalanceRules.from_config({"apply": True, "split_factor": 3})
    assert (rules.apply, rules.split_factor, rules.merge_files) == (True, 3.0, 0.125)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"applied": True}, "unknown rebalance field applied"),
        ({"apply": "yes"}, "rebalance.apply is 'yes', expected true or false"),
        ({"approval": 1}, "rebalance.approval is 1, expected true or false"),
        ({"apply": True, "approval": True}, "rebalance.apply and rebalance.approval are both true"),
        ({"split_factor": 1}, "rebalance.split_factor is 1, expected a number from 2.5"),
        ({"split_files": True}, "rebalance.split_files is True"),
        ({"merge_files": "much"}, "rebalance.merge_files is 'much'"),
        ({"maximum_files": 5}, "must be at least twice the second"),
    ],
)
def test_wrong_rules_are_named(entry: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        RebalanceRules.from_config(entry)


# --- properties -------------------------------------------------------------------------------------------------------


@st.composite
def rules(draw: st.DrawFn) -> RebalanceRules:
    split_files = draw(st.sampled_from([2.5, 4.0]))
    return RebalanceRules(
        split_factor=draw(st.sampled_from([2.5, 4.0, 10.0])),
        split_files=split_files,
        maximum_files=split_files * draw(st.sampled_from([2, 3, 50])),
        merge_files=draw(st.sampled_from([0.0, 0.125, 0.5])),
    )


# Many values, few values, and skewed values.
COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 40), st.sampled_from([0, 0, 100, 500]))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    kind = draw(st.sampled_from(["RANGE", "RANGE_INTERVAL", "LIST", "HASH"]))
    values = draw(st.integers(1, 40))
    counts = draw(st.lists(COUNTS, min_size=values, max_size=values))
    rows: list[Row] = [value for value, count in enumerate(counts) for _ in range(count)]
    rows += [None] * draw(st.sampled_from([0, 3, 300]))
    file_rows = draw(st.sampled_from([10, 100, 10**9]))
    if seed := draw(st.integers(0, 5)):
        Random(seed).shuffle(rows)
    bounds = sorted(draw(st.sets(st.integers(0, 45), min_size=1, max_size=20)))
    if kind == "HASH":
        scheme = scheme_of(PARTITION_TYPE=kind, PARTITION_NUM=str(draw(st.integers(1, 24))))
    elif kind == "LIST":
        listed = Random(draw(st.integers(0, 5))).sample(bounds, len(bounds))
        cuts = sorted(draw(st.sets(st.integers(0, len(listed)), max_size=8)) | {0, len(listed)})
        groups = [listed[first:end] for first, end in pairwise(cuts)]
        text = ", ".join(f"({', '.join(map(str, group))})" for group in groups)
        scheme = scheme_of(PARTITION_TYPE=kind, LIST_INFO=text)
    else:
        interval = {"INTERVAL": "5"} if kind == "RANGE_INTERVAL" else {}
        scheme = scheme_of(PARTITION_TYPE=kind, RANGE_INFO=", ".join(map(str, bounds)), **interval)
    return World.of(scheme, rows, file_rows)


@settings(max_examples=150)
@given(world=worlds(), rules=rules(), target_rows=st.sampled_from([1, 7, 20, 100]))
def test_what_is_proposed_is_valid_and_settles_it(world: World, rules: RebalanceRules, target_rows: int) -> None:
    advice = world.advice(rules, target_rows * ROW_BYTES)
    assert advice == world.advice(rules, target_rows * ROW_BYTES)
    after = world.done(advice)
    assert after.rows() == world.rows()
    assert after.advice(rules, target_rows * ROW_BYTES).proposals == ()
    assert DEFAULT_PARTITION in after.scheme.ids
