"""The front doors beside a real Hive Metastore: the same client, questions and PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.door_clients import ICEBERG_TABLE, http_client
from benchmarks.door_planning import planning_seconds
from benchmarks.figures import BenchmarkError, Figure
from benchmarks.ground import Ground
from benchmarks.sample import TABLE
from benchmarks.thrift_metastore import connected, running
from benchmarks.timing import compare
from standalone.calve_server import CalveServer
from standalone.environment import REPOSITORY

HEADINGS = {
    "doors": "Calve's door ÷ Hive Metastore: get_partitions_by_filter, and all partitions, by the same Thrift client",
    "door_planning": "Spark's planning with Calve's door ÷ with Hive Metastore: a query of 372 partitions",
    "door_requests": "Requests a second of Calve's doors, beside those of Hive Metastore with as many clients",
}
CLIENTS = (1, 8, 32)
NAMES, EVERYTHING = "names only", ""
QUESTIONS = {
    "prefix": 'country = "US" and category = "category-00" and year = 2015',
    "prefix_range": 'country = "US" and category = "category-00" and year = 2015 and month >= 2 and month <= 4',
    "in_list": '(country = "US" or country = "DE") and category = "category-00" and year = 2015',
    "skip_scan": 'category = "category-00" and year = 2015 and month = 2',
    "non_indexed_key": "day = 15",
    "last_month": "month >= 12",
    "names_only": NAMES,
    "everything": EVERYTHING,
}
AHEAD = 1.0
GOALS_AT_A_MILLION = {"prefix": 1 / 50, "prefix_range": 1 / 100}
_MILLION = 1_000_000
_SECONDS = 5.0
_LONGEST_SECONDS = 300
_DATABASE, _NAME = TABLE.split(".")


def measure(ground: Ground) -> Iterator[Figure]:
    """Yield each question and Spark's planning at the two larger scales, and requests a second at the first of them."""
    for count in ground.scales[1:]:
        site = ground.site(ground.postgresql, count)
        url = site.catalog.storage.url.render_as_string(hide_password=False)
        environment = {"CALVE_CATALOG_URL": url, "CALVE_WAREHOUSE": str(ground.folder / "door-warehouse")}
        server = CalveServer(ground.folder, options=("--log-level", "warning"), environment=environment)
        folder = ground.folder / f"metastore-{count}"
        with running(folder, ground.postgresql, count) as metastore, server:
            yield from _questions(ground, server.address("hms"), metastore, count)
            ours, peer = planning_seconds(folder, server.address("hms"), metastore)
            yield Figure.of_runs(f"door_planning.prefix.{count}", ours, peer, AHEAD)
            if count == ground.scales[1]:
                yield from _requests(server, metastore, count, min(_SECONDS, ground.effort.budget_seconds * 5))


def _questions(ground: Ground, door: str, metastore: str, count: int) -> Iterator[Figure]:
    for case, question in QUESTIONS.items():
        with connected(door) as ours, connected(metastore) as peer:
            asked = [_asking(client, question) for client in (ours, peer)]
            answers = [sorted(map(_values, ask())) for ask in asked]
            if answers[0] != answers[1]:
                counts = [len(answer) for answer in answers]
                raise BenchmarkError(f"doors.{case}.{count}: Calve and the metastore answer differently, {counts}")
            del answers
            pair = compare(asked[0], asked[1], ground.effort)
        goal = GOALS_AT_A_MILLION.get(case, AHEAD) if count >= _MILLION else AHEAD
        yield Figure(
            name=f"doors.{case}.{count}.postgresql",
            ours=pair.ours * 1000,
            peer=pair.peer * 1000,
            unit="ms",
            runs=pair.runs,
            goal=goal,
        )


def _asking(client: Any, question: str) -> Callable[[], list[Any]]:
    if question == NAMES:
        return lambda: list(client.get_partition_names(_DATABASE, _NAME, -1))
    if question == EVERYTHING:
        return lambda: list(client.get_partitions(_DATABASE, _NAME, -1))
    return lambda: list(client.get_partitions_by_filter(_DATABASE, _NAME, question, -1))


def _values(answer: Any) -> tuple[str, ...]:
    return (answer,) if isinstance(answer, str) else tuple(answer.values)


def _requests(server: CalveServer, metastore: str, count: int, seconds: float) -> Iterator[Figure]:
    _create_iceberg_table(server.address("rest"))
    for clients in CLIENTS:
        peer = _rate("hms", metastore, clients, seconds)
        for door in ("hms", "glue", "rest"):
            ours = _rate(door, server.address(door), clients, seconds)
            name = f"door_requests.{door}_with_{clients}_clients.{count}.postgresql"
            yield Figure(name=name, ours=ours, peer=peer, unit="requests/s", runs=1)


def _rate(door: str, address: str, clients: int, seconds: float) -> float:
    """Return the requests a second that processes with a connection each get answered."""
    command = [sys.executable, "-m", "benchmarks.door_clients", door, address, str(clients), str(seconds)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS
    )
    if done.returncode:
        raise BenchmarkError(f"{clients} client(s) of {door}: {done.stderr[-1_000:]}")
    return float(done.stdout)


def _create_iceberg_table(address: str) -> None:
    """Create a small Iceberg table through the REST door."""
    schema = {"type": "struct", "fields": [{"id": 1, "name": "amount", "type": "double", "required": False}]}
    body = json.dumps({"name": ICEBERG_TABLE, "schema": schema})
    headers = {"Content-Type": "application/json"}
    with http_client(address, "POST", f"/v1/namespaces/{_DATABASE}/tables", body, headers) as create:
        create()
