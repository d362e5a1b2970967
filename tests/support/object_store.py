"""A real S3 server, SeaweedFS, which checks signatures and has several users."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from standalone.postgres import HOST, free_ports
from standalone.services import ObjectStore as Server
from standalone.services import user, users_file

REGION = "us-east-1"
_KEY, _SECRET = "calve-tests", "secret-of-the-tests"
_READER_KEY, _READER_SECRET = "reader", "secret-of-the-reader"
_START_SECONDS = 60


class ObjectStore:
    """A running server; a context manager that starts and stops it.

    Attributes:
        url: The endpoint, which stays the same when the server is started again.
        client: A boto3 client of a user who may do everything.
    """

    def __init__(self, folder: Path) -> None:
        """Choose free ports, and keep the server's files in a folder."""
        self._folder = folder
        self._server = Server(
            str(Path(sys.executable).with_name("weed")),
            folder,
            folder / "users.json",
            HOST,
            HOST,
            free_ports(Server.PORTS),
        )
        self.url = self._server.url
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which clients of S3 find the server, as a user who may do everything."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def environment_of_reader(self) -> dict[str, str]:
        """The variables of a user who may only read the bucket `lake`."""
        return {**self.environment, "AWS_ACCESS_KEY_ID": _READER_KEY, "AWS_SECRET_ACCESS_KEY": _READER_SECRET}

    def __enter__(self) -> Self:
        """Start the server, and wait until it takes objects."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()

    def start(self) -> None:
        """Start the server with the objects that it had."""
        self._server.users.write_text(
            users_file(
                user("admin", _KEY, _SECRET),
                user("reader", _READER_KEY, _READER_SECRET, ("Read:lake", "List:lake")),
            )
        )
        service = self._server.service()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                service.command,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **service.environment},
            )
        self._wait()

    def _wait(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with suppress(
                    self.client.exceptions.BucketAlreadyOwnedByYou, self.client.exceptions.BucketAlreadyExists
                ):
                    self.client.create_bucket(Bucket="ready")
                self.client.put_object(Bucket="ready", Key="ready", Body=b"")
                return
            except (BotoCoreError, ClientError):
                assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2000:]
                time.sleep(0.1)

    def stop(self) -> None:
        """Stop the server at once; its objects stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
            config=Config(connect_timeout=2, read_timeout=10, retries={"max_attempts": 1}),
        )

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
