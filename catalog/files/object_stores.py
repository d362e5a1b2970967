"""Object stores: how PyArrow, PyIceberg and Spark reach S3, from one set of settings.

The settings are the environment variables that all clients of AWS know: `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` for
a store that is not Amazon's, `AWS_REGION` or `AWS_DEFAULT_REGION`, and `AWS_CA_BUNDLE` for a private certificate
authority. Credentials are in the environment, in a profile of a credentials file, or come from the machine's role. They
are never settings of Calve, and never on a command line: each client finds them itself.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from catalog.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

S3_SCHEMES = ("s3", "s3a", "s3n")
"""Schemes of one store: Amazon's own, and Hadoop's."""

S3_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    *(
        f"software.amazon.awssdk:{module}:2.54.17"
        for module in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client", "apache5-client", "netty-nio-client")
    ),
    "org.apache.spark:spark-hadoop-cloud_2.13:4.1.2",
)
"""Maven coordinates with which Spark 4.1, and Iceberg's S3FileIO in it, read and write S3; tested together."""

COMMIT_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
"""A class of spark-hadoop-cloud, with which Spark lets each store's committer end a write (`committer_settings`)."""

SECRET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_VARIABLES = (
    *_ENDPOINTS,
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED"),
    *("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"),
    *SECRET_VARIABLES,
)

EXCLUDED_PACKAGES = (
    # Amazon's bundle of all services has 640 MB; the others are among Spark's own jars.
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:wildfly-openssl",
    "io.netty:*",
    "org.apache.httpcomponents:*",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
    "org.slf4j:*",
    # What spark-hadoop-cloud needs for other stores.
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-huaweicloud",
    "org.apache.hadoop:hadoop-cloud-storage",
    "com.google.cloud.bigdataoss:*",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.dataformat:*",
    "joda-time:*",
    "org.eclipse.jetty:*",
)
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_S3A_COMMITTERS = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
_PROFILE = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"

_CONNECT_SECONDS, _REQUEST_SECONDS, _ATTEMPTS = 3, 20, 3
"""A server may be silent for long while it copies a large object, so one that never answers is named after a minute."""
_LEAST_CONNECT_SECONDS_OF_HADOOP = 15
_NOT_OF_SERVERS = re.compile(r"[\s?#]")
_DEFAULT_REGION = "us-east-1"
"""Stores other than Amazon's require a region, and most accept any."""


def is_on_s3(location: str) -> bool:
    """Return whether a location is on S3, in any spelling."""
    scheme, mark, _ = location.partition("://")
    return bool(mark) and scheme.lower() in S3_SCHEMES


def endpoint() -> str | None:
    """Return the URL of the S3 server; None for Amazon's.

    Raises:
        InvalidConfigurationError: The variable has no URL of a server.
    """
    for name in _ENDPOINTS:
        if url := os.environ.get(name):
            if not _is_server(url):
                raise InvalidConfigurationError(
                    f"{name} has no URL of a server; set it to one such as https://s3.example.com:9000, without "
                    "credentials and options"
                )
            return url.rstrip("/")
    return None


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        has_host and parts.scheme in ("http", "https") and "@" not in parts.netloc and not _NOT_OF_SERVERS.search(url)
    )


