"""Locations, sources and hosts that are not allowed are refused in all spellings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import InvalidLocationError, LocationNotAllowedError, SourceFileError
from catalog.files.filesystem import Folder
from catalog.settings.places import (
    allowed_files,
    require_endpoint,
    require_host,
    require_location,
    require_own_folder,
    require_properties,
)
from catalog.statements.engine import Engine
from catalog.statements.parser import parse_statement
from catalog.statements.session import Session
from tests.support.object_store import ObjectStore
from tests.support.sources import list_source

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allowed folder with a link out of it, beside a folder that is not allowed and a list with one source."""
    folder = tmp_path / "warehouse"
    foreign = tmp_path / "foreign"
    for each in (folder, foreign, tmp_path / "landing"):
        each.mkdir()
    (foreign / "secrets.csv").write_text("id\nplanted\n")
    (folder / "link").symlink_to(foreign)
    (folder / "linked.csv").symlink_to(foreign / "secrets.csv")
    (tmp_path / "landing" / "a.csv").write_text("id\n1\n")
    list_source(monkeypatch, tmp_path, f"{tmp_path}/landing/*.csv")
    monkeypatch.setenv("CALVE_WAREHOUSE", str(folder))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "s3://lake/sales, hdfs://name:8020/data")
    monkeypatch.setenv("CALVE_ALLOWED_HOSTS", "metastore:9083, glue.local")
    return folder


@pytest.mark.parametrize(
    "location",
    [
        "{warehouse}",
        "{warehouse}/a/b",
        "file://{warehouse}/a",
        "file:{warehouse}/a%20b",
        "{warehouse}/a/../b",
        "{warehouse}/../landing/x.csv",
        "s3://lake/sales/2020",
        "s3a://lake/sales",
        "S3N://lake/./sales//x",
        "hdfs://name:8020/data/x",
        "hdfs://name:8020/data/a@b",
        "hdfs://NAME/data/x",
    ],
)
def test_a_location_below_an_allowed_folder_is_allowed(warehouse: Path, location: str) -> None:
    require_location(location.format(warehouse=warehouse))


@on_sqlite
def test_a_partition_may_not_be_behind_a_link_in_its_tables_folder(catalog: Catalog, warehouse: Path) -> None:
    table = catalog.create_table("demo.linked", columns=[("v", "int")], partition_keys=[("k", "int")])
    root = Path(table.location)
    root.mkdir(parents=True, exist_ok=True)
    (root / "link").symlink_to(warehouse.parent / "foreign")
    (root / "inside").symlink_to(root)
    for location in (f"{root}/link", f"{root}/link/x/y", f"{root}/inside/link"):
        with pytest.raises(LocationNotAllowedError, match="is outside all allowed folders"):
            catalog.add_partitions(table.full_name, [NewPartition(("1",), location)])
    catalog.add_partitions(table.full_name, [NewPartition(("2",), f"{root}/other")])


FOREIGN = [
    "{warehouse}/../foreign",
    "{warehouse}2",
    "/etc",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "{warehouse}/link/x",
    "file://{warehouse}/a/../../foreign",
    "file://{warehouse}/%2e%2e/foreign",
    "{warehouse}/%2E%2E/foreign",
    "file://{warehouse}/[x]/../../foreign",
    "~/x",
    "s3://lake/sales-private",
    "s3://lake/sales/../private",
    "s3://lake/sales/%2e%2e/private",
    "s3://other/sales",
    "s3://lake/sales?endpoint_override=attacker:80",
    "http://lake/sales",
    "hdfs://name:8021/data",
    "hdfs://other/data",
    "hdfs:///data",
    "viewfs://name:8020/data",
    "viewfs:///data",
]


@pytest.mark.parametrize("location", FOREIGN)
def test_every_other_location_is_refused(warehouse: Path, location: str) -> None:
    with pytest.raises(LocationNotAllowedError, match="CALVE_ALLOWED_LOCATIONS"):
        require_location(location.format(warehouse=warehouse))


@pytest.mark.parametrize(
    "location", ["s3://lake/sales/2020", "s3a://lake/sales/", "{warehouse}/a/", "file:{warehouse}/a"]
)
def test_a_property_may_be_a_location_below_an_allowed_folder(warehouse: Path, location: str) -> None:
    require_properties({"write.data.path": location.format(warehouse=warehouse)})


