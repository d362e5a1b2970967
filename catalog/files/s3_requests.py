"""Requests to S3 for which PyArrow has no function: empty objects that represent folders, and unfinished uploads.

PyArrow leaves such an object for the folder of a file that it deletes, and can delete a folder only with its contents.
Large files, and all files of Hadoop's magic committer, are uploaded in parts, which the store keeps, and charges for,
until the upload is completed or aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catalog.files.object_stores import s3_client

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
    bucket, _, key = path.partition("/")
    if not key:
        return
    with _as_os_error():
        s3_client(files).delete_object(Bucket=bucket, Key=f"{key.rstrip('/')}/")


def unfinished_uploads(files: S3FileSystem, path: str, before_ms: int) -> list[tuple[str, str]]:
    """Return the keys and ids of the uploads inside a folder that began before a time and are not finished.

    Args:
        files: The file system of the folder.
        path: The bucket and the folder's key.
        before_ms: Time in milliseconds since 1970.

    Raises:
        OSError: The store rejects the request or is unreachable.
    """
    bucket, _, key = path.partition("/")
    with _as_os_error():
        pages = (
            s3_client(files)
            .get_paginator("list_multipart_uploads")
            .paginate(Bucket=bucket, Prefix=f"{key.rstrip('/')}/" if key else "")
        )
        uploads = [upload for page in pages for upload in page.get("Uploads", ())]
    return [
        (upload["Key"], upload["UploadId"]) for upload in uploads if upload["Initiated"].timestamp() * 1000 < before_ms
    ]


def abort_upload(files: S3FileSystem, bucket: str, upload: tuple[str, str]) -> None:
    """Abort an upload, so that the store deletes its parts; do nothing when it has ended.

    Raises:
        OSError: The store rejects the request or is unreachable.
    """
    from botocore.exceptions import ClientError

    key, upload_id = upload
    with _as_os_error():
        try:
            s3_client(files).abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchUpload":
                raise


@contextmanager
def _as_os_error() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(str(error)) from error
