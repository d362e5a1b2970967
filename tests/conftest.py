"""Fixtures for all tests: databases and a Spark session, each started only when a test asks."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test

from standalone.class_archive import jvm_options
from standalone.java import require_java
from standalone.postgres import PostgresServer
from standalone.state import write_private
from tests.support import durations
from tests.support.effort import CODE_GENERATION, effort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.emptied_database import EmptiedDatabase
    from tests.support.glue_endpoint import GlueEndpoint
    from tests.support.hive_metastore import HiveMetastoreServer
    from tests.support.object_store import ObjectStore

REPOSITORY = Path(__file__).parent.parent

# Airflow reads these when it is imported, which test modules do before any fixture runs.
AIRFLOW = {
    "AIRFLOW_HOME": tempfile.mkdtemp(prefix="calve-airflow-"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
}
os.environ.update(AIRFLOW)

CATALOG_OWNER = "calve"
TEMPLATE_DATABASE = "calve_template"
_SHARING_A_STACK = ("tests/on_s3/", "tests/end_to_end/", "tests/dags/runs/", "tests/plugins/pages/")
"""Folders whose tests share what is slow to start: each is run by one process. These come first."""
_SHARING_A_SESSION = (
    "tests/spark_jobs/",
    *("tests/benchmarks/test_hours.py", "tests/catalog/settings/test_reader_options.py", "tests/docs/test_snippets.py"),
)
"""Files that are run by two of the processes: each starts a session of Spark, which is slow at first."""
_SHARING_A_METASTORE = tuple(
    f"tests/catalog/{path}.py"
    for path in (
        "doors/hms/test_round_trips",
        "doors/hms/test_filters",
        "metastores/test_hms",
        "metastores/test_hms_connection",
        "migration/test_source_entries",
    )
)
"""Files whose tests use the fixture `hive_metastore`: all are run by the process that starts it."""
_ON_EITHER_DATABASE = "tests/catalog/"
"""Folder whose tests each run on SQLite or on PostgreSQL in `make test`; those of other folders run on PostgreSQL.

Tests marked `smoke` run on both.
"""


def pytest_unconfigure() -> None:
    # py4j closes its connections when the interpreter ends, and would log that to streams that are closed already.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    shutil.rmtree(AIRFLOW["AIRFLOW_HOME"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute tests among the processes by file; files that share what starts slowly go to the same process."""
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import NodeManager

    # The seconds that interrupted processes have to tear down, which stop the servers that they have started.
    NodeManager.EXIT_TIMEOUT = 60

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if file in _SHARING_A_METASTORE:
                return "hive_metastore"
            if file.startswith(_SHARING_A_SESSION):
                # In `make test-all`, one file may take longer than all others of its part.
                return f"session {crc32(effort(file, nodeid).encode()) % 2}"
            return next(filter(nodeid.startswith, _SHARING_A_STACK), file)

    return Sharing(config, log)


