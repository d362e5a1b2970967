"""A running S3 server for benchmarks and tests."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from standalone.errors import StackError
from standalone.postgres import HOST, free_ports
from standalone.services import ObjectStore, user, users_file
from standalone.state import write_private

REGION = "us-east-1"
START_SECONDS = 60.0
_READY = "ready"
"""The bucket, and its object, with which a start checks that the server stores objects."""


class RunningObjectStore:
    """A running SeaweedFS; a context manager that starts and stops it.

    Attributes:
        url: The endpoint, which stays the same when the server is started again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keys: tuple[str, str] | None = None,
        more_users: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """Choose free ports, and keep the server's files in an existing folder.

        Args:
            folder: The objects, the log and the users.
            keys: Access key and secret key of a user who may do everything; random by default.
            more_users: Results of `services.user`.
        """
        self._folder = folder
        self._keys = keys or (secrets.token_hex(10), secrets.token_urlsafe(30))
        self._users = [user("admin", *self._keys), *more_users]
        weed = str(Path(sys.executable).with_name("weed"))
        ports = free_ports(ObjectStore.PORTS)
        self._server = ObjectStore(weed, folder, folder / "users.json", HOST, HOST, ports)
        self.url = self._server.url
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which clients of S3 find the server, as a user who may do everything."""
        return client_variables(self.url, *self._keys)

    @property
    def client(self) -> Any:
        """A new boto3 client of a user who may do everything."""
        return client_of(self.environment)

    def __enter__(self) -> Self:
        """Start the server, and wait until it takes objects."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()

    def start(self) -> None:
        """Start the server with the objects that it had.

        Raises:
            StackError: It ended, or does not take objects within a minute.
        """
        write_private(self._server.users, users_file(*self._users))
        service = self._server.service()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                service.command,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **service.environment},
            )
        deadline = time.monotonic() + START_SECONDS
        while not takes_objects(self.client, _READY):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise StackError(f"The S3 server did not start. The end of its log:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the server at once; its objects stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def _log(self) -> Path:
        return self._folder / "log"


def client_variables(url: str, key: str, secret: str) -> dict[str, str]:
    """Return the variables with which clients of S3 find a server, as the user of an access key and its secret key."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client_of(variables: Mapping[str, str]) -> Any:
    """Return a boto3 client with the server and the keys of `client_variables`, which does not wait long."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=Config(connect_timeout=2, read_timeout=10, retries={"max_attempts": 1}),
    )


def takes_objects(client: Any, bucket: str) -> bool:
    """Return whether a server stores objects, which is later than it responds; create the bucket unless it exists."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        if bucket not in [listed["Name"] for listed in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key=_READY, Body=b"")
    except (BotoCoreError, ClientError):
        return False
    return True