@pytest.mark.parametrize("name", ["write.location-provider.impl", " Write.Py-Location-Provider.impl"])
@pytest.mark.usefixtures("warehouse")
def test_a_property_that_loads_a_class_of_writers_is_refused(name: str) -> None:
    with pytest.raises(LocationNotAllowedError, match=r"load the class 'os\.path\.X'.*set write\.data\.path"):
        require_properties({name: "os.path.X"})
    require_properties({name: ""})


@pytest.mark.parametrize(
    "name",
    [
        *("py-io-impl", " IO-Impl", "uri", "token", "s3.endpoint", "S3.signer.uri", "s3.secret-access-key"),
        *("client.factory", "client.role-arn", "client.assume-role.arn", "adls.sas-token.x", "gcs.service.host"),
        *("option.fs.s3a.endpoint", "Option.fs.file.impl", "fs.s3a.secret.key", "hdfs.host"),
    ],
)
@pytest.mark.usefixtures("warehouse")
def test_a_property_that_configures_the_clients_of_all_readers_is_refused(name: str) -> None:
    with pytest.raises(LocationNotAllowedError, match="configuration of your own client") as refusal:
        require_properties({name: "planted"})
    assert "planted" not in str(refusal.value)
    require_properties({name: ""})


@pytest.mark.usefixtures("warehouse")
def test_properties_of_other_names_are_not_taken_for_those_of_clients() -> None:
    names = (
        "client",
        "client.id",
        "uris",
        "tokens",
        "write.token",
        "s3",
        "owner.uri",
        "comment",
        "read.split.target-size",
    )
    require_properties(dict.fromkeys(names, "x"))


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "path"])
@pytest.mark.parametrize(
    "location",
    [
        *("s3://lake/private/../sales", "s3://lake//sales", "s3://lake/./sales", "s3://lake/sales//x"),
        *("s3://lake/sales/../../private", "{warehouse}/../foreign", "{warehouse}/a/../b", "file://{warehouse}//a"),
    ],
)
def test_a_property_that_object_stores_take_literally_is_refused(warehouse: Path, name: str, location: str) -> None:
    with pytest.raises(LocationNotAllowedError):
        require_properties({name: location.format(warehouse=warehouse)})


@pytest.mark.parametrize("allowed", ["*", ""])
@pytest.mark.parametrize(
    "location",
    [
        *("s3://key:planted@lake/sales", "S3A://key:plan/ted@lake", "hdfs://me:planted@name:8020/data"),
        "s3://key:pl@n/t@lake/sales",
        "s3://lake/sales?secret_key=planted&region=eu-west-1",
        "abfss://box@account/sales?tenant_id=1&client_secret=planted",
        "https://account/box/a.csv?sv=1&sig=planted",
        *(
            "s3a:/KEY:planted@b/x",
            "s3a:KEY:planted@b/x",
            "s3a:\\\\KEY:planted@b",
            "KEY%3Aplanted@b",
            " s3://K:planted@b",
        ),
        *("s3a://KEY%3Aplanted@b/x", "s3a://KEY:planted%2540b/x", "s3a%3A//KEY:planted@b/x", "s3a://a\n:planted@b/x"),
        *("s3a://KEY:12/planted@b/x", "s3a://KEY:9083/planted@b", "s3a://KEY:1?planted@b/x", "sftp://u:1/@h/planted"),
        *("https://planted@host", "ftp://u:1234@h/planted", "s3a://KEY:@b/planted", "abfss://c:planted@a/x"),
        *("s3://b/x?%73ecret_key=planted", "s3://b/x%3Fpwd%3Dplanted", "s3://b/x?endpoint_override=u:planted@h"),
        *("abfss://c@a/x?sv=1;sig=planted", "abfss://c@a/x#sig=planted", "abfss://c@a/x;SIG=planted"),
        *(f"s3://b/x?{name}=planted" for name in ("access-key", "account-key", "api_key", "key", "pass", "sas")),
        *(f"s3://b/x?{name}=planted" for name in ("credential", "auth", "private_key", "sharedkey", "bearer")),
        *("jdbc:postgresql:db?user=a&password=planted", "jdbc:sqlserver://h;user=a;password=planted"),
        *("jdbc:oracle:thin:scott/planted@h:1521/x", "jdbc:mysql://(host=h,password=planted)/db"),
    ],
)
def test_a_password_in_a_location_is_refused_and_not_shown(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, location: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", allowed)
    with pytest.raises(InvalidLocationError, match="has a password") as refusal:
        require_location(location)
    assert "location " in str(refusal.value)
    assert not any(part in str(refusal.value) for part in ("plan", "pl@", "n/t"))
    with pytest.raises(InvalidLocationError, match=r"^source .* has a password") as refusal:
        allowed_files(location)
    assert "plan" not in str(refusal.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE DATABASE d LOCATION {place}",
        "CREATE TABLE t (id int) STORED AS PARQUET LOCATION {place}",
        "CREATE TABLE t (id int) STORED AS PARQUET TBLPROPERTIES ('Path'={place})",
        "ALTER TABLE t SET TBLPROPERTIES ('write.data.path'={place})",
        "ALTER TABLE t SET LOCATION {place}",
        "ALTER TABLE t ADD PARTITION (k=1) PARTITION (k=2) LOCATION {place}",
        "ALTER TABLE t PARTITION (k=1) SET LOCATION {place}",
        "LOAD DATA INPATH {place} INTO TABLE t",
        "CALL iceberg.system.snapshot(schema_name => 'd', table_name => 't', target_table_name => 'x', "
        "target_location => {place})",
    ],
)
def test_a_statement_with_a_password_in_a_location_is_refused_when_it_is_read(statement: str) -> None:
    assert parse_statement(statement.format(place="'s3://lake/x'"))
    with pytest.raises(InvalidLocationError, match=r"'s3://\*\*\*' has a password") as refusal:
        parse_statement(statement.format(place="'s3://key:planted@lake/x'"))
    assert "planted" not in str(refusal.value)
    assert refusal.value.position is not None


