"""Structured logs of the front doors: one JSON object in a line, with the id of the request."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

log = logging.getLogger("calve.doors")
"""The logger of the front doors."""

_GIVEN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def request_id(given: str | None = None) -> str:
    """Return the id that a client gave to its request, if it is short and printable; otherwise a new one."""
    return given if given and _GIVEN_ID.fullmatch(given) else uuid4().hex


def log_request(
    door: str, operation: str, status: str, seconds: float, *, client: str, address: str, identifier: str
) -> None:
    """Write the line of a request that has been answered.

    Args:
        client: The name of the client, empty if it is not known.
        address: Its network address.
        identifier: The request's id.
    """
    if log.isEnabledFor(logging.INFO):
        fields = {
            "request_id": identifier,
            "door": door,
            "operation": operation,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "client": client,
            "address": address,
        }
        log.info("request", extra={"fields": fields})


def log_failure(door: str, operation: str, identifier: str) -> None:
    """Write the error that is being handled, with its traceback, which no client gets."""
    fields = {"request_id": identifier, "door": door, "operation": operation}
    log.exception("unexpected error", extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """Formats records as JSON in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "process": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def write_json_logs(level: str = "INFO") -> None:
    """Write the logs of this process to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Uvicorn tells of each of its starts and stops.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