def pytest_keyboard_interrupt() -> None:
    """Tear down without a second interrupt, which xdist sends 5 seconds after the first one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the slowest tests, and the time of each folder."""
    reports = [
        report
        for outcome in ("passed", "failed", "error", "skipped", "")
        for report in terminalreporter.getreports(outcome)
        if isinstance(report, pytest.TestReport)
    ]
    if len({report.nodeid for report in reports}) > durations.SLOWEST:
        terminalreporter.section("time")
        for line in durations.lines(reports):
            terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what `make test` leaves out; in one of several processes, begin with the slowest."""
    for on_sqlite, on_postgresql in _cases_on_both_databases(items):
        if on_sqlite.get_closest_marker("smoke"):
            continue
        if on_sqlite.nodeid.startswith(_ON_EITHER_DATABASE):
            # By the name of the test, so that it keeps its database when others are added. Only its first case is left.
            function = on_sqlite.nodeid.partition("[")[0]
            (on_sqlite, on_postgresql)[crc32(function.encode()) % 2].add_marker(pytest.mark.long)
        else:
            on_sqlite.add_marker(pytest.mark.long)
    _leave_first_cases(items)
    _mark_larger(items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        _sort_by_length(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave all tests and imported modules, which stay until the end, out of garbage collections.

    These took an eighth of the time of tests without Spark, and a fifth of that of the collection of tests.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    return result


def _sort_by_length(items: list[pytest.Item]) -> None:
    """Begin with the folders that share a stack, then the files that use Spark; these take longest."""
    with_spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (not item.nodeid.startswith(_SHARING_A_STACK), item.path not in with_spark))


def _cases_on_both_databases(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item]]:
    """Yield each case that runs on SQLite and on PostgreSQL."""
    by_name = {item.nodeid: item for item in items}
    for item in items:
        other = by_name.get(item.nodeid.replace("sqlite", "postgresql"), item)
        if other is not item:
            yield item, other


def _leave_first_cases(items: list[pytest.Item]) -> None:
    """Mark as long all cases but the first of each test that uses Spark or a catalog, or is marked `first_case`.

    Tests marked `smoke` keep the first case on each database.
    """
    seen: set[tuple[str, bool]] = set()
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        has_one = item.get_closest_marker("first_case") or not {"spark", "catalog_url"}.isdisjoint(fixtures)
        if not has_one or item.get_closest_marker("long"):
            continue
        is_second_database = item.get_closest_marker("smoke") is not None and "postgresql" in item.nodeid
        function = item.nodeid.partition("[")[0], is_second_database
        if function in seen:
            item.add_marker(pytest.mark.long)
        seen.add(function)


def _mark_larger(items: list[pytest.Item]) -> None:
    """Mark tests that do more in `make test-all`: random ones, those with Spark, and modules that use `effort`."""
    for item in items:
        is_random = is_hypothesis_test(getattr(item, "obj", None))
        has_sizes = hasattr(getattr(item, "module", None), "effort")
        if is_random or has_sizes or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.larger)


@pytest.fixture(scope="session", autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the developer's catalog and Airflow out of every test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("CALVE_", "AIRFLOW"))]:
            patch.delenv(name)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("CALVE_HOME", str(home))
        patch.setenv("CALVE_WAREHOUSE", str(home / "warehouse"))
        # Spark's executors look here for the password, which no task carries.
        patch.setenv("PGPASSFILE", str(home / "pgpass"))
        patch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
        patch.setenv("CALVE_ALLOWED_HOSTS", "*")
        for name, value in AIRFLOW.items():
            patch.setenv(name, value)
        patch.setenv("GX_ANALYTICS_ENABLED", "false")
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_statements() -> Iterator[None]:
    """Compile each SQL statement once in a process."""
    from tests.support.statement_cache import share_statements

    with pytest.MonkeyPatch.context() as patch:
        share_statements(patch)
        yield


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    """Fail a test that leaves variables of AWS or Calve to the tests after it.

    Fixtures of wider scopes are set up before, those of the test itself are undone when this looks.
    """
    before = _service_variables()
    yield
    assert _service_variables() == before, "the test has changed the environment of the tests after it"


def _service_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "CALVE_"))}


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A running PostgreSQL server without durability, for all tests."""
    with PostgresServer(tmp_path_factory.mktemp("postgres"), durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def initialise_catalog() -> Callable[[str], None]:
    """A function that creates the catalog's schema at a URL and leaves no connection open."""

    def initialise(url: str) -> None:
        from catalog import Catalog

        with Catalog.initialise(url):
            pass

    return initialise


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory, initialise_catalog: Callable[[str], None]) -> Path:
    """An initialised SQLite catalog, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    initialise_catalog(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer, initialise_catalog: Callable[[str], None]) -> str:
    """The name of an initialised PostgreSQL catalog, to be copied."""
    postgres.create_database(TEMPLATE_DATABASE, owner=CATALOG_OWNER)
    url = postgres.url(TEMPLATE_DATABASE, user=CATALOG_OWNER)
    initialise_catalog(url)
    write_private(Path(os.environ["PGPASSFILE"]), f"*:*:*:{CATALOG_OWNER}:{urlsplit(url).password}\n")
    return TEMPLATE_DATABASE


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of a fresh, initialised catalog on SQLite."""
    path = tmp_path / "catalog.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def postgres_database(postgres: PostgresServer, postgres_template: str) -> Iterator[EmptiedDatabase]:
    """The database that is every test's catalog on PostgreSQL in turn."""
    from tests.support.emptied_database import EmptiedDatabase

    database = EmptiedDatabase(postgres, postgres_template, CATALOG_OWNER)
    yield database
    database.drop()


@pytest.fixture
def postgres_url(postgres_database: EmptiedDatabase) -> str:
    """URL of a fresh, initialised catalog on PostgreSQL."""
    postgres_database.prepare()
    return postgres_database.url


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a fresh, initialised catalog, on each database in turn; CALVE_CATALOG_URL names it too."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    monkeypatch.setenv("CALVE_CATALOG_URL", url)
    return url