def region() -> str | None:
    """Return the region of S3; None if it is not set."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def client_variables() -> dict[str, str]:
    """Return the environment variables with which clients reach S3, those with credentials included."""
    return {name: value for name in _VARIABLES if (value := os.environ.get(name))}


def s3_file_system(bucket: str) -> S3FileSystem:
    """Return PyArrow's file system for a bucket; equal settings have the same one.

    Raises:
        InvalidConfigurationError: The endpoint's variable has no URL of a server.
        OSError: Amazon does not know the bucket's region.
    """
    url, known_region = endpoint(), region()
    if known_region is None:
        known_region = _DEFAULT_REGION if url else _region_of(bucket)
    return _s3_file_system(url, known_region, os.environ.get("AWS_CA_BUNDLE") or None)


@lru_cache(maxsize=64)
def _s3_file_system(url: str | None, known_region: str, certificates: str | None) -> S3FileSystem:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    return S3FileSystem(
        endpoint_override=url,
        region=known_region,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        tls_ca_file_path=certificates,
    )


@lru_cache(maxsize=256)
def _region_of(bucket: str) -> str:
    from pyarrow.fs import resolve_s3_region

    return str(resolve_s3_region(bucket))


def s3_client(files: S3FileSystem) -> Any:
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
    from botocore.config import Config

    # A new session: boto3's default one keeps the credentials of its first client.
    return boto3.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_REQUEST_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        ),
    )


def require_bucket(files: S3FileSystem, bucket: str) -> None:
    """Check that a bucket exists, once in a process: PyArrow takes a missing one for an empty one.

    Raises:
        OSError: It does not.
    """
    from pyarrow.fs import FileType

    place = (endpoint(), bucket)
    if place not in _KNOWN_BUCKETS:
        if files.get_file_info(bucket).type == FileType.NotFound:
            raise OSError(f"AWS Error NO_SUCH_BUCKET : {bucket}")
        _KNOWN_BUCKETS.add(place)


def forget() -> None:
    """Forget connections and buckets, after credentials in the environment have changed."""
    _s3_file_system.cache_clear()
    _region_of.cache_clear()
    _client_of.cache_clear()
    _KNOWN_BUCKETS.clear()


_KNOWN_BUCKETS: set[tuple[str | None, str]] = set()


def spark_settings() -> dict[str, str]:
    """Return the settings with which Spark reads and writes S3 in any spelling; they contain no credentials.

    Source: Hadoop's `hadoop-aws`. Its own time-outs let a job wait 220 seconds for a server that is down.
    """
    settings = {
        "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
        "spark.hadoop.fs.s3.impl": _S3A,
        "spark.hadoop.fs.s3n.impl": _S3A,
        "spark.hadoop.fs.s3a.attempts.maximum": str(_ATTEMPTS),
        "spark.hadoop.fs.s3a.retry.limit": str(_ATTEMPTS),
        "spark.hadoop.fs.s3a.connection.establish.timeout": f"{_LEAST_CONNECT_SECONDS_OF_HADOOP}s",
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3": _S3A_COMMITTERS,
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3n": _S3A_COMMITTERS,
        "spark.hadoop.fs.s3a.committer.magic.track.commits.in.memory.enabled": "true",
        # Jobs write into folders of their own, so nobody else has files or markers of folders there.
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir,delete",
    }
    url, known_region = endpoint(), region()
    if url:
        known_region = known_region or _DEFAULT_REGION
        settings["spark.hadoop.fs.s3a.endpoint"] = url
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if known_region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = known_region
    # Hadoop knows the variables with keys, but not those of a profile.
    has_profile = any(os.environ.get(name) for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"))
    if has_profile and not os.environ.get("AWS_ACCESS_KEY_ID"):
        settings["spark.hadoop.fs.s3a.aws.credentials.provider"] = _PROFILE
    return settings


def committer_settings() -> dict[str, str]:
    """Return the settings of a session whose writes to S3 appear where they belong, without a rename.

    A rename is a copy on S3: Spark's own committer makes two for each file. The magic committer of Hadoop uploads files
    to their final keys, where they appear when the job ends. Other file systems keep their committers. The settings
    need `COMMIT_PROTOCOL`. Source: Spark's page "Integration with Cloud Infrastructures".
    """
    return {
        "fs.s3a.committer.name": "magic",
        "spark.sql.sources.commitProtocolClass": COMMIT_PROTOCOL,
        "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    }


_NO_RIGHTS = (
    "access is denied; check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE) and what they "
    "may do there"
)
_UNKNOWN_KEY = "the access key is unknown; correct AWS_ACCESS_KEY_ID or the profile"
_WRONG_REGION = "the bucket is in another region; correct AWS_REGION, or {variable}"
_NO_TLS = "the server{server} does not respond with TLS; correct {variable}, for instance to a URL with http"
_FULL = "the store is full, or its quota is used up; delete files there, or raise the quota"
_UNAVAILABLE = "the server is unavailable for a while; try again later"
_UNREACHABLE = "the server{server} cannot be reached; start it, or correct {variable}"
_NO_ANSWER = "the server did not answer in time; try again later"
_NOT_TRUSTED = (
    "the server's certificate is not trusted; set AWS_CA_BUNDLE to a file with the certificate of its authority"
)

_CAUSES_OF_CODES = {
    "NoSuchBucket": "the bucket does not exist; create it, or correct the location",
    "SignatureDoesNotMatch": "the secret key is wrong; correct AWS_SECRET_ACCESS_KEY or the profile",
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "InvalidClientTokenId": _UNKNOWN_KEY,
    "AccessDenied": _NO_RIGHTS,
    "ExpiredToken": "the session token has expired; renew the credentials (AWS_SESSION_TOKEN or the profile)",
    "InvalidToken": "the session token is invalid; correct AWS_SESSION_TOKEN or the profile",
    "RequestTimeTooSkewed": "the clocks of this host and of the server differ; set this host's clock",
    "PermanentRedirect": _WRONG_REGION,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "QuotaExceeded": _FULL,
    "InsufficientStorage": _FULL,
    "NetworkConnection": _UNREACHABLE,
    "RequestTimeout": _NO_ANSWER,
    "ServiceUnavailable": _UNAVAILABLE,
    "InternalError": _UNAVAILABLE,
    "InternalFailure": _UNAVAILABLE,
    "SlowDown": "the server asks for fewer requests; try again later",
}
"""Codes of S3's errors → what to do."""

