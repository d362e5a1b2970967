"""Messages of errors of Spark."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from catalog.errors import CatalogError, EngineError, StorageError
from spark_jobs.sessions.answers import engine_errors

_CALL = "An error occurred while calling o132.load.\n: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "java.nio.file.AccessDeniedException: s3a://lake/t: getFileStatus on s3a://lake/t: "
            "software.amazon.awssdk.services.s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403, Request "
            "ID: 18EB):null",
            "s3a://lake/t cannot be read or written: access is denied; check the credentials",
        ),
        (
            "java.net.ConnectException: getFileStatus on s3a://lake/t: software.amazon.awssdk.core.exception."
            "SdkClientException: Unable to execute HTTP request: Connect to 127.0.0.1:1 [/127.0.0.1] failed: "
            "Connection refused (SDK Attempt Count: 4)",
            "s3a://lake/t cannot be read or written: the server http://127.0.0.1:1 cannot be reached; start it, or "
            "correct AWS_ENDPOINT_URL",
        ),
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://lake/t': getFileStatus on s3a://lake/t: software."
            "amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket does not exist",
            "s3a://lake/t cannot be read or written: the bucket does not exist; create it",
        ),
    ],
)
def test_errors_of_s3_in_spark_tell_what_to_do(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError) as raised, engine_errors("SELECT 1"):
        raise Py4JError(f"{_CALL}{text}\n\tat org.apache.Spark.load(Spark.scala:1)")
    assert str(raised.value).startswith(said)


def test_other_errors_have_the_message_of_the_jvm_and_not_the_name_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.sessions.answers.Py4JJavaError", Py4JError)
    with pytest.raises(EngineError) as raised, engine_errors("SELECT 1"):
        raise Py4JError(f"{_CALL}java.lang.IllegalStateException: no room\n\tat org.apache.Spark.load(Spark.scala:1)")
    error: CatalogError = raised.value
    assert str(error) == "java.lang.IllegalStateException: no room"
