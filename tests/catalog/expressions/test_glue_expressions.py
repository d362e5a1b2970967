"""The ten expressions of Glue's documentation use indexes at least as well as in Glue.

Source: AWS Glue developer guide, "Working with partition indexes", the table of expressions.
"""

from __future__ import annotations

import pytest

from catalog import Catalog, NewPartition

TABLE = "demo.sales_data"
BY_YEAR = ("country", "category", "year")
BY_DATE = ("country", "category", "creationDate")
DATES = ("2023-08-31", "2023-09-02")


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    """A catalog with the documentation's table."""
    catalog.create_table(
        TABLE,
        columns=[("amount", "double")],
        partition_keys=[
            ("country", "string"),
            ("category", "string"),
            ("year", "int"),
            ("month", "int"),
            ("creationDate", "date"),
        ],
    )
    catalog.add_partitions(
        TABLE,
        (
            NewPartition((country, category, str(year), str(month), day))
            for country in ("DE", "UK", "US")
            for category in ("Books", "Shoes", "Toys")
            for year in (2017, 2018, 2019)
            for month in (1, 2)
            for day in DATES
        ),
    )
    return catalog


@pytest.mark.parametrize(
    ("keys", "expression", "in_index", "residual", "read", "found"),
    [
        (BY_YEAR, "country = 'US'", ["country"], [], 36, 36),
        (BY_YEAR, "country = 'US' and category = 'Shoes'", ["country", "category"], [], 12, 12),
        # Glue loads all partitions; here the three countries are looked up first.
        (BY_YEAR, "category = 'Shoes'", ["category"], [], 36, 36),
        (BY_YEAR, "country = 'US' and category = 'Shoes' and year > '2018'", list(BY_YEAR), [], 4, 4),
        (
            BY_YEAR,
            "country = 'US' and category = 'Shoes' and year > '2018' and month = 2",
            list(BY_YEAR),
            ["month"],
            4,
            2,
        ),
        # Neither Glue nor Calve: a year of any country would do.
        (BY_YEAR, "country = 'US' and category = 'Shoes' or year > '2018'", [], list(BY_YEAR), 0, 44),
        # Glue reads country and category, and checks the year on the partitions.
        (BY_YEAR, "country = 'US' and category = 'Shoes' and (year = 2017 or year = '2018')", list(BY_YEAR), [], 8, 8),
        # Glue does not use the index.
        (BY_YEAR, "country in ('US', 'UK') and category = 'Shoes'", ["country", "category"], [], 24, 24),
        # Glue reads the country, and checks the category on the partitions.
        (BY_YEAR, "country = 'US' and category in ('Shoes', 'Books')", ["country", "category"], [], 24, 24),
        # Glue reads country and creationDate, and checks the category on the partitions.
        (
            BY_DATE,
            "country = 'US' and category in ('Shoes', 'Books') and creationDate > '2023-9-01'",
            [key.lower() for key in BY_DATE],
            [],
            12,
            12,
        ),
    ],
)
def test_the_index_answers_at_least_what_glue_says(
    sales: Catalog,
    keys: tuple[str, ...],
    expression: str,
    in_index: list[str],
    residual: list[str],
    read: int,
    found: int,
) -> None:
    sales.create_partition_index(TABLE, "by_three", keys)
    sales.build_partition_index(TABLE, "by_three")
    explanation = sales.explain_partitions(TABLE, expression)
    assert explanation.index == ("by_three" if in_index else None)
    assert list(dict.fromkeys(key for key, _ in explanation.index_conditions)) == in_index
    assert list(explanation.residual_keys) == residual
    assert (explanation.items_read, explanation.partitions_found) == (read, found)
    without = {partition.id for partition in sales.get_partitions(TABLE, expression, use_indexes=False)}
    assert {partition.id for partition in sales.get_partitions(TABLE, expression)} == without
    assert len(without) == found
