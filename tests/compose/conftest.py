"""The deployment of docker-compose.yaml, whose tests run in `make test-compose` only, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from standalone.environment import REPOSITORY
from tests.support.deployment import Deployment
from tests.support.docker_engine import Engine, running_engine

CPUS = os.environ.get("CALVE_COMPOSE_CPUS", "2")
"""The processors of the scheduler; fixtures of all tests remove the variable."""

_RUN = pytest.StashKey[Deployment]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.compose)
            item.add_marker(pytest.mark.timeout(5400))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A running Docker engine."""
    with running_engine(REPOSITORY / ".calve" / "compose") as running:
        yield running


@pytest.fixture(scope="session")
def deployment(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Deployment]:
    """The containers, all healthy; those that the tests have not removed are removed at the end."""
    deployed = Deployment(engine, tmp_path_factory.mktemp("deployed"), CPUS)
    pytestconfig.stash[_RUN] = deployed
    deployed.list_tables("demo.flights", "demo.migrated")
    try:
        with deployed.step("build the image"):
            deployed.build()
        with deployed.step("start all services"):
            deployed.up()
        with deployed.memory_watched():
            yield deployed
    finally:
        (REPOSITORY / ".calve" / "compose.log").write_text(deployed.logs())
        deployed.down()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the duration of each step, and the largest memory of each service."""
    if deployed := config.stash.get(_RUN, None):
        terminalreporter.section(f"the containers, with {CPUS} processors for the scheduler")
        for step, seconds in deployed.seconds.items():
            terminalreporter.write_line(f"{step:<60}{seconds:>8.0f} s")
        for service, peak in sorted(deployed.peaks.items()):
            terminalreporter.write_line(f"{service:<60}{peak:>8.0f} MiB")
        terminalreporter.write_line(f"{'all services':<60}{sum(deployed.peaks.values()):>8.0f} MiB")
