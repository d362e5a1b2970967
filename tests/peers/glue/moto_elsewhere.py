"""Plugin of pytest: moto's own tests of Glue against a server that runs elsewhere, which each test finds empty.

`mock_aws` and `freeze_time` do nothing. `PEER_REFERENCE` names a JSON file of the tests to run, and of those that give
partitions another number of values than their table has keys, which moto accepts and Glue refuses: their tables get as
many keys. Outcomes are written to `PEER_OUTCOMES`, one JSON object in a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import moto
import moto.core
import moto.settings
import pytest
from botocore.exceptions import ClientError

_REFERENCE = json.loads(Path(os.environ["PEER_REFERENCE"]).read_text())
_IN_THIS_PROCESS = {"test_get_partition_expression_warnings_and_exceptions"}
"""Tests that moto skips for servers, without need."""

_client = boto3.client
_running = ""


class _Nothing(contextlib.ContextDecorator):
    """Stands for `mock_aws` and `freeze_time`: a decorator, with or without arguments, or a context."""

    def __new__(cls, target: Any = None, *_: Any, **__: Any) -> Any:
        return target if callable(target) else super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    start = stop = reset = tick = lambda self, *_, **__: None


def _new_client(service: str, region_name: str | None = None, **options: Any) -> Any:
    client = _client(service, region_name=region_name, **options)
    client.meta.events.register("before-parameter-build.glue.CreateTable", _fit_keys)
    return client


def _fit_keys(params: dict[str, Any], **_: Any) -> None:
    table = params["TableInput"]
    count = _REFERENCE["keys"].get(_running, {}).get(f"{params['DatabaseName']}.{table['Name']}")
    if count:
        table["PartitionKeys"] = [{"Name": f"key{number}", "Type": "string"} for number in range(count)]


moto.mock_aws = _Nothing
sys.modules["freezegun"] = freezegun = ModuleType("freezegun")
freezegun.freeze_time = _Nothing  # type: ignore[attr-defined]
moto.settings.TEST_SERVER_MODE, moto.settings.TEST_DECORATOR_MODE = True, False
moto.core.DEFAULT_ACCOUNT_ID = "123456789012"
boto3.client = _new_client


def _named(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/test_glue/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _named(item) in _REFERENCE["passed"]]


@pytest.fixture(autouse=True)
def _emptied_server(request: pytest.FixtureRequest) -> Iterator[None]:
    global _running
    _running = _named(request.node)
    _empty(boto3.client("glue"))
    moto.settings.TEST_SERVER_MODE = request.node.originalname not in _IN_THIS_PROCESS
    yield
    moto.settings.TEST_SERVER_MODE = True


def _empty(client: Any) -> None:
    for page in client.get_paginator("get_databases").paginate():
        for database in page["DatabaseList"]:
            # The database `default` may be there again at once.
            with contextlib.suppress(ClientError):
                client.delete_database(Name=database["Name"])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = (yield).get_result()  # type: ignore[misc]  # pluggy's result
    if report.when == "call" or not report.passed:
        reason = call.excinfo.exconly(tryshort=True)[:600] if call.excinfo is not None else ""
        with open(os.environ["PEER_OUTCOMES"], "a") as file:
            file.write(json.dumps({"test": _named(item), "outcome": report.outcome, "reason": reason}) + "\n")
