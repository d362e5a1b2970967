"""The command that serves the front doors."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from catalog.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from catalog.doors.serving.listening import Certificate
    from catalog.doors.serving.supervisor import Door

_ADDRESS = "[HOST:]PORT"
_FILE = click.Path(dir_okay=False, path_type=Path)
_MOST_WORKERS = 256
_LEVELS = ["debug", "info", "warning", "error"]


@click.command()
@click.option("--hms", metavar=_ADDRESS, default="9083", show_default=True, help="Hive Metastore's protocol.")
@click.option("--glue", metavar=_ADDRESS, default="8484", show_default=True, help="AWS Glue's protocol.")
@click.option("--rest", metavar=_ADDRESS, default="8181", show_default=True, help="Iceberg's REST protocol.")
@click.option("--no-hms", is_flag=True, help="Without Hive Metastore's protocol.")
@click.option("--no-glue", is_flag=True, help="Without AWS Glue's protocol.")
@click.option("--no-rest", is_flag=True, help="Without Iceberg's REST protocol.")
@click.option("--metrics", metavar=_ADDRESS, help="Also /metrics and /health on a port of their own.")
@click.option("--workers", type=click.IntRange(1, _MOST_WORKERS), help="Processes; by default one for each processor.")
@click.option("--tls-cert", type=_FILE, help="PEM file of the server's certificate; encrypts all connections.")
@click.option("--tls-key", type=_FILE, help="PEM file of its key, without a password.")
@click.option("--tls-client-ca", type=_FILE, help="PEM file of the authorities of clients' certificates.")
@click.option("--plain", is_flag=True, help="Allow plain connections from other machines, such as a proxy with TLS.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
def serve(
    hms: str,
    glue: str,
    rest: str,
    no_hms: bool,
    no_glue: bool,
    no_rest: bool,
    metrics: str | None,
    workers: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    plain: bool,
    log_level: str,
) -> None:
    """Serve the catalog to engines, as a Hive Metastore, as AWS Glue and as an Iceberg REST catalog.

    Listens on 127.0.0.1 unless an address has another host, which needs the credentials of CALVE_DOOR_KEYS. Logs are
    JSON on stderr. SIGTERM and SIGINT let requests finish; SIGHUP reads keys and certificates again.
    """
    _require_servers()
    # Imported late, because other commands do not need the servers.
    from catalog.cli.doors import doors
    from catalog.doors.serving.logs import write_json_logs
    from catalog.doors.serving.supervisor import Supervisor

    chosen = {"hms": None if no_hms else hms, "glue": None if no_glue else glue, "rest": None if no_rest else rest}
    served: list[Door] = doors({**chosen, "metrics": metrics})
    if not any(chosen.values()):
        raise InvalidConfigurationError("--no-hms, --no-glue and --no-rest leave nothing to serve; omit one of them")
    supervisor = Supervisor(
        served,
        workers=workers or min(os.cpu_count() or 1, _MOST_WORKERS),
        certificate=_certificate(tls_cert, tls_key, tls_client_ca),
        is_plain=plain,
        report=click.echo,
    )
    write_json_logs(log_level.upper())
    supervisor.serve()


def _require_servers() -> None:
    if missing := [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]:
        raise InvalidConfigurationError(
            f"{' and '.join(missing)} not installed; install Calve with what servers need: pip install 'calve[serve]'"
        )


def _certificate(chain: Path | None, key: Path | None, client_authority: Path | None) -> Certificate | None:
    from catalog.doors.serving.listening import Certificate

    if chain is not None and key is not None:
        return Certificate(chain, key, client_authority)
    if chain is None and key is None and client_authority is None:
        return None
    raise InvalidConfigurationError("--tls-cert and --tls-key are both needed for encrypted connections")
