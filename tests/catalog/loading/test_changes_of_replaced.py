"""Random sequences of changes of replaced partitions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from catalog import Catalog, LoadMode, Table
from catalog.errors import CatalogError
from catalog.operations.staging import VERSIONS
from tests.catalog.loading.test_loading import TABLE
from tests.catalog.loading.test_loading import landing as landing
from tests.catalog.loading.test_loading import load as load
from tests.catalog.loading.test_loading import table as table
from tests.catalog.loading.test_publishing import cancel
from tests.catalog.loading.test_replacing import NOW, listed, read, removal, replacement, settle, version_count
from tests.support.effort import effort


class Model(RuleBasedStateMachine):
    """Loads in all modes, drops and vacuums in any order, against a dictionary of what readers must see."""

    catalog: Catalog
    table: Table
    landing: Path
    number = 0

    @initialize()
    def start(self) -> None:
        catalog = self.catalog
        for operation in catalog.operations.list(TABLE):
            cancel(catalog, operation.id)
        catalog.drop_table(TABLE, purge=True)
        shutil.rmtree(self.table.location, ignore_errors=True)
        columns = [("x", "int")]
        catalog.create_table(
            TABLE, columns=columns, partition_keys=self.table.partition_keys, location=self.table.location
        )
        type(self).table = catalog.get_table(TABLE)
        self.seen: dict[tuple[str | None, ...], list[str]] = {}

    @rule(months=st.sets(st.sampled_from("123"), min_size=1), mode=st.sampled_from(LoadMode))
    def publish(self, months: set[str], mode: LoadMode) -> None:
        type(self).number += 1
        values = [("JFK", month) for month in sorted(months)]
        load = replacement(self.catalog, self.table, self.landing, f"load-{self.number}", dict.fromkeys(values, 1))
        load.mode = mode
        refusal = None
        try:
            load.publish()
        except CatalogError as error:
            refusal = error
        if refusal is not None:
            known = [value for value in values if value in self.seen]
            # The folders of dropped partitions still have their files.
            assert (known and mode is LoadMode.NEW) or len(known) < len(values), refusal
            self.catalog.operations.fail(load.name, "TEST", "refused")
            self.catalog.vacuum(TABLE, grace=NOW)
            return
        for value in values:
            # A job that merges has written all rows of the partition.
            before = [] if mode in (LoadMode.REPLACE, LoadMode.MERGE) else self.seen.get(value, [])
            self.seen[value] = [*before, f"{load.name} 1"]

    @rule(month=st.sampled_from("123"), purge=st.booleans())
    def drop(self, month: str, purge: bool) -> None:
        (self.catalog.purge_partitions if purge else self.catalog.drop_partitions)(TABLE, f"month = {month}")
        self.seen.pop(("JFK", month), None)

    @rule(month=st.sampled_from("123"))
    def remove(self, month: str) -> None:
        type(self).number += 1
        removal(self.catalog, f"removal-{self.number}", f"month = {month}")
        self.seen.pop(("JFK", month), None)

    @rule(is_at_once=st.booleans())
    def vacuum(self, is_at_once: bool) -> None:
        report = self.catalog.vacuum(TABLE, **({"grace": NOW} if is_at_once else {}))
        assert report.problems == ()

    @invariant()
    def readers_see_the_current_files(self) -> None:
        if hasattr(self, "seen"):
            assert {values: texts for values, (_, texts) in read(self.catalog).items()} == {
                values: sorted(texts) for values, texts in self.seen.items()
            }

    def teardown(self) -> None:
        if hasattr(self, "seen"):
            settle(self.catalog)
            folders = listed(self.table)
            for values, texts in self.seen.items():
                assert sorted(folders[f"origin={values[0]}/month={values[1]}"]) == sorted(texts)
            assert version_count(self.catalog) == 0
            assert not os.path.exists(f"{self.table.location}/{VERSIONS}")


def test_any_order_of_changes_shows_the_current_files(
    catalog: Catalog, table: Table, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files of this test do not have the names that Spark gives them.
    monkeypatch.setattr("catalog.tables.own_files.is_own_file", lambda *_: True)
    Model.catalog, Model.table, Model.landing = catalog, table, landing
    run_state_machine_as_test(
        Model, settings=settings(max_examples=effort(6, 200), stateful_step_count=8, deadline=None)
    )
