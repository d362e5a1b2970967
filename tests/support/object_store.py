"""A real S3 server, SeaweedFS, which checks signatures and has several users."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.delaying_proxy import DelayingProxy
from catalog.files import object_stores
from standalone.object_store import REGION, RunningObjectStore, client_of
from standalone.services import user

__all__ = ["REGION", "ObjectStore", "counted_requests"]

_KEY, _SECRET = "calve-tests", "secret-of-the-tests"
_READER_KEY, _READER_SECRET = "reader", "secret-of-the-reader"


class StoreClient:
    """Reads and changes objects of an S3 server for tests, with the server and the keys of AWS's variables."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {name: value for name, value in environment.items() if name.startswith("AWS_")}

    @property
    def client(self) -> Any:
        """A boto3 client, which does not wait long."""
        return client_of(self.environment)

    def empty_bucket(self, name: str = "lake") -> None:
        """Delete a bucket and create it again: this server keeps the folders of deleted objects."""
        client = self.client
        if name in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                if keys := [{"Key": entry["Key"]} for entry in page.get("Contents", ())]:
                    client.delete_objects(Bucket=name, Delete={"Objects": keys})
            client.delete_bucket(Bucket=name)
        client.create_bucket(Bucket=name)

    def objects(self, prefix: str = "", bucket: str = "lake") -> list[str]:
        """Return the names of the objects of a bucket."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def put(self, objects: Mapping[str, bytes], bucket: str = "lake") -> None:
        """Store objects."""
        client = self.client
        for key, content in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=content)


class ObjectStore(RunningObjectStore, StoreClient):
    """A running server with a second user, who may only read the bucket `lake`."""

    def __init__(self, folder: Path) -> None:
        reader = user("reader", _READER_KEY, _READER_SECRET, ("Read:lake", "List:lake"))
        super().__init__(folder, keys=(_KEY, _SECRET), more_users=[reader])

    @property
    def environment_of_reader(self) -> dict[str, str]:
        """The variables of a user who may only read the bucket `lake`."""
        return {**self.environment, "AWS_ACCESS_KEY_ID": _READER_KEY, "AWS_SECRET_ACCESS_KEY": _READER_SECRET}


@contextmanager
def counted_requests(store: ObjectStore) -> Iterator[Callable[[], Counter[str]]]:
    """Count the requests of this process; yield `DelayingProxy.take_counts`."""
    with DelayingProxy(store.url, 0) as proxy, patch.dict(os.environ, {"AWS_ENDPOINT_URL": proxy.url}):
        object_stores.forget()
        yield proxy.take_counts
    object_stores.forget()
