"""The suites of peers: how each is fetched and run against a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from standalone.calve_server import CalveServer
from standalone.java import require_java

HERE = Path(__file__).parent
SECONDS = 3_600

HIVE_CLASSES = (
    *("TestAddPartitions", "TestAddPartitionsFromPartSpec", "TestAlterPartitions", "TestAppendPartitions"),
    *("TestDropPartitions", "TestExchangePartitions", "TestGetPartitions", "TestListPartitions", "TestDatabases"),
    *("TestTablesCreateDropAlterTruncate", "TestTablesGetExists", "TestTablesList", "TestGetTableMeta"),
    "TestFunctions",
)
_OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent", "util.concurrent.atomic"),
    *("math", "text"),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test: `passed`, or another word and the reason."""

    status: str
    reason: str = ""


@dataclass(frozen=True)
class Suite:
    """A suite of a peer.

    Attributes:
        folder: The folder here with its reference: the tests that pass on the peer's own server.
        version: The version of the reference.
        door: The door that it tests.
        run: Runs a version of it on a server with a warehouse; a folder is for what is fetched and built, and is kept.
    """

    folder: Path
    version: str
    door: str
    run: Callable[[CalveServer, Path, Path, str], Mapping[str, Outcome]]

    def passed_elsewhere(self) -> list[str]:
        """Return the tests of the reference's version that pass on the peer's own server."""
        names: list[str] = json.loads((self.folder / "reference.json").read_text())["passed"]
        return names


def run_hive(server: CalveServer, warehouse: Path, work: Path, version: str) -> dict[str, Outcome]:
    """Run the tests of Hive's client, release 3; each class finds an empty server."""
    class_path = _built(HERE / "hive", work, f"-Dhive.version={version}")
    host, port = server.address("hms").rsplit(":", 1)
    result = work / "result.json"
    result.unlink(missing_ok=True)
    (work / "home").mkdir(exist_ok=True)
    opened = [option for name in _OPENED for option in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")]
    opened += ["--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.sql/java.sql=ALL-UNNAMED"]
    properties = {
        "log4j2.disable.jmx": "true",
        "log4j.configurationFile": str(HERE / "hive" / "log4j2.properties"),
        # The trash of the local file system is there, which the tests empty.
        "user.home": str(work / "home"),
        "hms.home": str(Path.home()),
        "hms.warehouse": f"file:{warehouse}",
        "test.tmp.dir": str(work),
        "hms.host": host,
        "hms.port": port,
        "hms.json": str(result),
        "hms.limit": str(SECONDS),
    }
    main = "org.apache.hadoop.hive.metastore.client.HmsSuite"
    _java(class_path, [*opened, *_as_options(properties)], [main, *HIVE_CLASSES], work / "suite.log")
    tests = json.loads(result.read_text())["tests"]
    return {name: Outcome(test["status"], test.get("failure", "")) for name, test in tests.items()}


def run_iceberg(server: CalveServer, warehouse: Path, work: Path, version: str) -> dict[str, Outcome]:
    """Run the tests of catalogs and of views through Iceberg's REST client."""
    class_path = _built(HERE / "iceberg", work, f"-Diceberg.version={version}")
    reports = work / "reports"
    for path in reports.glob("TEST-*.xml"):
        path.unlink()
    properties = {"uri": f"http://{server.address('rest')}", "org.slf4j.simpleLogger.defaultLogLevel": "error"}
    arguments = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details", "summary"]
    arguments += ["--select-class", "peer.RestCatalogJudge", "--select-class", "peer.RestViewCatalogJudge"]
    arguments += ["--config", "junit.jupiter.execution.timeout.default=120s", "--reports-dir", str(reports)]
    _java(class_path, _as_options(properties), arguments, work / "suite.log")
    return dict(
        _outcome_of_case(case)
        for path in sorted(reports.glob("TEST-*.xml"))
        for case in ElementTree.parse(path).iter("testcase")
    )


def _outcome_of_case(case: ElementTree.Element) -> tuple[str, Outcome]:
    name = f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name', '').removesuffix('()')}"
    if case.find("skipped") is not None:
        return name, Outcome("skipped")
    for kind in ("failure", "error"):
        if (thrown := case.find(kind)) is not None:
            return name, Outcome("failed", f"{thrown.get('type', '')}: {thrown.get('message') or ''}"[:500])
    return name, Outcome("passed")


def run_moto(server: CalveServer, warehouse: Path, work: Path, version: str) -> dict[str, Outcome]:
    """Run moto's tests of Glue's catalog."""
    tests, outcomes = _moto_tests(work, version), work / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST_", "MOTO_"))},
        "PYTHONPATH": str(HERE / "glue"),
        "PEER_REFERENCE": str(HERE / "glue" / "reference.json"),
        "PEER_OUTCOMES": str(outcomes),
        "AWS_ENDPOINT_URL_GLUE": f"http://{server.address('glue')}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "moto_elsewhere", "-p", "no:xdist", "--rootdir", str(tests)]
    command += ["--override-ini", "addopts=", "tests/test_glue"]
    with (work / "suite.log").open("wb") as log:
        subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, check=False, timeout=SECONDS)
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()] if outcomes.exists() else []
    return {line["test"]: Outcome(line["outcome"], line["reason"]) for line in lines}


def _moto_tests(work: Path, version: str) -> Path:
    """Return a folder with moto's tests of Glue, and what they import from their neighbours."""
    folder = work / f"moto-{version}"
    if folder.exists():
        return folder
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(work), f"moto=={version}"], check=True)
    with tarfile.open(work / f"moto-{version}.tar.gz") as archive:
        for member in archive.getmembers():
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            is_test = path.parts[:2] == ("tests", "test_glue") or (
                path.parts[:1] == ("tests",) and len(path.parts) == 2
            )
            if member.isfile() and path.suffix == ".py" and is_test:
                content = archive.extractfile(member)
                assert content is not None
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content.read())
    return folder


SUITES = {
    "hive": Suite(HERE / "hive", "3.1.3", "hms", run_hive),
    "glue": Suite(HERE / "glue", "5.2.5", "glue", run_moto),
    "iceberg": Suite(HERE / "iceberg", "1.10.0", "rest", run_iceberg),
}


# --- Java -----------------------------------------------------------------------------------------------------------


def _built(folder: Path, work: Path, version: str) -> str:
    """Compile what is in a folder, and return the class path with the suite's jars, which Maven fetches.

    Args:
        version: Maven's option with the version of the suite.
    """
    log = work / "maven.log"
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(folder / "pom.xml"), f"-Dwork={work}", version]
    with log.open("wb") as output:
        built = subprocess.run(
            [*command, "compile", "dependency:build-classpath"], stdout=output, stderr=output, check=False
        )
    if built.returncode:
        raise SystemExit(f"Maven failed:\n{log.read_text(errors='replace')[-4_000:]}")
    return f"{work / 'classes'}{os.pathsep}{(work / 'classpath.txt').read_text().strip()}"


def _java(class_path: str, options: Sequence[str], arguments: Sequence[str], log: Path) -> None:
    java = Path(require_java()) / "bin" / "java"
    command = ["nice", str(java), "-Xmx1g", "-XX:+UseSerialGC", *options, "-cp", class_path, *arguments]
    with log.open("wb") as output:
        subprocess.run(command, stdout=output, stderr=output, check=False, timeout=SECONDS)


def _as_options(properties: Mapping[str, str]) -> list[str]:
    return [f"-D{name}={value}" for name, value in properties.items()]
