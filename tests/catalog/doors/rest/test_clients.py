"""Clients get tokens for their keys, and may do what their roles say."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from catalog import Catalog
from catalog.doors.rest.routes import ROUTES
from catalog.doors.serving.access import Access, Client, Key, Role
from tests.support.rest_server import error_of, rest_server, set_property

ACCESS = Access(
    keys={
        name: Key(name, f"secret-of-{name}-0123", Client(name, role))
        for name, role in (("reader", Role.READER), ("writer", Role.WRITER), ("owner", Role.OWNER))
    }
)


@pytest.fixture
def guarded(catalog: Catalog) -> Iterator[str]:
    """The address of a server with credentials."""
    with rest_server(catalog, ACCESS) as url:
        yield url


def token(address: str, name: str, secret: str | None = None) -> httpx.Response:
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret or f"secret-of-{name}-0123"}
    return httpx.post(f"{address}/v1/oauth/tokens", data=form, timeout=60)


READER_ROUTES = {
    *("GET /namespaces", "GET /namespaces/{namespace}", "HEAD /namespaces/{namespace}"),
    *("GET /namespaces/{namespace}/tables", "GET /namespaces/{namespace}/views"),
    *("GET /namespaces/{namespace}/tables/{name}", "HEAD /namespaces/{namespace}/tables/{name}"),
    *("GET /namespaces/{namespace}/views/{name}", "HEAD /namespaces/{namespace}/views/{name}"),
    "POST /namespaces/{namespace}/tables/{name}/metrics",
}
WRITER_ROUTES = {"POST /namespaces/{namespace}/tables/{name}", "POST /transactions/commit"}
OWNER_ROUTES = {
    *("POST /namespaces", "DELETE /namespaces/{namespace}", "POST /namespaces/{namespace}/properties"),
    *("POST /namespaces/{namespace}/tables", "POST /namespaces/{namespace}/register"),
    *("DELETE /namespaces/{namespace}/tables/{name}", "POST /tables/rename"),
    *("POST /namespaces/{namespace}/views", "POST /namespaces/{namespace}/register-view"),
    *("POST /namespaces/{namespace}/views/{name}", "DELETE /namespaces/{namespace}/views/{name}"),
    "POST /views/rename",
}


def test_each_request_has_its_role() -> None:
    expected = {
        **dict.fromkeys(READER_ROUTES, Role.READER),
        **dict.fromkeys(WRITER_ROUTES, Role.WRITER),
        **dict.fromkeys(OWNER_ROUTES, Role.OWNER),
    }
    assert {f"{route.method} {route.path}": route.role for route in ROUTES} == expected


def test_roles(guarded: str, catalog: Catalog) -> None:
    assert httpx.get(f"{guarded}/v1/config", timeout=60).status_code == 401
    clients = {}
    for name in ACCESS.keys:
        bearer = token(guarded, name).json()["access_token"]
        clients[name] = httpx.Client(
            timeout=60, base_url=f"{guarded}/v1", headers={"Authorization": f"Bearer {bearer}"}
        )
    body = {"name": "t", "schema": {"type": "struct", "fields": []}}
    change = {"requirements": [], "updates": [set_property("a", "1")]}
    creation = {"requirements": [{"type": "assert-create"}], "updates": []}
    assert error_of(clients["writer"].post("/namespaces/demo/tables", json=body)) == (403, "ForbiddenException")
    assert clients["owner"].post("/namespaces/demo/tables", json=body).status_code == 200
    assert clients["reader"].get("/namespaces/demo/tables/t").status_code == 200
    assert clients["reader"].post("/namespaces/demo/tables/t", json=change).status_code == 403
    assert clients["writer"].post("/namespaces/demo/tables/t", json=change).status_code == 200
    assert clients["writer"].post("/namespaces/demo/tables/new", json=creation).status_code == 403
    assert clients["writer"].delete("/namespaces/demo/tables/t").status_code == 403
    location = clients["reader"].get("/namespaces/demo/tables/t").json()["metadata"]["location"]
    for place, name, status in (
        (location, "writer", 200),
        (f"{location}-moved", "writer", 403),
        (f"{location}-moved", "owner", 200),
    ):
        moved = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
        assert clients[name].post("/namespaces/demo/tables/t", json=moved).status_code == status
    given = set_property("write.data.path", f"{location}-data")
    former = {"action": "set-properties", "updated": given["updates"]}
    for name, update, status in (
        ("writer", given, 403),
        ("writer", former, 403),
        ("owner", given, 200),
        # The writer may repeat the folder that the owner has set.
        ("writer", given, 200),
    ):
        change = {"requirements": [], "updates": [update]}
        assert clients[name].post("/namespaces/demo/tables/t", json=change).status_code == status
    for client in clients.values():
        client.close()


def test_a_server_without_credentials_gives_tokens_to_all(address: str) -> None:
    answer = token(address, "somebody")
    assert answer.status_code == 200
    bearer = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    assert httpx.get(f"{address}/v1/config", timeout=60, headers=bearer).status_code == 200


def test_tokens(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert token(guarded, "owner", "wrong").json()["error"] == "invalid_client"
    assert token(guarded, "nobody").status_code == 401
    for basic in ("Basic é", "Basic eHg=é", "Basic //79"):
        headers, form = {"Authorization": basic.encode()}, {"grant_type": "client_credentials"}
        refused = httpx.post(f"{guarded}/v1/oauth/tokens", data=form, headers=headers, timeout=60)
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client"), basic
    answer = token(guarded, "owner").json()
    assert (answer["token_type"], answer["expires_in"]) == ("bearer", 3600)
    good = answer["access_token"]

    def status(text: str) -> int:
        return httpx.get(
            f"{guarded}/v1/config", timeout=60, headers={"Authorization": f"Bearer {text}".encode()}
        ).status_code

    assert status(good) == 200
    mark, claims, signature = good.split(".")
    for bad in (
        "x",
        good[:-2],
        f"{mark}.{claims[:-2]}.{signature}",
        f"{mark}..{signature}",
        f"{mark}.é.{signature}",
    ):
        assert status(bad) == 401, bad
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": good,
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }
    renewed = httpx.post(f"{guarded}/v1/oauth/tokens", data=exchange, timeout=60).json()["access_token"]
    assert status(renewed) == 200
    foreign = {**exchange, "subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}
    assert (
        httpx.post(f"{guarded}/v1/oauth/tokens", data=foreign, timeout=60).json()["error"] == "unsupported_grant_type"
    )
    with monkeypatch.context() as later:
        later.setattr("catalog.doors.rest.tokens.time.time", lambda: 4e9)
        assert status(good) == 401
