"""A request with an idempotency key is carried out once, and answered again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog import Catalog
from catalog.engine_tables import answers
from catalog.engine_tables.answers import Claim, GivenAnswer, GivenAnswers
from catalog.engine_tables.tables import EngineTables
from catalog.storage.interrupting import Task, begin
from tests.support.metadata_updates import write_list
from tests.support.rest_server import error_of, properties_of, set_property

Create = Callable[..., httpx.Response]


@pytest.mark.smoke
def test_a_repeated_request_gets_the_same_answer(http: httpx.Client, create: Create) -> None:
    create()
    key = {"Idempotency-Key": str(uuid.uuid4())}
    change = {"requirements": [], "updates": [set_property("a", "1")]}
    first, second = (http.post("/namespaces/demo/tables/t", json=change, headers=key) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert first.headers["etag"] == second.headers["etag"]
    other = {"requirements": [], "updates": [set_property("a", "2")]}
    assert http.post("/namespaces/demo/tables/t", json=other, headers=key).status_code == 400
    assert properties_of(http)["a"] == "1"
    drop = {"Idempotency-Key": str(uuid.uuid4())}
    assert [http.delete("/namespaces/demo/tables/t", headers=drop).status_code for _ in range(2)] == [204, 204]
    assert http.delete("/namespaces/demo/tables/t").status_code == 404
    gone = {"Idempotency-Key": str(uuid.uuid4())}
    assert [http.delete("/namespaces/demo/tables/t", headers=gone).status_code for _ in range(2)] == [404, 404]
    assert http.delete("/namespaces/demo/tables/t", headers={"Idempotency-Key": "x"}).status_code == 400


def test_the_answer_to_a_commit_is_stored_with_it(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    # A process that dies right after the commit has stored the answer.
    monkeypatch.setattr(GivenAnswers, "finish", lambda *_arguments: pytest.fail("it is stored already"))
    key = {"Idempotency-Key": str(uuid.uuid4())}
    location = http.get("/namespaces/demo/tables/t").json()["metadata"]["location"]
    snapshot = {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": 4_000_000_000_000,
        "manifest-list": f"{location}/metadata/snap-1.avro",
        "summary": {"operation": "append"},
    }
    write_list(Path(location, "metadata/snap-1.avro"))
    change = {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}]}
    first, second = (http.post("/namespaces/demo/tables/t", json=change, headers=key) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert len(second.json()["metadata"]["snapshots"]) == 1


def test_one_of_many_equal_requests_is_carried_out(http: httpx.Client, create: Create) -> None:
    create()
    key = {"Idempotency-Key": str(uuid.uuid4())}
    names = {"namespace": ["once"]}
    barrier = threading.Barrier(6)

    def send(_number: int) -> int:
        barrier.wait()
        return http.post("/namespaces", json=names, headers=key).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(send, range(6)))
    # A conflict would tell a client that its change was not made.
    assert set(statuses) <= {200, 503}
    assert http.post("/namespaces", json=names, headers=key).status_code == 200


def test_a_repetition_of_a_request_that_still_runs_is_told_to_wait(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    begun, go_on, drop = threading.Event(), threading.Event(), EngineTables.drop

    def slow(*arguments: Any, **options: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        drop(*arguments, **options)

    monkeypatch.setattr(EngineTables, "drop", slow)
    key = {"Idempotency-Key": str(uuid.uuid4())}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.delete, "/namespaces/demo/tables/t", headers=key)
        assert begun.wait(30)
        second = http.delete("/namespaces/demo/tables/t", headers=key)
        go_on.set()
        assert first.result().status_code == 204
    assert error_of(second) == (503, "ServiceUnavailableException")
    assert second.headers["retry-after"] == "1"
    assert http.delete("/namespaces/demo/tables/t", headers=key).status_code == 204


def test_a_repetition_that_takes_over_is_carried_out_instead_of_the_first_request(
    http: httpx.Client, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    begun, go_on, commit = threading.Event(), threading.Event(), EngineTables.commit

    def slow(*arguments: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(30)
        return commit(*arguments, **options)

    monkeypatch.setattr(EngineTables, "commit", slow)
    monkeypatch.setattr(answers, "_ABANDONED_MS", -1)
    key = {"Idempotency-Key": str(uuid.uuid4())}
    change = {"requirements": [], "updates": [set_property("a", "1")]}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.post, "/namespaces/demo/tables/t", json=change, headers=key)
        assert begun.wait(30)
        second = http.post("/namespaces/demo/tables/t", json=change, headers=key)
        go_on.set()
        assert error_of(first.result()) == (503, "ServiceUnavailableException")
    assert second.status_code == 200
    # The first request has changed nothing.
    assert http.get("/namespaces/demo/tables/t").json()["metadata"] == second.json()["metadata"]


def test_a_request_that_runs_out_of_time_gives_its_key_back(catalog: Catalog) -> None:
    given = GivenAnswers(catalog.storage)
    task, context = Task(), copy_context()
    context.run(begin, task)
    released, ended = (context.run(given.claim, key, bytes(32)) for key in ("rest/released", "rest/ended"))
    assert isinstance(released, Claim)
    assert isinstance(ended, Claim)
    task.interrupt()
    context.run(given.release, released)
    context.run(given.finish, ended, GivenAnswer(204, None))
    assert isinstance(given.claim(released.key, bytes(32)), Claim)
    assert given.claim(ended.key, bytes(32)) == GivenAnswer(204, None)
