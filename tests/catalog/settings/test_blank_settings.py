"""Settings that are empty or blank are as if they were not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog import Catalog
from catalog.errors import CatalogNotConfiguredError, InvalidConfigurationError
from catalog.settings.environment import quality_pages, state_folder
from catalog.settings.places import allowed_locations
from catalog.settings.table_config import read_table_list
from catalog.storage.engine import catalog_url

pytestmark = pytest.mark.parametrize("blank", ["", "  "])


def test_a_blank_warehouse_is_none(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.setenv("CALVE_WAREHOUSE", blank)
    with (
        Catalog.open(catalog.storage.url.render_as_string(hide_password=False)) as opened,
        pytest.raises(InvalidConfigurationError, match="database d has no location and CALVE_WAREHOUSE is not set"),
    ):
        opened.create_database("d")
    assert blank not in allowed_locations()
    assert quality_pages() == str(state_folder() / "quality")


def test_a_blank_url_of_the_catalog_is_none(monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.setenv("CALVE_CATALOG_URL", blank)
    with pytest.raises(CatalogNotConfiguredError, match="CALVE_CATALOG_URL is not set"):
        catalog_url()


def test_a_source_below_an_empty_state_folder_is_below_the_default_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blank: str
) -> None:
    monkeypatch.setenv("CALVE_HOME", blank.strip())
    path = tmp_path / "tables.yaml"
    path.write_text("tables: {shop.t: {source: '${CALVE_HOME}/landing', keys: {k: int}}}")
    assert read_table_list(path).configs["shop.t"].source == f"{state_folder()}/landing"