def _coordinates(package: str) -> list[str]:
    return package.split(":")


def spark_jars() -> list[Path]:
    """Return the jars of Iceberg's runtime, first, and of the JDBC drivers, which Spark fetches once.

    They have to be there when Spark starts: executors do not find the classes of a jar that is added to a session.

    Returns:
        None of them if Maven Central cannot be reached.
    """
    from catalog.settings.environment import DRIVERS, ICEBERG_PACKAGE

    packages = (ICEBERG_PACKAGE, *DRIVERS.values())
    folder = Path.home() / ".ivy2.5.2" / "jars"
    jars = [folder / f"{group}_{name}-{version}.jar" for group, name, version in map(_coordinates, packages)]
    if not all(jar.exists() for jar in jars):
        import pyspark

        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        with tempfile.TemporaryDirectory() as scratch:
            nothing = Path(scratch, "nothing.py")
            nothing.touch()
            environment = {**os.environ, "JAVA_HOME": str(require_java()), "PYSPARK_PYTHON": sys.executable}
            command = [submit, "--packages", ",".join(packages), nothing]
            subprocess.run(command, env=environment, cwd=scratch, capture_output=True, check=False)
    return jars if all(jar.exists() for jar in jars) else []


@pytest.fixture(scope="session")
def iceberg_jar() -> Path:
    """The jar of Iceberg's runtime; an error where Maven Central cannot be reached."""
    jars = spark_jars()
    assert jars, "Iceberg's runtime could not be fetched from Maven Central"
    return jars[0]


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastoreServer]:
    """A real Hive Metastore, for all tests: each takes databases of its own."""
    from tests.support.hive_metastore import HiveMetastoreServer

    with HiveMetastoreServer(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture(scope="session")
def glue_server() -> Iterator[GlueEndpoint]:
    """A running Glue endpoint, with credentials that it takes."""
    from tests.support.glue_endpoint import running_glue

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with running_glue() as server:
            yield server


@pytest.fixture(scope="session")
def object_store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A running S3 server."""
    from tests.support.object_store import ObjectStore

    with ObjectStore(tmp_path_factory.mktemp("object-store")) as store:
        yield store


@pytest.fixture
def object_store(object_store_server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An S3 server with the empty bucket `lake`, which all S3 clients of this process use."""
    from catalog.files import object_stores

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in object_store_server.environment.items():
        monkeypatch.setenv(name, value)
    object_store_server.empty_bucket()
    object_stores.forget()
    yield object_store_server
    object_stores.forget()


@pytest.fixture
def glue(glue_server: GlueEndpoint) -> GlueEndpoint:
    """A Glue endpoint without anything in it."""
    glue_server.reset()
    return glue_server


def _forget_sources(session: SparkSession) -> None:
    """Forget where each setting of Hadoop comes from: Hadoop compresses these texts one by one for each job.

    This takes 8 of the 9 ms in which it serializes its 1,000 settings.
    """
    settings: Any = session._jsc.hadoopConfiguration()
    field = settings.getClass().getDeclaredField("updatingResource")
    field.setAccessible(True)
    field.get(settings).clear()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small Spark session on two cores, in UTC."""
    java_home = require_java()
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["SPARK_SUBMIT_OPTS"] = jvm_options(java_home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from catalog.settings.spark_settings import session_defaults

    session = (
        SparkSession.builder.master("local[2]")
        .config(map=CODE_GENERATION)
        .config("spark.jars", ",".join(map(str, spark_jars())))
        .appName("calve-tests")
        .config(map=session_defaults())
        # All tests of a process share the session, and it keeps something of each of its thousands of jobs.
        .config("spark.driver.memory", effort("1g", "4g"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "WARN")
        .config("spark.sql.shuffle.partitions", effort("1", "4"))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark-warehouse")))
        .getOrCreate()
    )
    _forget_sources(session)
    yield session
    executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()  # type: ignore[attr-defined]
    assert [executor.numRunningTasks() for executor in executors] == [0], "a test has left a task of Spark running"
    session.stop()


@pytest.fixture(name="unfit_values")
def _unfit_values() -> Iterator[None]:
    """Admit values that are not of their keys' types where no index is, as catalogs of earlier versions did."""
    from tests.support.unfit_values import unfit_values

    with unfit_values():
        yield