@pytest.mark.parametrize(
    "location",
    [
        *("/data/x?password=1", "file:/data/a:b@c", "hdfs://name:8020/data/a@b", "viewfs://cluster/x@y"),
        *("abfss://box@account.dfs.core.windows.net/x", "wasb://box@account/x?version=1", "s3://lake/a@b/c:d"),
        *("s3://lake/m=0?/d=1/*.csv", "s3://lake?region=eu-west-1&endpoint_override=h:80", "s3://lake/k=a%3Bb/j=%40"),
        *("s3://lake/a#b", "hdfs://[::1]:8020/x", "gs://lake/t/at=10%3A30"),
    ],
)
def test_a_location_without_a_password_is_taken(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    require_location(location)


@on_sqlite
def test_a_value_of_a_partition_may_look_like_an_option(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "s3://lake")
    catalog.create_database("shop")
    catalog.create_table("shop.t", columns=[("id", "int")], partition_keys=[("k", "string")], location="s3://lake/t")
    catalog.add_partitions("shop.t", [NewPartition(["a?pass=b"], "s3://lake/t/k=a%3Fpass%3Db")])
    for place in ("s3://lake/t/x?pass=planted", "s3://lake/u/k=a%3Fpass%3Dplanted"):
        with pytest.raises(InvalidLocationError, match="has a password") as refusal:
            catalog.add_partitions("shop.t", [NewPartition(["c"], place)])
        assert "planted" not in str(refusal.value)


@pytest.mark.parametrize(
    "source", ["/*.csv", "//*.csv", "/*/a.csv", "/[e]tc/*", "/etc/../*.csv", "file:///*.csv", "s3://*/x", "s3://", "/"]
)
def test_a_listed_source_in_the_root_allows_nothing(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (warehouse.parent / "tables.yaml").write_text(f"tables:\n  shop.t:\n    source: '{source}'\n    keys: {{k: int}}\n")
    for location in ("/etc", "/", "s3://other/x", str(warehouse.parent / "foreign")):
        with pytest.raises(LocationNotAllowedError):
            require_location(location)
    require_location(str(warehouse))


def test_a_listed_glob_without_folder_allows_the_working_folder(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (warehouse.parent / "tables.yaml").write_text("tables:\n  shop.t:\n    source: '*.csv'\n    keys: {k: int}\n")
    monkeypatch.chdir(warehouse.parent / "landing")
    assert [Path(file.path).name for file in allowed_files("*.csv")] == ["a.csv"]
    monkeypatch.chdir("/")
    with pytest.raises(LocationNotAllowedError):
        require_location("/etc")


def test_a_text_with_a_password_is_data() -> None:
    parse_statement("SELECT * FROM t WHERE url = 's3://key:secret@lake/x'")
    parse_statement("INSERT INTO t VALUES ('s3://key:secret@lake/x')")


def test_a_source_is_a_listed_one_or_below_an_allowed_folder(warehouse: Path) -> None:
    landing = warehouse.parent / "landing"
    assert [Path(file.path).name for file in allowed_files(f"{landing}/*.csv")] == ["a.csv"]
    for source in (warehouse.parent / "foreign", "/etc/*", warehouse / "linked.csv", warehouse / "link*.csv"):
        with pytest.raises(LocationNotAllowedError):
            allowed_files(str(source))


def test_listed_names_of_objects_are_literal(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "s3://lake/landing")
    names = ["50%3Fx=1.csv", "b?token=1.csv", "what?.csv"]
    object_store.put({f"landing/{name}": b"1" for name in names})
    paths = [file.path for file in allowed_files("s3://lake/landing")]
    assert paths == [f"s3://lake/landing/{name}" for name in names]
    for path in paths:
        assert Folder(path.replace("s3:", "s3a:")).open_text().read() == "1"
    for refused in ("s3://lake/landing/b?token=1.csv", "s3://lake/landing?access_key=planted"):
        with pytest.raises(InvalidLocationError, match="has a password"):
            allowed_files(refused)
    object_store.put({"landing/x%2F..%2F..%2Fy.csv": b"1"})
    with pytest.raises(LocationNotAllowedError, match="outside all allowed folders"):
        allowed_files("s3://lake/landing/x*")
    object_store.put({"landing/c?region=1.csv": b"1"})
    with pytest.raises(SourceFileError, match=r"'s3://lake/landing/c\?region=1.csv' .*; rename the object"):
        allowed_files("s3://lake/landing/c*")


def test_hosts_are_those_of_the_settings(warehouse: Path) -> None:
    require_host("Metastore", 9083)
    require_endpoint("https://glue.local/x")
    for refused in ("http://169.254.169.254/latest", "http://glue.local@attacker", "attacker", "http://[bad"):
        with pytest.raises(LocationNotAllowedError, match="CALVE_ALLOWED_HOSTS"):
            require_endpoint(refused)
    with pytest.raises(LocationNotAllowedError):
        require_host("metastore", 22)


def test_without_settings_only_the_warehouse_and_the_listed_sources_are_allowed(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALVE_ALLOWED_LOCATIONS")
    monkeypatch.delenv("CALVE_ALLOWED_HOSTS")
    require_location(str(warehouse / "x"))
    require_location(str(warehouse.parent / "landing"))
    for refused in ("s3://lake/sales", str(warehouse.parent)):
        with pytest.raises(LocationNotAllowedError):
            require_location(refused)


CHANGES: dict[str, Callable[[Catalog, str], object]] = {
    "a database": lambda catalog, place: catalog.create_database("other", location=place),
    "a table": lambda catalog, place: catalog.create_table("shop.x", columns=[("id", "int")], location=place),
    "a table's new location": lambda catalog, place: catalog.alter_table("shop.empty", location=place),
    "a partition": lambda catalog, place: catalog.add_partitions("shop.t", [NewPartition(["2"], place)]),
    "a partition's new location": lambda catalog, place: catalog.alter_partition("shop.t", ["1"], location=place),
    "a property": lambda catalog, place: catalog.alter_table("shop.t", properties={"write.metadata.path": place}),
    "a property of a new table": lambda catalog, place: catalog.create_table(
        "shop.x", columns=[("id", "int")], properties={"write.data.path": place}
    ),
    "a load": lambda catalog, place: catalog.loading.discover("load", "shop.t", place),
}


@on_sqlite
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_catalog_takes_no_foreign_location(
    warehouse: Path, catalog_url: str, change: Callable[..., object]
) -> None:
    with Catalog.open(catalog_url) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop.empty", columns=[("id", "int")])
        catalog.create_table("shop.t", columns=[("id", "int")], partition_keys=[("k", "int")])
        catalog.add_partitions("shop.t", [NewPartition(["1"])])
        before = [catalog.list_databases(), catalog.list_tables(), list(catalog.get_partitions("shop.t"))]
        for place in ("/etc", f"file://{warehouse}/%2e%2e/foreign", f"{warehouse}/link"):
            with pytest.raises(LocationNotAllowedError):
                change(catalog, place)
        assert [catalog.list_databases(), catalog.list_tables(), list(catalog.get_partitions("shop.t"))] == before


@on_sqlite
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE DATABASE other LOCATION '{foreign}'",
        "CREATE TABLE x (id int) STORED AS PARQUET LOCATION '{foreign}'",
        "CREATE EXTERNAL TABLE x (id int) STORED AS PARQUET LOCATION 'file://{foreign}'",
        "ALTER TABLE t ADD PARTITION (k=2) LOCATION '{foreign}'",
        "ALTER TABLE t PARTITION (k=1) SET LOCATION '{foreign}'",
        "ALTER TABLE t SET TBLPROPERTIES ('write.metadata.path'='{foreign}')",
    ],
)
def test_statements_take_no_foreign_location(warehouse: Path, catalog_url: str, statement: str) -> None:
    def start(_catalog: Catalog) -> Engine:
        raise AssertionError("no engine is needed")

    with Catalog.open(catalog_url) as catalog, Session(catalog, database="shop", start=start) as session:
        catalog.create_database("shop")
        catalog.create_table("shop.t", columns=[("id", "int")], partition_keys=[("k", "int")])
        catalog.add_partitions("shop.t", [NewPartition(["1"])])
        with pytest.raises(LocationNotAllowedError):
            session.execute(statement.format(foreign=warehouse.parent / "foreign"))


@on_sqlite
@pytest.mark.parametrize("source", ["hms://169.254.169.254:80", "glue://eu-west-1?endpoint_url=http://attacker:80"])
def test_an_import_asks_no_foreign_host(warehouse: Path, catalog_url: str, source: str) -> None:
    with Catalog.open(catalog_url) as catalog, pytest.raises(LocationNotAllowedError):
        catalog.imports.plan(source)


@pytest.mark.parametrize(
    ("location", "finding"),
    [
        ("{warehouse}", "the warehouse is there"),
        ("file:{warehouse}/../warehouse", "the warehouse is there"),
        ("{warehouse}/..", "is there"),
        ("{warehouse}/../landing", r"the source '.*/landing/?' of a load is there"),
        ("{warehouse}/../landing/deeper", r"the source '.*/landing/?' of a load is there"),
        ("{warehouse}/_calve", "the pages of quality checks is there"),
        ("{warehouse}/_calve/quality/x", "the pages of quality checks is there"),
    ],
)
def test_a_shared_folder_is_no_tables_own(warehouse: Path, location: str, finding: str) -> None:
    with pytest.raises(LocationNotAllowedError, match=finding):
        require_own_folder(location.format(warehouse=warehouse))


@pytest.mark.parametrize("location", ["{warehouse}/a", "{warehouse}/../elsewhere", "s3://lake/sales"])
def test_a_folder_in_the_warehouse_or_elsewhere_can_be_a_tables_own(warehouse: Path, location: str) -> None:
    require_own_folder(location.format(warehouse=warehouse))


def test_a_warehouse_among_sources_can_have_tables(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(warehouse.parent, "tables.yaml").write_text(
        f"tables:\n  shop.t:\n    source: {warehouse.parent}/*.csv\n    keys: {{k: int}}\n"
    )
    require_own_folder(f"{warehouse}/a")
    with pytest.raises(LocationNotAllowedError, match="of a load is there"):
        require_own_folder(f"{warehouse.parent}/a")


@pytest.mark.parametrize("location", ["{warehouse}", "file://{warehouse}/", "{warehouse}/.."])
def test_nothing_lies_around_the_warehouse(
    warehouse: Path, catalog_url: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    location = location.format(warehouse=warehouse)
    with Catalog.initialise(catalog_url, warehouse=str(warehouse)) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop.t", columns=[("id", "int")], partition_keys=[("k", "int")])
        for attempt in (
            lambda: catalog.create_table("shop.x", columns=[("id", "int")], location=location),
            lambda: catalog.create_table("shop.x", columns=[("id", "int")], location=location, is_external=True),
            lambda: catalog.alter_table("shop.t", location=location),
            lambda: catalog.add_partitions("shop.t", [NewPartition(["1"], location)]),
        ):
            with pytest.raises(LocationNotAllowedError, match="contains the warehouse"):
                attempt()
        catalog.create_table("shop.x", columns=[("id", "int")])
