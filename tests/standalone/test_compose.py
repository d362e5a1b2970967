"""docker-compose.yaml has the processes, settings and health checks of `make cluster`; no Docker engine is needed.

`tests/compose` runs the containers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from standalone.cluster import BUCKET, WORKERS
from standalone.environment import REPOSITORY, SPARK_POOL, StackSettings
from standalone.preparation import SPARK_POOL_SLOTS
from standalone.services import AIRFLOW_COMPONENTS, ObjectStore, Service, SparkCluster, user, users_file

VALUES = {"S3_ACCESS_KEY": "s3-access", "S3_SECRET_KEY": "s3-secret", "SPARK_SECRET": "spark-secret"}
SPARK_HOME = "/usr/local/lib/python3.11/site-packages/pyspark"
SHORT_LIVED = {"set-up"}

USERS = "CORE__SIMPLE_AUTH_MANAGER_USERS"
OF_THE_MACHINE = {
    *("DATABASE__SQL_ALCHEMY_CONN", "API__BASE_URL", "CORE__EXECUTION_API_SERVER_URL", "CORE__DAGS_FOLDER"),
    *("CORE__PLUGINS_FOLDER", "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", USERS),
}
"""Settings of Airflow that both have, with folders, addresses and users of their own."""

NATIVE = {
    # A small machine, and one user who waits for what happens next.
    *("CORE__PARALLELISM", "API__WORKERS", "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"),
    *("DAG_PROCESSOR__REFRESH_INTERVAL", "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"),
    # A container has its ports for itself.
    *("API__HOST", "API__PORT"),
}
AIRFLOW_SECRETS = {"CORE__FERNET_KEY", "API__SECRET_KEY", "API_AUTH__JWT_SECRET"}
"""On one machine, Airflow generates them into its home folder."""

STORAGE, DATABASES = {"S3_ACCESS_KEY", "S3_SECRET_KEY"}, {"AIRFLOW_DATABASE_PASSWORD", "CALVE_DATABASE_PASSWORD"}
CONNECTIONS, TOKENS = {"AIRFLOW_FERNET_KEY"}, {"AIRFLOW_JWT_SECRET"}
SECRETS = {
    "postgres": {"POSTGRES_PASSWORD", *DATABASES},
    "s3": STORAGE,
    "set-up": {*STORAGE, *DATABASES},
    "api-server": {
        *(*STORAGE, *DATABASES, *CONNECTIONS, *TOKENS),
        *("AIRFLOW_SECRET_KEY", "AIRFLOW_ADMIN_PASSWORD", "AIRFLOW_APPROVER_PASSWORD"),
    },
    "scheduler": {*STORAGE, *DATABASES, *CONNECTIONS, *TOKENS, "SPARK_SECRET"},
    "dag-processor": {"AIRFLOW_DATABASE_PASSWORD", *CONNECTIONS},
    "triggerer": {*STORAGE, *DATABASES, *CONNECTIONS},
    "doors": {*STORAGE, "CALVE_DATABASE_PASSWORD", "DOOR_SECRET_KEY"},
    **{name: {"SPARK_SECRET"} for name in ("spark-master", *WORKERS)},
}
"""The secrets that each container needs."""


def interpolated(text: str) -> str:
    """Replace variables as Compose does: by their value, else by their default."""

    def value(match: re.Match[str]) -> str:
        return VALUES.get(match["name"], match["default"] or f"value-of-{match['name']}")

    text = re.sub(r"(?<!\$)\$\{(?P<name>\w+)(:-(?P<default>[^}]*))?(:\?[^}]*)?\}", value, text)
    return text.replace("$$", "$")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(interpolated((REPOSITORY / "docker-compose.yaml").read_text()))
    return document


def test_the_file_meets_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ended = subprocess.run(
        [*command, str(REPOSITORY / "docker-compose.yaml")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


def spark() -> SparkCluster:
    return SparkCluster(Path(SPARK_HOME))


def services() -> list[Service]:
    folder = Path("/var/lib/calve")
    launcher = Path("/opt/calve/standalone/store_server.py")
    store = ObjectStore("weed", folder / "s3", Path("/opt/calve/s3-users.json"), python="python", launcher=launcher)
    workers = [spark().worker(name, name, 8081, folder / "work") for name in WORKERS]
    return [store.service(), spark().master(), *workers]


@pytest.mark.parametrize("service", services(), ids=lambda service: service.name)
def test_spark_and_s3_run_as_natively(compose: dict[str, Any], service: Service) -> None:
    entry = compose["services"][service.name]
    assert entry["command"] == list(service.command)
    assert entry["environment"].items() >= service.environment.items()
    assert entry["healthcheck"]["test"] == ["CMD", *service.health_command]
    assert entry["hostname"] == service.name


@pytest.mark.parametrize("name", AIRFLOW_COMPONENTS)
def test_airflow_runs_as_natively(compose: dict[str, Any], name: str) -> None:
    *_, last_line = str(" ".join(compose["services"][name]["command"])).strip().splitlines()
    assert last_line.removeprefix("exec ").split() == ["airflow", *AIRFLOW_COMPONENTS[name]]


def test_airflow_has_the_settings_of_the_stack(compose: dict[str, Any]) -> None:
    folder = Path("/var/lib/calve")
    settings = StackSettings("id", folder, "postgresql://", "s3://lake/warehouse", "postgresql://", 8080, folder)
    prefix = "AIRFLOW__"

    def of_airflow(variables: dict[str, str]) -> dict[str, str]:
        return {name.removeprefix(prefix): text for name, text in variables.items() if name.startswith(prefix)}

    native = of_airflow(settings.variables({}, {}))
    services = compose["services"]
    deployed = of_airflow({**services["scheduler"]["environment"], **services["api-server"]["environment"]})
    assert native.keys() - deployed.keys() == NATIVE
    assert deployed.keys() - native.keys() == AIRFLOW_SECRETS
    assert {name for name in native.keys() & deployed.keys() if native[name] != deployed[name]} <= OF_THE_MACHINE


def test_secrets_are_where_the_processes_read_them(compose: dict[str, Any]) -> None:
    files = {name: config["content"] for name, config in compose["configs"].items()}
    assert json.loads(files["s3-users"]) == json.loads(users_file(user("calve", "s3-access", "s3-secret")))
    lines = files["spark-defaults"].splitlines()
    assert dict(line.split(" ", 1) for line in lines) == SparkCluster.defaults("spark-secret")
    for name in ("scheduler", "spark-master", *WORKERS):
        (config,) = compose["services"][name]["configs"]
        folder, _, file = config["target"].rpartition("/")
        assert (config["source"], file) == ("spark-defaults", "spark-defaults.conf")
        assert compose["services"][name]["environment"]["SPARK_CONF_DIR"] == folder


@pytest.mark.parametrize("key", ["48a9" * 12, "1234567890123456", "0x12ab", "1e10", "yes", "null"])
def test_a_secret_key_of_the_front_doors_is_a_string(compose: dict[str, Any], tmp_path: Path, key: str) -> None:
    script, _, start = str(compose["services"]["doors"]["command"][-1]).rpartition("exec ")
    assert start.startswith("calve serve ")
    path = tmp_path / "keys.yaml"
    subprocess.run(["sh", "-c", script], env={"CALVE_DOOR_KEYS": str(path), "DOOR_SECRET_KEY": key}, check=True)
    clients = yaml.safe_load(path.read_text())["clients"]
    assert clients == {"engines": {"role": "owner", "access_key": "engines", "secret_key": key}}


def test_a_second_user_can_approve_what_another_asks_for(compose: dict[str, Any], tmp_path: Path) -> None:
    server = compose["services"]["api-server"]
    script, _, start = str(server["command"][-1]).rpartition("exec ")
    assert start.strip() == "airflow api-server"
    passwords = {name: text for name, text in server["environment"].items() if name.endswith("_PASSWORD")}
    home = {"AIRFLOW_HOME": str(tmp_path), "PATH": str(Path(sys.executable).parent)}
    subprocess.run(["/bin/sh", "-c", script], env={**home, **passwords}, check=True)
    written = json.loads((tmp_path / "passwords.json").read_text())
    assert written == {name.lower().removesuffix("_password"): text for name, text in passwords.items()}
    roles = dict(user.split(":") for user in server["environment"][f"AIRFLOW__{USERS}"].split(","))
    assert roles == {"admin": "admin", "approver": "user"}
    assert roles.keys() == written.keys()


def test_a_container_has_only_the_secrets_that_it_needs(compose: dict[str, Any]) -> None:
    names = re.findall(r"(?<!\$)\$\{(\w+):\?", (REPOSITORY / "docker-compose.yaml").read_text())
    values = {name: VALUES.get(name, f"value-of-{name}") for name in names}
    found = {}
    for service, entry in compose["services"].items():
        files = [compose["configs"][config["source"]]["content"] for config in entry.get("configs", ())]
        text = json.dumps([entry, files])
        found[service] = {name for name, value in values.items() if value in text}
    assert found == SECRETS


def test_only_the_process_that_submits_jobs_writes_what_executors_run(compose: dict[str, Any]) -> None:
    mounts = {
        name: volume.removeprefix("calve-home:/var/lib/calve/home")
        for name, entry in compose["services"].items()
        for volume in entry.get("volumes", ())
        if volume.startswith("calve-home:")
    }
    assert mounts == {"scheduler": "", "api-server": ":ro", "triggerer": ":ro"}


def test_airflow_submits_to_the_cluster_and_the_bucket(compose: dict[str, Any]) -> None:
    environment = compose["services"]["scheduler"]["environment"]
    connection = json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert f"{connection['host']}:{connection['port']}" == spark().url
    assert environment["AWS_ENDPOINT_URL"] == ObjectStore("weed", Path(), Path()).url
    assert environment["CALVE_WAREHOUSE"].startswith(f"s3://{BUCKET}/")
    assert f'create_bucket(Bucket="{BUCKET}")' in compose["services"]["set-up"]["command"][-1]


def test_the_set_up_makes_the_pool_of_the_stack(compose: dict[str, Any]) -> None:
    words = f'airflow pools set {SPARK_POOL} {SPARK_POOL_SLOTS} "Concurrent Spark jobs" --include-deferred'
    assert words in compose["services"]["set-up"]["command"][-1].splitlines()
    assert compose["services"]["scheduler"]["environment"]["CALVE_SPARK_POOL"] == SPARK_POOL


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("docker-compose.yaml", r"CALVE_IMAGE:-calve:(.*?)}"),
        (".env.example", r"CALVE_IMAGE=calve:(.*)"),
        ("deploy/airflow-values.yaml", r'defaultAirflowTag: "(.*)"'),
        ("docs/kubernetes.md", r"/calve:(.*)"),
        ("docs/airflow.md", r"dist/calve-(.*)-py3-none-any\.whl"),
    ],
)
def test_a_release_names_one_version(path: str, pattern: str) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert set(re.findall(pattern, (REPOSITORY / path).read_text())) == {version}


def test_each_container_is_limited_checked_and_not_of_root(compose: dict[str, Any]) -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == ["calve"]
    for name, entry in compose["services"].items():
        assert {"mem_limit", "cpu_quota"} <= entry.keys(), name
        assert "deploy" not in entry, f"{name}: hosts with fewer processors than its limit do not start it"
        assert (entry["cap_drop"], entry["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert ("healthcheck" in entry) == (name not in SHORT_LIVED), name
        assert entry["image"].startswith("calve:") or entry["user"] == "postgres", name
        assert all(port.startswith("127.0.0.1:") for port in entry.get("ports", ())), name


def test_each_variable_is_in_the_example_of_env(compose: dict[str, Any]) -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", (REPOSITORY / "docker-compose.yaml").read_text()))
    example = (REPOSITORY / ".env.example").read_text()
    assert used == set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    assert "/.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_helm_gives_keys_to_the_components_that_have_them_in_containers(compose: dict[str, Any]) -> None:
    values = yaml.safe_load((REPOSITORY / "deploy" / "airflow-values.yaml").read_text())
    keys = {"CALVE_CATALOG_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert not [entry for entry in values.get("secret", ()) if entry["secretName"] == "calve"]
    of_helm = {"api-server": "apiServer", "dag-processor": "dagProcessor"}
    for name in AIRFLOW_COMPONENTS:
        given = {entry["name"] for entry in values[of_helm.get(name, name)].get("env", ())}
        assert given & keys == compose["services"][name]["environment"].keys() & keys, name
        assert ("CALVE_JOB_CATALOG_URL" in given) == (name == "scheduler"), name


def test_the_image_has_what_it_copies() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(\S+) ", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert {f"!{path}" for path in copied} == {line for line in ignored if line.startswith("!")}
    assert all((REPOSITORY / path).exists() for path in copied)
