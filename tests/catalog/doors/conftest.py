from __future__ import annotations

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries


@pytest.fixture
def entries(catalog: Catalog) -> Entries:
    return Entries(catalog)
