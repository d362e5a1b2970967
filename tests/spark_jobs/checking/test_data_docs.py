"""Data Docs pages are complete offline, and each check writes only its own."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
import pytest

from catalog import Column, FileFormat, Table
from catalog.errors import VerificationFailedError
from catalog.loading.quality_pages import QualityPages
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.settings.quality_rules import ColumnRule, QualityRules
from spark_jobs.checking.data_docs import ExternalLoadError, external_loads, offline_page, page_assets
from spark_jobs.checking.expectations import Validation, validate
from spark_jobs.checking.page_sections import MOST_SHOWN

if TYPE_CHECKING:
    from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.filterwarnings("ignore")

TABLE = Table("shop", "orders", (Column("amount", "double"),), (Column("day", "int"),), FileFormat.PARQUET, "/none")
RULES = QualityRules(columns={"amount": ColumnRule(maximum=100)})


def operation(number: int = 7, name: str = "dag/run") -> Operation:
    facts = {"kind": OperationKind.ADD_PARTITIONS, "table": TABLE.full_name, "state": OperationState.COMMITTED}
    details = dict.fromkeys(("progress_total", "progress_note", "failure_code", "failure_detail", "requested_by"))
    times = {"progress_done": 0, "created_at_ms": 0, "heartbeat_at_ms": 0}
    return Operation(id=name, number=number, request={}, report={}, folder="", **facts, **details, **times)  # type: ignore[arg-type]


def check(pages: str, names: list[str], above: list[int], done: Operation | None = None) -> Validation:
    count = len(names)
    summary = pandas.DataFrame(
        {
            "partition": names,
            "partition_id": range(1, count + 1),
            "row_count": [1_234] * count,
            "registered_row_count": [1_234] * count,
            "row_count_difference": [0] * count,
            "path_agrees": [True] * count,
            "values_fit": [True] * count,
            "amount_above": above,
        }
    )
    return validate(summary, TABLE, RULES, pages=QualityPages(pages), operation=done or operation())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a check that one of two partitions has failed."""
    validation = check(str(tmp_path_factory.mktemp("pages")), ["day=1", "day=<b>2"], [0, 7])
    assert [partition.passed for partition in validation.checks] == [True, False]
    assert validation.page is not None
    return Path(validation.page)


def test_page_says_in_words_what_was_checked_and_which_partition_failed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (page.parent.name, page.name) == ("shop.orders", "7-dag-run.html")
    assert "For each new or extended partition: rows with amount above 100, 0." in text
    assert "day=&lt;b&gt;2" in text
    assert "<b>2" not in text


