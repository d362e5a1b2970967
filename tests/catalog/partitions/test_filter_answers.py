"""GetPartitions returns the same partitions with any index, without an index, with a half-built one, and in SQLite.

Each test runs about 20 filters for each example on both databases; in `make test-all`, more than 20,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, IndexDefinition, IndexState, NewPartition, OnInvalid
from catalog.partitions import lookups
from tests.support.effort import effort
from tests.support.filters import Given, Oracle, cases, distinct, fits

pytestmark = [pytest.mark.smoke, pytest.mark.usefixtures("unfit_values")]

TABLE_NUMBERS = count()
ALWAYS_SKIPPING = {"ITEMS_OF_A_LOOK_UP": 0, "_SAMPLE": 2, "_FIRST_LIMIT": 1, "_GROWTH": 2, "_BATCH": 2, "_RANGES": 2}
SELDOM_SKIPPING = {"FEW_LOOK_UPS": 2, "ITEMS_OF_A_LOOK_UP": 2, "_SAMPLE": 1, "MAXIMUM_LOOK_UPS": 6}
"""Constants of `catalog.partitions.lookups`, with which small tables are searched as large ones are."""

SKIPPING = st.sampled_from([{"FEW_LOOK_UPS": lookups.FEW_LOOK_UPS}, ALWAYS_SKIPPING, SELDOM_SKIPPING])
EXAMPLES = effort(6, 300)


def create_table(catalog: Catalog, case: Given, *, with_indexes: bool) -> str:
    """Create the table of a case; return its name."""
    name = f"demo.table_{next(TABLE_NUMBERS)}"
    names = case.key_names
    definitions = [
        IndexDefinition(f"index_{number}", tuple(names[position] for position in keys))
        for number, keys in enumerate(case.indexes)
    ]
    catalog.create_table(
        name,
        columns=[("flight", "int")],
        partition_keys=list(zip(names, case.key_types, strict=True)),
        indexes=definitions if with_indexes else (),
    )
    return name


def numbered(rows: list[tuple[str | None, ...]]) -> Iterator[NewPartition]:
    """Yield the partitions; the row count of each is its number, which identifies it."""
    for number, row in enumerate(rows):
        yield NewPartition(row, location=f"/elsewhere/{number}", row_count=number)


def check_answers(
    catalog: Catalog, table: str, case: Given, rows: list[tuple[str | None, ...]], skipping: Mapping[str, int]
) -> None:
    """Compare all results with those of the oracle.

    Args:
        skipping: Constants of `catalog.partitions.lookups` to change.
    """
    definition = catalog.get_table(table)
    with Oracle(case.key_types, rows) as oracle, patch.multiple(lookups, **skipping):
        for condition in case.filters:
            expected = oracle.matching(condition)
            for use_indexes in (True, False):
                found = catalog.get_partitions(table, condition.text, use_indexes=use_indexes)
                assert sorted(partition.row_count or 0 for partition in found) == expected, condition.text
            names = Counter(partition.name(definition) for partition in catalog.get_partitions(table, condition.text))
            assert Counter(catalog.partition_names(table, condition.text)) == names


@pytest.mark.first_case
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), skipping=SKIPPING)
def test_a_table_created_with_indexes_answers_as_the_oracle_does(
    catalog: Catalog, case: Given, skipping: dict[str, int]
) -> None:
    table = create_table(catalog, case, with_indexes=True)
    rows = distinct(case.key_types, case.rows)
    fitting = [row for row in rows if fits(case, row)]

    first = catalog.add_partitions(table, numbered(fitting), if_not_exists=True)
    again = catalog.add_partitions(
        table, [NewPartition(row, "/x") for row in case.rows], if_not_exists=True, on_invalid=OnInvalid.SKIP
    )

    assert (first.added, first.existing) == (len(fitting), 0)
    assert again.added == 0
    assert len(again.refused) == sum(not fits(case, row) for row in case.rows)
    assert again.existing == len(case.rows) - len(again.refused)
    assert all(index.state is IndexState.ACTIVE for index in catalog.get_partition_indexes(table))
    check_answers(catalog, table, case, fitting, skipping)


@pytest.mark.long
@pytest.mark.first_case
@settings(max_examples=EXAMPLES * 2 // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), is_built=st.sampled_from([True, True, False]), skipping=SKIPPING)
def test_a_table_that_gets_its_indexes_later_answers_as_the_oracle_does(
    catalog: Catalog, case: Given, is_built: bool, skipping: dict[str, int]
) -> None:
    table = create_table(catalog, case, with_indexes=False)
    rows = distinct(case.key_types, case.rows)
    catalog.add_partitions(table, numbered(rows))

    for number, keys in enumerate(case.indexes):
        catalog.create_partition_index(table, f"index_{number}", [case.key_names[position] for position in keys])
        if is_built:
            built = catalog.build_partition_index(table, f"index_{number}")
            alone = Given(case.key_types, (keys,), case.rows, case.filters)
            does_fit = all(fits(alone, row) for row in rows)
            assert built.state is (IndexState.ACTIVE if does_fit else IndexState.FAILED)
    check_answers(catalog, table, case, rows, skipping)
