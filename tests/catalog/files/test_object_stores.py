"""Access to a real S3 server: spellings, errors that say what to do, and the settings of each client."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from sqlalchemy import update

from catalog import Catalog
from catalog.errors import (
    InvalidConfigurationError,
    InvalidLocationError,
    MissingFileError,
    SourceFileError,
    StorageError,
)
from catalog.files import object_stores
from catalog.files.failures import storage_errors
from catalog.files.filesystem import Folder
from catalog.files.sources import find_files
from catalog.iceberg.storage import file_io
from catalog.operations.records import OperationKind
from catalog.settings.spark_settings import with_storage
from catalog.storage.schema import OperationRow
from tests.support.object_store import REGION, ObjectStore, StoreClient, counted_requests
from tests.support.watched_endpoint import WatchedEndpoint

NOBODY = "http://127.0.0.1:1"
"""An endpoint where no server is: no process of a user listens on this port."""


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_all_spellings_are_one_store(object_store: ObjectStore, scheme: str) -> None:
    folder = Folder(f"{scheme}://lake/t")
    folder.write_bytes("p=1/a.parquet", b"rows")
    assert object_store.objects() == ["t/p=1/a.parquet"]
    assert [file.path for file in folder.files()] == [f"{scheme}://lake/t/p=1/a.parquet"]
    assert Folder("s3://lake/t").exists("p=1/a.parquet")
    assert [file.size_bytes for file in find_files(f"{scheme}://lake/t/p=*/*.parquet")] == [4]
    assert file_io(f"{scheme}://lake/t/p=1/a.parquet").new_input(f"{scheme}://lake/t/p=1/a.parquet").open().read() == (
        b"rows"
    )


@pytest.fixture
def literal_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreClient]:
    """A server that keeps slashes and dots in names as S3 does; SeaweedFS resolves them."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_REGION": REGION}
    environment |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    object_stores.forget()
    store = StoreClient(environment)
    store.empty_bucket()
    yield store
    server.stop()
    object_stores.forget()


def test_names_that_readers_resolve_are_not_taken_for_other_objects(literal_store: StoreClient) -> None:
    literal_store.put({f"raw/{name}": b"1" for name in ("a.csv", "x/c.csv", "/a.csv", "x//c.csv", "y/../a.csv")})
    assert {file.path for file in Folder("s3://lake/raw").all_files("")} == {
        *("a.csv", "x/c.csv", "/a.csv", "x//c.csv", "y/../a.csv")
    }
    assert Folder("s3://lake").folders("raw") == ["x", "y"]
    names = [entry.path.removeprefix("s3://lake/raw/") for entry, _ in Folder("s3://lake/raw").entries(recursive=False)]
    assert sorted(names) == ["a.csv", "x", "y"]
    with pytest.raises(SourceFileError, match=r"'s3://lake/raw//a.csv' has an empty name, .*rename the object"):
        find_files("s3://lake/raw")
    assert [file.path for file in find_files("s3://lake/raw/*.csv")] == ["s3://lake/raw/a.csv"]
    literal_store.put({"whole/a.csv": b"1"})
    assert [file.path for file in find_files("s3a://lake/whole//")] == ["s3a://lake/whole/a.csv"]
    for source in ("s3a://lake//raw", "s3://lake/./raw/*.csv", "s3://lake/x/../raw"):
        with pytest.raises(SourceFileError, match="has an empty name"):
            find_files(source)


@pytest.mark.parametrize("warehouse", ["s3://lake/wh/", "s3a://lake/wh//", "s3n://lake/"])
def test_a_warehouse_may_end_with_a_slash(object_store: ObjectStore, catalog_url: str, warehouse: str) -> None:
    with Catalog.open(catalog_url, warehouse=warehouse) as catalog:
        catalog.create_database("demo")
        table = catalog.create_table("demo.t", columns=[("v", "int")], partition_keys=[("k", "int")])
        assert table.location == f"{warehouse.rstrip('/')}/demo/t"
        object_store.put({f"{table.location.partition('lake/')[2]}/k=1/a.parquet": b"1"})
        assert catalog.repair_table("demo.t").added == 1


@pytest.mark.parametrize("location", ["s3://lake//t", "s3a://lake/x/../t", "s3://lake/./t"])
def test_a_location_that_readers_resolve_is_refused(object_store: ObjectStore, catalog_url: str, location: str) -> None:
    with Catalog.open(catalog_url, warehouse="s3://lake/wh") as catalog:
        catalog.create_database("demo")
        with pytest.raises(InvalidLocationError, match="has an empty name"):
            catalog.create_table("demo.t", columns=[("v", "int")], location=location)


