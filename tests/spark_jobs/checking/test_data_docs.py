"""Data Docs pages are complete offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
import pytest

from catalog import Column, FileFormat, Table
from catalog.errors import VerificationFailedError
from catalog.settings.quality_rules import ColumnRule, QualityRules
from spark_jobs.checking.data_docs import ExternalLoadError, external_loads, make_self_contained
from spark_jobs.checking.expectations import validate

if TYPE_CHECKING:
    from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with one validation, of which one expectation fails."""
    home = tmp_path_factory.mktemp("docs") / "data_docs"
    table = Table("shop", "orders", (Column("amount", "double"),), (Column("day", "int"),), FileFormat.PARQUET, "/none")
    summary = pandas.DataFrame(
        {
            "partition": ["day=1", "day=<b>2"],
            "partition_id": [1, 2],
            "row_count": [5, 5],
            "row_count_difference": [0, 0],
            "path_agrees": [True, True],
            "values_fit": [True, True],
            "amount_above": [0, 7],
        }
    )
    rules = QualityRules(columns={"amount": ColumnRule(maximum=100)})
    validation = validate(summary, table, rules, pages=str(home), run_name="dag/run")
    assert [check.passed for check in validation.checks] == [True, False]
    page = Path(validation.page)
    assert page.exists()
    return next(folder for folder in page.parents if (folder / "index.html").exists())


def test_page_says_in_words_what_was_checked_and_which_partition_failed(site: Path) -> None:
    (page,) = (site / "validations").rglob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "For each new or extended partition: rows with amount above 100, 0." in text
    assert "day=&lt;b&gt;2" in text
    assert "<b>2" not in text


def test_check_that_cannot_be_made_is_no_verdict(tmp_path: Path) -> None:
    table = Table("shop", "orders", (), (Column("day", "int"),), FileFormat.PARQUET, "/none")
    summary = pandas.DataFrame({"partition": ["day=1"], "partition_id": [1], "row_count": ["many"]})
    with pytest.raises(VerificationFailedError, match="could not be made"):
        validate(summary, table, QualityRules(), pages=str(tmp_path), run_name="run")


def test_no_page_loads_anything_from_outside(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len([page for page in pages if page.suffix == ".html"]) >= 3
    assert {page: external_loads(page) for page in pages} == {page: [] for page in pages}


def test_what_pages_load_is_in_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        local = re.findall(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=[\"']([^\"'#]+)[\"']", page.read_text())
        assert len(local) > 8
        missing = [each for each in local if not each.startswith("data:") and not (page.parent / each).exists()]
        assert missing == []


def test_second_time_changes_nothing(site: Path) -> None:
    before = {page: (page.stat().st_mtime_ns, page.read_bytes()) for page in site.rglob("*.html")}
    make_self_contained(site)
    assert {page: (page.stat().st_mtime_ns, page.read_bytes()) for page in site.rglob("*.html")} == before


def test_page_on_an_object_store_is_one_file(object_store: ObjectStore) -> None:
    table = Table("shop", "orders", (), (Column("day", "int"),), FileFormat.PARQUET, "/none")
    values = {"row_count": [5], "row_count_difference": [0], "path_agrees": [True], "values_fit": [True]}
    summary = pandas.DataFrame({"partition": ["day=1"], "partition_id": [1], **values})
    validation = validate(summary, table, QualityRules(), pages="s3://lake/pages", run_name="dag/run 1")
    assert validation.page == "s3://lake/pages/shop.orders/dag-run-1.html"
    assert object_store.objects("pages/") == ["pages/shop.orders/dag-run-1.html"]
    stored = object_store.client.get_object(Bucket="lake", Key="pages/shop.orders/dag-run-1.html")
    text = stored["Body"].read().decode()
    assert "For each new or extended partition: rows, at least 1." in text
    tags = re.findall(r"<(?:script|link|img|a)\b[^>]*\b(?:src|href)=[\"']([^\"']+)", text)
    assert {tag.partition(":")[0] for tag in tags if not tag.startswith("#")} == {"data", "https", "javascript"}
    assert "bootstrap-table" in text
    assert "/static/" not in text


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
def test_unknown_load_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.html").write_text(text)
    with pytest.raises(ExternalLoadError, match=r"index\.html loads .*cdn\.example\.com/new"):
        make_self_contained(tmp_path)


def test_links_for_people_may_lead_outside(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text('<a href="https://greatexpectations.io">More</a>')
    make_self_contained(tmp_path)
    assert page.read_text() == '<a href="https://greatexpectations.io">More</a>'