def test_page_shows_the_partitions_with_their_counts_failed_ones_first(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "1 of 2 failed" in text
    rows = re.findall(r"(day=[^<]+)</div></td>.*?(✗ failed|✓ passed).*?1,234.*?1,234", text, re.DOTALL)
    assert rows == [("day=&lt;b&gt;2", "✗ failed"), ("day=1", "✓ passed")]


def test_page_of_many_partitions_is_bounded(tmp_path: Path) -> None:
    count = MOST_SHOWN + 100
    above = [0] * (count - 1) + [7]
    text = Path(check(str(tmp_path), [f"day={day}" for day in range(count)], above).page or "").read_text()
    assert f"1 of {count} failed; {MOST_SHOWN} are shown, failed ones first" in text
    assert text.count("✓ passed") == MOST_SHOWN - 1
    assert "✗ failed" in text


def test_check_that_cannot_be_made_is_no_verdict(tmp_path: Path) -> None:
    summary = pandas.DataFrame({"partition": ["day=1"], "partition_id": [1], "row_count": ["many"]})
    with pytest.raises(VerificationFailedError, match="could not be made"):
        validate(summary, TABLE, QualityRules(), pages=QualityPages(str(tmp_path)), operation=operation())


def test_page_loads_nothing_from_outside_and_all_from_the_assets(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert external_loads(text) == []
    local = re.findall(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=[\"']([^\"'#]+)[\"']", text)
    assert len(local) > 8
    assert [name for name in local if not name.startswith("data:") and not (page.parent / name).exists()] == []
    links = re.findall(r"<a\s[^>]*href=[\"']([^\"']+)", text)
    assert [link for link in links if link.startswith(".")] == [], "other pages do not exist"


def test_word_of_the_logo_is_readable_in_dark_mode(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (start,) = (place.end() for place in re.finditer("The logo is black", text))
    assert "filter: invert(1)" in text[start : start + 300]


def test_check_reads_and_writes_only_its_own_page(page: Path) -> None:
    pages = page.parents[1]
    assets = {file: file.stat().st_mtime_ns for file in (pages / "assets").rglob("*")}
    page.write_text("another page, which nothing reads")
    page.chmod(0)
    second = check(str(pages), ["day=3"], [0], operation(8))
    assert second.page == str(page.parent / "8-dag-run.html")
    assert page.stat().st_size == len("another page, which nothing reads")
    assert {file: file.stat().st_mtime_ns for file in (pages / "assets").rglob("*")} == assets
    page.unlink()


def test_storage_that_is_down_does_not_fail_the_check(tmp_path: Path) -> None:
    (tmp_path / "pages").write_text("no folder")
    validation = check(str(tmp_path / "pages"), ["day=1"], [7])
    assert validation.page is None
    assert not validation.checks[0].passed


def test_page_on_an_object_store_is_read_and_deleted_there(object_store: ObjectStore) -> None:
    validation = check("s3://lake/pages", ["day=1"], [0], operation(9, "dag/run 1"))
    assert validation.page == "s3://lake/pages/shop.orders/9-dag-run-1.html"
    pages = QualityPages("s3://lake/pages")
    name = pages.name_of(validation.page)
    assert name == "shop.orders/9-dag-run-1.html"
    assert b"For each new or extended partition: rows, at least 1." in pages.read(name)
    (bootstrap,) = re.findall(rb"\.\./(assets/[^\"']+/bootstrap.min.css)", pages.read(name))
    assert pages.read(bootstrap.decode()) == page_assets()[1]["css/bootstrap.min.css"]
    later = int(time.time() * 1000) + 60_000
    assert pages.delete_older(later) == 1
    left = [key for key in object_store.objects("pages/") if not key.endswith("/")]
    assert left
    assert all(key.startswith("pages/assets/") for key in left)


def test_old_pages_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    pages = QualityPages(str(tmp_path))
    old, new = (Path(pages.write("shop.orders", number, "run", "text")) for number in (1, 2))
    foreign = [tmp_path / "shop.orders" / "notes.html", tmp_path / "index.html", tmp_path / "shop.orders" / "1-a.txt"]
    for file in foreign:
        file.write_text("theirs")
    for file in (old, *foreign):
        os.utime(file, (1, 1))
    assert pages.delete_older(1_000_000, is_dry_run=True) == 1
    assert old.exists()
    assert pages.delete_older(1_000_000) == 1
    assert not old.exists()
    assert all(file.exists() for file in (new, *foreign))


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.com/new.js"></script>',
        "<link rel='stylesheet' href='//cdn.example.com/new.css'>",
        "<style>body { background: url( 'https://cdn.example.com/new.png' ) }</style>",
        '<div style="background: url(https://cdn.example.com/new.png)"></div>',
        '<style>@import "https://cdn.example.com/new.css";</style>',
    ],
)
def test_unknown_load_is_named(text: str) -> None:
    with pytest.raises(ExternalLoadError, match=r"loads .*cdn\.example\.com/new"):
        offline_page(text, "../assets/1")


def test_links_for_people_may_lead_outside() -> None:
    text = '<a href="https://greatexpectations.io">More</a>'
    assert offline_page(text, "../assets/1") == text
