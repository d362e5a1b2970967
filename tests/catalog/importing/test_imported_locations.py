"""Imports of tables and partitions whose locations conflict with those of others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from catalog import Catalog
from catalog.importing import partitions as importing_partitions
from catalog.importing.partitions import ImportOptions
from catalog.importing.reports import ImportOutcome
from tests.catalog.importing.test_imports import KEYS, LOCATION, TABLE, import_all, names, partition, places, redefine
from tests.catalog.importing.test_imports import sales as sales
from tests.support.glue_endpoint import GlueEndpoint, columns, storage


def move(source: GlueEndpoint, places: Mapping[int, str]) -> None:
    """Change the locations of partitions, by their number `n`."""
    for n, place in places.items():
        changed = partition("2024-01-01", n, location=place)
        source.client.update_partition(
            DatabaseName="sales", TableName="orders", PartitionValueList=changed["Values"], PartitionInput=changed
        )


def test_a_table_in_anothers_location_is_refused_and_stops_no_other(catalog: Catalog, sales: GlueEndpoint) -> None:
    inside = storage(f"{LOCATION}/day=2024-01-01")
    sales.create_table("sales", "today", StorageDescriptor=inside, PartitionKeys=columns(("n", "int")))
    import_all(catalog, sales, "/sales.orders")
    for is_dry_run in (True, False):
        plan, reports = catalog.imports.import_tables(sales.source("/sales"), (), ImportOptions(is_dry_run=is_dry_run))
        outcomes = {report.table: (report.outcome, report.reason) for report in reports}
        outcome, reason = outcomes["sales.today"]
        assert outcome is ImportOutcome.REFUSED
        assert f"LocationInUseError: table sales.today: {LOCATION}/day=2024-01-01 cannot be used" in str(reason)
        assert outcomes["sales.orders"] == (ImportOutcome.UNCHANGED, None)
        assert plan.failures(reports) == []
    assert "sales.today" not in [table.full_name for table in catalog.list_tables()]


def test_no_partition_moves_into_another_tables_location(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    catalog.create_table("demo.owner", columns=[("id", "int")], location="/lake/owner")
    sales.client.update_partition(
        DatabaseName="sales",
        TableName="orders",
        PartitionValueList=["2024-01-01", "1"],
        PartitionInput=partition("2024-01-01", 1, location="/lake/owner/inside"),
    )
    sales.add_partitions(
        "sales",
        "orders",
        iter([partition("2024-01-02", n, location="/lake/owner/new") for n in range(2)] + [partition("2024-01-02", 2)]),
    )
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.updated, counts.changed.count, counts.refused.count) == (1, 0, 1, 3)
    assert all("demo.owner lies in /lake/owner" in reason for reason in counts.refused.first)
    assert {reason.split(":")[0] for reason in counts.refused.first} == {
        "partition day=2024-01-01/n=1",
        "partition day=2024-01-02/n=0",
        "partition day=2024-01-02/n=1",
    }
    assert all(partition.location.startswith(LOCATION) for partition in catalog.get_partitions(TABLE))
    assert "day=2024-01-02/n=2" in names(catalog)


def test_no_partition_comes_or_moves_to_the_default_folder_of_another(catalog: Catalog, sales: GlueEndpoint) -> None:
    location = f"{LOCATION}/day=2024-01-01/n=2"
    import_all(catalog, sales)
    before = places(catalog)
    move(sales, {1: location, 3: "/elsewhere"})
    new = [partition("2024-01-03", n, location=location if n == 1 else None) for n in range(3)]
    sales.add_partitions("sales", "orders", iter(new))
    counts = import_all(catalog, sales, updates=True, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.changed.count, counts.updated, counts.refused.count) == (2, 2, 1, 2)
    assert [reason.split(":")[0] for reason in counts.refused.first] == [
        "partition day=2024-01-01/n=1",
        "partition day=2024-01-03/n=1",
    ]
    for reason in counts.refused.first:
        assert f"{location} cannot be used, because partition day=2024-01-01/n=2 has its files in" in reason
        assert "nothing was changed" not in reason
    after = {f"day=2024-01-03/n={n}": f"{LOCATION}/day=2024-01-03/n={n}" for n in (0, 2)}
    assert places(catalog) == {**before, "day=2024-01-01/n=3": "/elsewhere", **after}


def test_partitions_that_exchange_their_folders_are_updated_together(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all(catalog, sales)
    # In batches of two, the cycle of all five is not in one batch.
    for batch, changed in ((10_000, {0: 1, 1: 0}), (2, {0: 0, 1: 1}), (2, {0: 4, 1: 0, 4: 1})):
        monkeypatch.setattr(importing_partitions, "BATCH", batch)
        moved = {n: f"{LOCATION}/day=2024-01-01/n={there}" for n, there in changed.items()}
        move(sales, moved)
        counts = import_all(catalog, sales, updates=True)[TABLE].partitions
        assert (counts.updated, counts.refused.count) == (len(moved), 0)
        assert moved.items() <= {int(name[-1]): place for name, place in places(catalog).items()}.items()


@pytest.mark.parametrize("batch", [10_000, 1])
@pytest.mark.parametrize("step", [1, -1])
def test_partitions_that_move_on_by_one_folder_are_updated(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch, step: int, batch: int
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", batch)
    import_all(catalog, sales)
    moved = {n: f"{LOCATION}/day=2024-01-01/n={n + step}" for n in range(5)}
    move(sales, moved)
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.updated, counts.refused.count) == (5, 0)
    assert [places(catalog)[f"day=2024-01-01/n={n}"] for n in range(5)] == list(moved.values())


def test_a_chain_that_ends_at_a_taken_folder_stays_as_it_is(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    before = places(catalog)
    move(sales, {n: f"{LOCATION}/day=2024-01-01/n={n + 1}" for n in range(4)})
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.changed.count, counts.updated, counts.refused.count) == (4, 0, 4)
    for n, reason in enumerate(sorted(counts.refused.first)):
        assert reason.startswith(f"partition day=2024-01-01/n={n}: ")
        assert f"because partition day=2024-01-01/n={n + 1} has its files in" in reason
    assert places(catalog) == before


@pytest.mark.parametrize("batch", [10_000, 1])
def test_partitions_that_were_renamed_in_their_folders_are_dropped_and_added(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(importing_partitions, "BATCH", batch)
    import_all(catalog, sales)
    catalog.create_partition_index(TABLE, "by_n", ["n"])
    catalog.build_partition_index(TABLE, "by_n")
    for n in (1, 2):
        sales.client.delete_partition(DatabaseName="sales", TableName="orders", PartitionValues=["2024-01-01", str(n)])
    renamed = [partition("2024-01-01", 10 + n, f"{LOCATION}/day=2024-01-01/n={n}") for n in (1, 2)]
    sales.add_partitions("sales", "orders", iter([*renamed, partition("2024-01-01", 6)]))
    # Without permission to drop, they are refused one by one, and the others are imported.
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.vanished.count, counts.dropped, counts.refused.count) == (1, 2, 0, 2)
    for n, reason in zip((1, 2), sorted(counts.refused.first), strict=True):
        assert reason.startswith(f"partition day=2024-01-01/n=1{n}: ")
        assert f"partition day=2024-01-01/n={n} has its files in" in reason
        assert "ask to drop vanished partitions" in reason
    counts = import_all(catalog, sales, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.dropped, counts.refused.count) == (2, 2, 0)
    assert {f"day=2024-01-01/n=1{n}": f"{LOCATION}/day=2024-01-01/n={n}" for n in (1, 2)}.items() <= places(
        catalog
    ).items()
    assert len(names(catalog)) == 6
    assert catalog.verify_partition_index(TABLE, "by_n").is_exact


def test_a_folder_that_a_partition_has_left_is_another_ones(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    move(sales, {1: "/moved"})
    left = f"{LOCATION}/day=2024-01-01/n=1"
    sales.add_partitions("sales", "orders", iter([partition("2024-01-01", 9, left)]))
    counts = import_all(catalog, sales, drops_vanished=True)[TABLE].partitions
    assert (counts.added, counts.refused.count) == (0, 1)
    assert "ask to update changed ones" in counts.refused.first[0]
    counts = import_all(catalog, sales, updates=True)[TABLE].partitions
    assert (counts.added, counts.updated, counts.refused.count) == (1, 1, 0)
    assert {"day=2024-01-01/n=1": "/moved", "day=2024-01-01/n=9": left}.items() <= places(catalog).items()


def test_a_table_that_moved_as_a_whole_is_updated(catalog: Catalog, sales: GlueEndpoint) -> None:
    import_all(catalog, sales)
    for root in ("/lake/moved", f"{LOCATION}/inside", LOCATION):
        redefine(sales, root, KEYS)
        expected = {n: f"{root}/day=2024-01-01/n={n}" for n in range(5)}
        move(sales, expected)
        report = import_all(catalog, sales, updates=True)[TABLE]
        assert (report.outcome, report.partitions.updated) == (ImportOutcome.UPDATED, 5)
        assert report.partitions.refused.count == 0
        assert {int(name[-1]): place for name, place in places(catalog).items()} == expected


def test_new_partitions_of_one_default_folder_are_refused_without_its_owner(
    catalog: Catalog, sales: GlueEndpoint
) -> None:
    default = f"{LOCATION}/day=2024-01-02/n=1"
    new = [partition("2024-01-02", 0, default), partition("2024-01-02", 1), partition("2024-01-02", 2, default)]
    sales.add_partitions("sales", "orders", iter([*new, partition("2024-01-02", 3)]))
    counts = import_all(catalog, sales)[TABLE].partitions
    assert (counts.added, counts.refused.count) == (7, 2)
    assert {"day=2024-01-02/n=1", "day=2024-01-02/n=3"} <= set(names(catalog))


def test_a_location_that_is_not_allowed_refuses_its_partition_only(
    catalog: Catalog, sales: GlueEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "/lake")
    new = [partition("2024-01-02", 0, "/secret"), partition("2024-01-02", 1, "s3://KEY:pass@bucket/x")]
    sales.add_partitions("sales", "orders", iter([*new, partition("2024-01-02", 2, "/lake/own")]))
    for is_dry_run in (True, False):
        counts = import_all(catalog, sales, is_dry_run=is_dry_run)[TABLE].partitions
        assert (counts.added, counts.refused.count) == (6, 2)
        assert "outside all allowed folders" in " ".join(counts.refused.first)
        assert "has a password in it" in " ".join(counts.refused.first)
        assert ":pass" not in " ".join(counts.refused.first)
