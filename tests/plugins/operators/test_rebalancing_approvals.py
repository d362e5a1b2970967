"""Approvals of rebalances: of those that delete rows, and of all where the table's entry says so."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from sqlalchemy import update

from calve_airflow.operators.rebalancing import PlanRebalanceOperator, RewritePartitionsOperator, rebalance_question
from catalog import Catalog
from catalog.operations.approvals import VALID_MS
from catalog.rebalancing.rebalancing import COMMIT
from catalog.storage.schema import ApprovalRow
from tests.plugins.operators.test_rebalancing import (
    DROP,
    FREE_SPLIT,
    RUN,
    SPLIT,
    TABLE,
    Task,
    add_file,
    approve,
    commit,
    ids,
    rewrite,
    verify,
)
from tests.plugins.operators.test_rebalancing import catalog as catalog
from tests.plugins.operators.test_rebalancing import jobs as jobs


def test_nothing_is_deleted_without_an_approval(catalog: Catalog) -> None:
    with pytest.raises(AirflowFailException, match=r"would delete 10 rows of demo.delays, which is not approved"):
        rewrite(DROP)
    assert catalog.operations.find(RUN) is None


def test_approved_deletion_is_carried_out_and_its_approver_kept(catalog: Catalog) -> None:
    approve(catalog, DROP)
    with pytest.raises(AirflowSkipException):
        rewrite(DROP)
    report = commit(DROP)
    assert (report["rows_deleted"], report["approved_by"]) == (10, "boss")
    assert catalog.operations.get(RUN).report[COMMIT]["approved_by"] == "boss"
    assert ids(catalog) == (0, 1, 3)


def test_approval_that_has_expired_does_not_count_at_the_commit(catalog: Catalog) -> None:
    approve(catalog, DROP)
    with pytest.raises(AirflowSkipException):
        rewrite(DROP)
    age_approvals(catalog)
    with pytest.raises(AirflowFailException, match="exactly this deletion is not approved"):
        commit(DROP)
    assert ids(catalog) == (0, 1, 2, 3)
    approve(catalog, DROP)
    report = commit(DROP)
    age_approvals(catalog)
    assert commit(DROP) == report, "what is committed stays as it is"


def age_approvals(catalog: Catalog) -> None:
    with catalog.storage.write() as connection:
        given = ApprovalRow.approved_at_ms
        connection.execute(update(ApprovalRow).values(approved_at_ms=given - VALID_MS - 1))


def test_approval_of_what_has_changed_since_does_not_count(catalog: Catalog) -> None:
    approve(catalog, DROP)
    add_file(catalog, 16, 18)
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: .*13 rows .*approve the new plan"):
        rewrite(DROP)
    assert catalog.operations.find(RUN) is None


@pytest.fixture
def approved_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the table by which a person must approve all changes of its partitions."""
    path = tmp_path / "tables.yaml"
    path.write_text(f"tables: {{{TABLE}: {{rebalance: {{approval: true}}}}}}")
    monkeypatch.setenv("CALVE_TABLES", str(path))


@pytest.mark.usefixtures("approved_table")
def test_change_that_deletes_nothing_is_asked_about_where_the_entry_says_so(catalog: Catalog) -> None:
    asked = rebalance_question(catalog, Task().context(SPLIT))
    assert asked is not None
    assert (asked.subject, asked.table) == (f"Change the partitions of {TABLE}?", TABLE)
    assert f"**10 rows** of **{TABLE}** (1000 B, data files: 1) would be moved, and none deleted" in asked.body
    assert "- partition 1, `delay < 10`: 10 of 10 rows, 1000 B, afterwards in partitions 4, 5" in asked.body
    assert rebalance_question(catalog, Task().context({**SPLIT, "dry_run": True})) is None
    deletion = rebalance_question(catalog, Task().context(DROP))
    assert deletion is not None
    assert deletion.subject == f"Delete 10 rows of {TABLE}?"


@pytest.mark.usefixtures("approved_table")
@pytest.mark.parametrize("form", [SPLIT, FREE_SPLIT], ids=["rows move", "no row moves"])
def test_change_is_made_only_with_an_approval_where_the_entry_says_so(
    catalog: Catalog, jobs: dict[str, Any], form: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=r"would move \d+ rows of demo.delays, which is not approved"):
        rewrite(form)
    assert catalog.operations.find(RUN) is None
    approve(catalog, form)
    if form is SPLIT:
        rewrite(form)
        verify(form)
    else:
        with pytest.raises(AirflowSkipException):
            rewrite(form)
    age_approvals(catalog)
    with pytest.raises(AirflowFailException, match="exactly this change is not approved"):
        commit(form)
    assert ids(catalog) == (0, 1, 2, 3)
    approve(catalog, form)
    assert commit(form)["approved_by"] == "boss"
    assert len(ids(catalog)) == 5


@pytest.mark.usefixtures("approved_table")
def test_approval_of_a_change_does_not_count_for_files_that_came_later(catalog: Catalog) -> None:
    approve(catalog, SPLIT)
    add_file(catalog, 1, 3)
    with pytest.raises(AirflowFailException, match=r"^PlanConflictError: .*has changed since.*approve the new plan"):
        rewrite(SPLIT)
    assert catalog.operations.find(RUN) is None


def test_partition_that_has_rows_by_now_is_not_dropped_without_an_approval(catalog: Catalog) -> None:
    add = {"operation": "add", "items": ["40"]}
    with pytest.raises(AirflowSkipException):
        rewrite(add)
    commit(add)
    catalog.operations.fail(RUN, "TEST", "another run follows")
    drop = {"operation": "drop", "partition_ids": [4], "with_data": True}
    assert not plan_of_another_run(catalog, drop)["is_destructive"]
    add_file(catalog, 30, 39)
    operator = RewritePartitionsOperator(task_id="rewrite", operation_id="other/run")
    with pytest.raises(AirflowFailException, match="would delete 10 rows"):
        operator.execute(Task().context(drop))


def plan_of_another_run(catalog: Catalog, form: dict[str, Any]) -> dict[str, Any]:
    form = {"table": TABLE, "dry_run": False, **form}
    return PlanRebalanceOperator(task_id="plan", operation_id="other/run", form=form).execute(Task().context())
