"""Tasks do not contain the password of the catalog's database; executors read it from their environment."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
from sqlalchemy import make_url

from spark_jobs.sessions.executor_catalog import address_of, executor_url
from spark_jobs.writing.index_backfill import run_task

URL = "postgresql+psycopg://calve:planted@db:5432/calve?sslpassword=planted&sslmode=require"


def test_a_task_carries_no_password() -> None:
    address = address_of(make_url(URL))
    assert make_url(address).host == "db"
    assert b"planted" not in pickle.dumps(partial(run_task, address))


def test_an_executor_takes_the_password_of_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_CATALOG_URL", "postgresql://calve:own@db/another?sslpassword=own2")
    url = make_url(executor_url(address_of(make_url(URL))))
    assert (url.password, url.database, url.query["sslpassword"]) == ("own", "calve", "own2")


@pytest.mark.parametrize("own", [None, "postgresql://calve:own@other/calve", "postgresql://somebody:own@db/calve"])
def test_an_executor_without_settings_leaves_the_password_to_libpq(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALVE_CATALOG_URL", raising=False)
    if own is not None:
        monkeypatch.setenv("CALVE_CATALOG_URL", own)
    assert make_url(executor_url(address_of(make_url(URL)))).password is None
