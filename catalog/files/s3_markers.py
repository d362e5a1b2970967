"""Empty objects that represent folders on S3.

PyArrow leaves one for the folder of a file that it deletes, and can delete a folder only with its contents.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem


def delete_marker(files: S3FileSystem, path: str) -> None:
    """Delete the object that represents a folder, but nothing inside; do nothing when it does not exist.

    Args:
        files: The file system of the folder.
        path: The bucket and the folder's key.

    Raises:
        OSError: The store rejects the request or is unreachable.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = path.partition("/")
    try:
        _client(files).delete_object(Bucket=bucket, Key=f"{key.rstrip('/')}/")
    except (BotoCoreError, ClientError) as error:
        raise OSError(str(error)) from error


def _client(files: S3FileSystem) -> Any:
    """Return a boto3 client for PyArrow's store, whose options are only accessible through pickling."""
    options = files.__reduce__()[1][0]
    endpoint = options["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    credentials = (options["access_key"], options["secret_key"], options["session_token"])
    return _client_of(endpoint or None, files.region or None, *(value or None for value in credentials))


@lru_cache(maxsize=4)
def _client_of(endpoint: str | None, region: str | None, key: str | None, secret: str | None, token: str | None) -> Any:
    # Imported late, because it is large and only tables on S3 need it.
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
    )