def test_writing_leaves_no_objects_for_folders(object_store: ObjectStore) -> None:
    with Folder("s3://lake/t").writing("a/b/c") as text:
        text.write("x")
    Folder("s3://lake/t").inside("a").move_files("b", Folder("s3://lake/u"), ["c"])
    assert [key for key in object_store.objects() if not key.endswith("/")] == ["u/c"]


@pytest.mark.parametrize("act", ["list", "write", "look", "abort uploads"])
@pytest.mark.parametrize(
    ("location", "changed", "cause"),
    [
        ("s3://missing/t", {}, "the bucket does not exist; create it"),
        ("s3://lake/t", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "secret key is wrong|check the credentials"),
        ("s3://lake/t", {"AWS_ACCESS_KEY_ID": "wrong"}, "access key is unknown|check the credentials"),
        (
            "s3://lake/t",
            {"AWS_ENDPOINT_URL": NOBODY},
            f"the server {NOBODY} cannot be reached; start it, or correct AWS_ENDPOINT_URL",
        ),
    ],
)
def test_a_wrong_setting_is_named_within_seconds(
    object_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    location: str,
    changed: dict[str, str],
    cause: str,
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    object_stores.forget()
    folder, began = Folder(location), time.monotonic()
    acts = {
        "list": folder.files,
        "write": lambda: folder.write_bytes("a", b"x"),
        "look": lambda: folder.exists("a"),
        "abort uploads": lambda: folder.abort_uploads(0),
    }
    with pytest.raises(StorageError, match=f"{location} cannot be read or written: .*({cause})"):
        acts[act]()
    assert time.monotonic() - began < 30


@pytest.mark.first_case
@pytest.mark.parametrize("act", [Folder.files, lambda folder: folder.abort_uploads(0)], ids=["list", "abort uploads"])
def test_a_server_that_does_not_answer_is_named(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[Folder], object]
) -> None:
    assert object_stores._REQUEST_SECONDS * object_stores._ATTEMPTS <= 60
    monkeypatch.setattr(object_stores, "_REQUEST_SECONDS", 1)
    # The system accepts connections of a socket that listens.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        object_stores.forget()
        began = time.monotonic()
        with pytest.raises(StorageError, match="the server did not answer in time; try again later"):
            act(Folder("s3://lake/t"))
    assert 3 <= time.monotonic() - began < 20


