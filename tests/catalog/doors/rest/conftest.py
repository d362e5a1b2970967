"""A server of Iceberg's REST protocol over a fresh catalog, and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from catalog import Catalog
from tests.support.rest_server import rest_server


@pytest.fixture
def address(catalog: Catalog) -> Iterator[str]:
    """The address of a server over `catalog`."""
    with rest_server(catalog) as url:
        yield url


@pytest.fixture
def rest(address: str) -> RestCatalog:
    """PyIceberg's client."""
    return RestCatalog("calve", uri=address)


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    """A client of HTTP, for the paths below the prefix."""
    with httpx.Client(base_url=f"{address}/v1/calve", timeout=60) as client:
        yield client


Create = Callable[..., httpx.Response]


@pytest.fixture
def create(http: httpx.Client) -> Create:
    """Creates a table with the columns `id` and `note`."""

    def create(name: str = "t", **more: object) -> httpx.Response:
        fields = [
            {"id": 7, "name": "id", "type": "long", "required": True},
            {"id": 9, "name": "note", "type": "string", "required": False},
        ]
        body = {"name": name, "schema": {"type": "struct", "fields": fields}, **more}
        return http.post("/namespaces/demo/tables", json=body)

    return create
