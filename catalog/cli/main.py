"""The `calve` command."""

from __future__ import annotations

import click

from catalog.cli.reporting import ReportingGroup

COMMANDS = {
    "advise": "advising:advise",
    "bad-files": "bad_files:bad_files",
    "batch": "batches:batch",
    "cancel-build": "indexes:cancel_build",
    "check": "maintenance:check",
    "completion": "completion:completion",
    "create-index": "indexes:create_index",
    "databases": "tables:databases",
    "describe": "tables:describe",
    "drop-index": "indexes:drop_index",
    "drop-partitions": "partitions:drop_partitions",
    "give-up": "operations:give_up",
    "grants": "maintenance:grants",
    "import": "importing:import_",
    "indexes": "indexes:indexes",
    "init": "maintenance:init",
    "load": "loading:load",
    "operations": "operations:operations",
    "partitions": "partitions:partitions",
    "quarantine": "partitions:quarantine",
    "quality": "quality:quality",
    "release": "partitions:release",
    "serve": "serving:serve",
    "spark-conf": "maintenance:spark_conf_",
    "sql": "statements:sql",
    "tables": "tables:tables",
    "vacuum": "maintenance:vacuum",
    "validate-config": "configuration:validate_config",
    "verify": "indexes:verify",
}
"""The module and the function of each command, which are imported when it runs."""


@click.group(cls=ReportingGroup, commands_by_name=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="calve", prog_name="calve")
def main() -> None:
    """Manage the partitions of a data lake.

    CALVE_CATALOG_URL names the catalog's database: postgresql://user:password@host/database, or
    sqlite:////absolute/path.db. Data is stored below CALVE_WAREHOUSE.
    """