@contextmanager
def refusing_server(status: int, code: str) -> Iterator[str]:
    """Answer all requests with an error that a healthy server does not have; yield the server's URL."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = f"<Error><Code>{code}</Code><Message>The server refuses.</Message></Error>".encode()
            self.send_response(status)
            self.send_header("x-amz-bucket-region", "eu-central-1")
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (400, "ExpiredToken", "the session token has expired; renew the credentials"),
        (400, "InvalidToken", "the session token is invalid; correct AWS_SESSION_TOKEN"),
        (403, "RequestTimeTooSkewed", "the clocks of this host and of the server differ; set this host's clock"),
        (301, "PermanentRedirect", "the bucket is in another region; correct AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region; correct AWS_REGION"),
        (403, "QuotaExceeded", "the store is full, or its quota is used up; delete files there"),
        (507, "InsufficientStorage", "the store is full, or its quota is used up; delete files there"),
        (503, "ServiceUnavailable", "the server is unavailable for a while; try again later"),
        (500, "InternalError", "the server is unavailable for a while; try again later"),
    ],
)
def test_what_to_do_about_a_refusal_is_said(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, status: int, code: str, cause: str
) -> None:
    monkeypatch.setattr(object_stores, "_ATTEMPTS", 1)
    with refusing_server(status, code) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        object_stores.forget()
        folder = Folder("s3://lake/t")
        for act in (folder.files, lambda: folder.write_bytes("a", b"rows"), lambda: folder.abort_uploads(0)):
            with pytest.raises(StorageError, match=f"s3://lake/t cannot be read or written: {cause}"):
                act()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for addresses of this machine that nobody trusts, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "store.pem"
    path.write_bytes(signed.public_bytes(Encoding.PEM) + private)
    return path


def test_a_private_authority_is_trusted_if_it_is_set(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    object_store.put({"t/a": b"rows"})
    acts: list[Callable[[], object]] = [
        lambda: Folder("s3://lake/t").files(),
        lambda: Folder("s3://lake/t").abort_uploads(0),
    ]
    with WatchedEndpoint(object_store.url, tls) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        object_stores.forget()
        for act in acts:
            with pytest.raises(StorageError, match="certificate is not trusted; set AWS_CA_BUNDLE to"):
                act()
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        object_stores.forget()
        for act in acts:
            act()
        assert file_io("s3://lake/t/a").new_input("s3://lake/t/a").open().read() == b"rows"


def test_a_user_who_may_only_read_is_told_so(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    object_store.put({"t/a": b"rows"})
    for name, value in object_store.environment_of_reader.items():
        monkeypatch.setenv(name, value)
    object_stores.forget()
    folder = Folder("s3://lake/t")
    assert folder.exists("a")
    acts = (lambda: folder.write_bytes("b", b"x"), lambda: folder.delete(""), folder.inside("empty").delete_if_empty)
    for act in acts:
        with pytest.raises(StorageError, match="access is denied; check the credentials"):
            act()


def test_a_deletion_names_the_first_cause() -> None:
    message = (
        "Got the following 2 errors when deleting objects in S3 bucket 'lake':\n- key 'a': Disk full.\n- key 'b': x"
    )
    with (
        pytest.raises(StorageError, match=r"bucket 'lake': - key 'a': Disk full; correct"),
        storage_errors("s3://lake"),
    ):
        raise OSError(message)


def test_a_missing_file_is_no_error_of_the_store(object_store: ObjectStore) -> None:
    with pytest.raises(MissingFileError, match="s3://lake/t"):
        Folder("s3://lake/t").open("a")
    assert not Folder("s3://lake/t").exists("a")


def begin_upload(store: ObjectStore, key: str) -> None:
    upload = store.client.create_multipart_upload(Bucket="lake", Key=key)
    store.client.upload_part(Bucket="lake", Key=key, UploadId=upload["UploadId"], PartNumber=1, Body=b"rows")


def unfinished(store: ObjectStore) -> list[str]:
    return [upload["Key"] for upload in store.client.list_multipart_uploads(Bucket="lake").get("Uploads", ())]


def test_uploads_into_a_table_that_has_a_bucket_of_its_own_are_aborted(object_store: ObjectStore) -> None:
    object_store.client.create_multipart_upload(Bucket="lake", Key="k=1/a.parquet")
    later_ms = int(time.time() * 1000) + 60_000
    assert [Folder("s3://lake").abort_uploads(later_ms) for _ in range(2)] == [1, 0]


def test_only_old_uploads_inside_a_folder_are_aborted(object_store: ObjectStore) -> None:
    for key in ("t/a", "t/b/c", "table/a"):
        begin_upload(object_store, key)
    later = int(time.time() * 1000) + 60_000
    assert Folder("s3://lake/t").abort_uploads(later - 3_600_000) == 0
    assert Folder("s3a://lake/t/").abort_uploads(later, is_dry_run=True) == 2
    assert sorted(unfinished(object_store)) == ["t/a", "t/b/c", "table/a"]
    assert Folder("s3://lake/t").abort_uploads(later) == 2
    assert unfinished(object_store) == ["table/a"]
    Folder("s3://lake/table").abort_uploads(later)


def test_vacuum_aborts_uploads_that_nobody_completes(
    object_store: ObjectStore, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Catalog.open(catalog_url, warehouse="s3://lake/wh") as catalog:
        catalog.create_database("shop")
        table = catalog.create_table("shop.visits", columns=[("id", "int")], partition_keys=[("day", "date")])
        begin_upload(object_store, f"{table.location.removeprefix('s3://lake/')}/_calve_staging/a/part")
        # An upload that began just now may be at work, however short the grace period is.
        assert catalog.vacuum(grace=timedelta(0)).total.unfinished_uploads == 0
        monkeypatch.setattr("catalog.maintenance.judging.GRACE", timedelta(0))
        would = catalog.vacuum("shop.visits", grace=timedelta(0), dry_run=True)
        assert str(would) == "shop.visits: would be deleted: 1 unfinished upload(s)"
        assert len(unfinished(object_store)) == 1
        catalog.operations.begin("later", OperationKind.APPEND_ROWS, "shop.visits")
        assert catalog.vacuum("shop.visits", grace=timedelta(0), dry_run=True).total.unfinished_uploads == 1
        catalog.operations.begin("at work", OperationKind.APPEND_ROWS, "shop.visits")
        with catalog.storage.write() as connection:
            connection.execute(update(OperationRow).where(OperationRow.id == "at work").values(created_at_ms=1))
        assert catalog.vacuum("shop.visits", grace=timedelta(0)).total.unfinished_uploads == 0
        catalog.operations.fail("at work", "TEST", "it ended")
        assert catalog.vacuum("shop.visits", grace=timedelta(0)).total.unfinished_uploads == 1
        assert unfinished(object_store) == []


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense", "s3://lake", "http://", "http://[", "http://:9000", "http://a host", "https://host:99999"),
        *("https://host:port", "https://key:secret@host", "https://host?token=secret", "https://host/path#secret"),
    ],
)
def test_an_endpoint_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for act in (lambda: Folder("s3://lake/t"), lambda: with_storage({})):
        with pytest.raises(InvalidConfigurationError, match="AWS_ENDPOINT_URL has no URL of a server") as error:
            act()
        assert "secret" not in str(error.value)


def test_spark_gets_the_same_store_and_no_credentials(object_store: ObjectStore) -> None:
    settings = with_storage({"spark.jars.packages": "a:b:1", "spark.hadoop.fs.s3a.retry.limit": "9"})
    assert settings["spark.hadoop.fs.s3a.endpoint"] == object_store.url
    assert settings["spark.hadoop.fs.s3a.endpoint.region"] == REGION
    assert settings["spark.hadoop.fs.s3a.retry.limit"] == "9"
    assert settings["spark.jars.packages"].startswith("a:b:1,org.apache.hadoop:hadoop-aws:")
    secrets = {value for name, value in object_store.environment.items() if "KEY" in name}
    assert not [name for name, value in settings.items() if value in secrets]


def test_spark_gets_the_settings_of_s3_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "CALVE_ALLOWED_LOCATIONS", "CALVE_SPARK_PACKAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CALVE_TABLES", str(tmp_path / "none.yaml"))
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path))
    assert with_storage({"a": "b"}) == {"a": "b"}
    monkeypatch.setenv("CALVE_WAREHOUSE", "s3a://lake/warehouse")
    assert "spark.hadoop.fs.s3.impl" in with_storage({})
    monkeypatch.setenv("CALVE_SPARK_PACKAGES", "none")
    assert "spark.jars.packages" not in with_storage({})


def test_a_profile_is_named_to_hadoop(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.hadoop.fs.s3a.aws.credentials.provider" not in with_storage({})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert with_storage({})["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith("ProfileCredentialsProvider")


def test_the_printed_settings_are_complete(object_store: ObjectStore, catalog_url: str) -> None:
    from catalog.iceberg.jdbc import spark_conf

    with Catalog.open(catalog_url, warehouse="s3://lake/wh") as catalog:
        lines = dict(line.split(" ", 1) for line in spark_conf(catalog.storage.url).splitlines())
    assert lines["spark.hadoop.fs.s3a.endpoint"] == object_store.url
    for package in ("hadoop-aws", "iceberg-spark-runtime"):
        assert package in lines["spark.jars.packages"]


@pytest.mark.parametrize(
    ("location", "cause"),
    [
        ("hdfs://nowhere:8020/t", "HDFS needs .*; set .*CLASSPATH, the output of hadoop classpath --glob"),
        ("abfss://c@nobody.dfs.core.windows.net/t", "Azure's credentials are missing; set AZURE_TENANT_ID"),
    ],
)
def test_what_another_store_needs_is_named(location: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "HADOOP_", "ARROW_LIBHDFS"))]:
        monkeypatch.delenv(name)
    with pytest.raises(StorageError, match=cause):
        Folder(location).exists("file")


def test_files_whose_source_is_deleted_later_take_one_request_each(object_store: ObjectStore) -> None:
    folder, names = Folder("s3://lake/t"), [f"{number}.parquet" for number in range(5)]
    for name in names:
        folder.write_bytes(f"staging/{name}", name.encode())
    with counted_requests(object_store) as take_counts:
        counted = Folder("s3://lake/t")
        # Repeated, as after a kill.
        for _ in range(2):
            counted.move_files("staging", counted.inside("k=1"), names, is_source_deleted_later=True)
        assert take_counts() == {"COPY": 2 * len(names)}
    folder.delete("staging")
    # Files that were moved are skipped.
    folder.move_files("staging", folder.inside("k=1"), names, is_source_deleted_later=True)
    assert [key for key in object_store.objects("t/") if not key.endswith("/")] == [f"t/k=1/{name}" for name in names]
    with pytest.raises(MissingFileError):
        folder.move_files("staging", folder.inside("k=2"), names, is_source_deleted_later=True)
