"""A real S3 server, SeaweedFS, which checks signatures and has several users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from standalone.object_store import REGION, RunningObjectStore
from standalone.services import user

__all__ = ["REGION", "ObjectStore"]

_KEY, _SECRET = "calve-tests", "secret-of-the-tests"
_READER_KEY, _READER_SECRET = "reader", "secret-of-the-reader"


class ObjectStore(RunningObjectStore):
    """A running server with a second user, who may only read the bucket `lake`."""

    def __init__(self, folder: Path) -> None:
        reader = user("reader", _READER_KEY, _READER_SECRET, ("Read:lake", "List:lake"))
        super().__init__(folder, keys=(_KEY, _SECRET), more_users=[reader])

    @property
    def environment_of_reader(self) -> dict[str, str]:
        """The variables of a user who may only read the bucket `lake`."""
        return {**self.environment, "AWS_ACCESS_KEY_ID": _READER_KEY, "AWS_SECRET_ACCESS_KEY": _READER_SECRET}

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
