"""Row counts of a partition's group are compared with those of other groups, as equal values and not as strings."""

from __future__ import annotations

from catalog import Catalog, NewPartition
from catalog.settings.quality_rules import QualityRules
from spark_jobs.checking.partition_summary import usual_ratios


def test_a_group_has_the_partitions_of_equal_values_however_they_are_written(catalog: Catalog) -> None:
    catalog.create_database("demo")
    table = catalog.create_table(
        "demo.flights", columns=[("id", "int")], partition_keys=[("origin", "string"), ("month", "int")]
    )
    values = [("JFK", "01"), ("LGA", "01"), ("JFK", "02"), ("LGA", "02"), ("JFK", "03"), ("LGA", "3")]
    catalog.add_partitions("demo.flights", [NewPartition(row, row_count=100) for row in values])
    config = {"row_count": {"usual": [0.8, 1.2], "per": ["month"]}}
    rules = QualityRules.from_config(config, keys=table.key_names)
    partitions = list(catalog.get_partitions("demo.flights"))
    ratios = usual_ratios(catalog, table, rules.row_count, partitions)
    assert ratios == dict.fromkeys((partition.id for partition in partitions), 1.0)
