"""The S3 server of benchmarks and tests: what is said when it does not start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from standalone.errors import StackError
from standalone.object_store import START_SECONDS, RunningObjectStore
from standalone.services import ObjectStore, Service


def test_a_server_that_ends_at_once_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("/bin/sh", "-c", "echo no space left; exit 3")
    monkeypatch.setattr(ObjectStore, "service", lambda _: Service("s3", command))
    store, began = RunningObjectStore(tmp_path), time.monotonic()
    with pytest.raises(StackError, match="no space left"):
        store.start()
    assert time.monotonic() - began < START_SECONDS / 2


def test_only_its_owner_can_read_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStore, "service", lambda _: Service("s3", ("/bin/false",)))
    with pytest.raises(StackError):
        RunningObjectStore(tmp_path).start()
    assert (tmp_path / "users.json").stat().st_mode & 0o777 == 0o600