_CAUSES_OF_TEXTS = {
    # curl's codes come with PyArrow's code of the network.
    "curlCode: 28,": _NO_ANSWER,
    "curlCode: 35,": _NO_TLS,
    "curlCode: 60,": _NOT_TRUSTED,
    "SSL: CERTIFICATE_VERIFY_FAILED": _NOT_TRUSTED,
    "SSL: WRONG_VERSION_NUMBER": _NO_TLS,
    "Read timeout on endpoint URL": _NO_ANSWER,
    "Could not connect to the endpoint URL": _UNREACHABLE,
    "Connect timeout on endpoint URL": _UNREACHABLE,
    "Connection was closed before we received a valid response": _UNREACHABLE,
    "Unable to locate credentials": _NO_RIGHTS,
    # The deletion of many objects has no code.
    "': Access Denied": _NO_RIGHTS,
    "The config profile (": "the profile does not exist; correct AWS_PROFILE or AWS_SHARED_CREDENTIALS_FILE",
    "Could not create a OAuth2 access token": "Google's credentials are missing; set GOOGLE_APPLICATION_CREDENTIALS",
    "DefaultAzureCredential": "Azure's credentials are missing; set AZURE_TENANT_ID, AZURE_CLIENT_ID and"
    " AZURE_CLIENT_SECRET",
    "Unable to load libjvm": "HDFS needs Java and Hadoop's native client on this host; set JAVA_HOME, HADOOP_HOME and"
    " CLASSPATH, the output of hadoop classpath --glob",
    "Unable to load libhdfs": "HDFS needs Hadoop's native client on this host; set HADOOP_HOME and CLASSPATH, the"
    " output of hadoop classpath --glob",
}
"""Parts of the messages of PyArrow and boto3 → what to do."""

_CODE = re.compile(r"(?:AWS Error |ExceptionName: |An error occurred \()(\w+)")
"""S3's code in messages: PyArrow's, PyArrow's of codes that it does not know, and boto3's."""


def is_missing_key(error: OSError) -> bool:
    """Return whether an object does not exist: PyArrow's error of a copy is no `FileNotFoundError`."""
    return "AWS Error NO_SUCH_KEY " in str(error)


def known_cause(error: Exception) -> str | None:
    """Return what was wrong with a request to a store, and what to do; None for other errors."""
    # Imported late, because settings of stores need no client.
    import pyarrow

    if not isinstance(error, OSError | pyarrow.ArrowException):
        return None
    text = str(error)
    codes = {code.replace("_", "").lower() for code in _CODE.findall(text)}
    cause = next(
        chain(
            (cause for part, cause in _CAUSES_OF_TEXTS.items() if part in text),
            (cause for code, cause in _CAUSES_OF_CODES.items() if code.lower() in codes),
        ),
        None,
    )
    return _with_server(cause)


_CAUSES_IN_SPARK = {
    "UnknownStoreException": _CAUSES_OF_CODES["NoSuchBucket"],
    "NoSuchBucketException": _CAUSES_OF_CODES["NoSuchBucket"],
    "(Service: S3, Status Code: 403": _NO_RIGHTS,
    "NoAuthWithAWSException": _NO_RIGHTS,
    "Unable to load credentials": _NO_RIGHTS,
    "(Service: S3, Status Code: 301": _WRONG_REGION,
    "(Service: S3, Status Code: 503": _UNAVAILABLE,
    "(Service: S3, Status Code: 500": _UNAVAILABLE,
    "Unsupported or unrecognized SSL message": _NO_TLS,
    "unable to find valid certification path": "the server's certificate is not trusted; add that of its authority to"
    " Java's trust store",
    "Unable to execute HTTP request: Connect to": _UNREACHABLE,
    "Unable to execute HTTP request: Read timed out": _NO_ANSWER,
    "UnknownHostException": _UNREACHABLE,
}
"""Parts of the messages of Hadoop's and Iceberg's clients of S3 → what to do; they have few of S3's codes."""
_OF_S3_IN_JAVA = ("software.amazon.awssdk", "org.apache.hadoop.fs.s3a")
_LOCATION_IN_SPARK = re.compile(r"s3[an]?://[^\s:'`,;]+")


def known_cause_in_spark(text: str) -> str | None:
    """Return the location and what was wrong with a request to S3, from the message of an exception of Spark's JVM.

    Returns:
        A sentence with what to do; None for other errors.
    """
    if not any(package in text for package in _OF_S3_IN_JAVA):
        return None
    cause = _with_server(next((cause for part, cause in _CAUSES_IN_SPARK.items() if part in text), None))
    location = _LOCATION_IN_SPARK.search(text)
    return cause and f"{location[0] if location else 'S3'} cannot be read or written: {cause}"


def _with_server(cause: str | None) -> str | None:
    """Return a cause with the server's URL, and the variable that has it."""
    if cause is None or "{" not in cause:
        return cause
    set_variables = [name for name in _ENDPOINTS if os.environ.get(name)]
    server = f" {endpoint()}" if set_variables else ""
    return cause.format(server=server, variable=(set_variables or _ENDPOINTS)[0])
