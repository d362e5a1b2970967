"""The objects that the server passes to each front door."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field

from catalog.catalog import Catalog
from catalog.doors.serving.access import WITHOUT_CREDENTIALS, Access
from catalog.doors.serving.connections import Connections, connection_records
from catalog.doors.serving.limits import Limits, rate_records
from catalog.doors.serving.metrics import Metrics
from catalog.doors.serving.seen import SeenSignatures
from catalog.doors.serving.shared import SharedRecords


@dataclass(frozen=True)
class Serving:
    """The objects that all front doors of one process share.

    Attributes:
        tls: The server's certificate for connections that are encrypted; None for plain ones.
        stop: Set when the server was told to stop.
        seen: The signatures that any process of the server has seen.
        process: The number of the process.
        processes: Their number.
        counts: The connections of the doors in all processes (`catalog.doors.serving.connections.Connections`).
        rates: The rates of clients in all processes (`catalog.doors.serving.limits.Rates`).
    """

    catalog: Catalog
    metrics: Metrics
    access: Access = WITHOUT_CREDENTIALS
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    seen: SeenSignatures = field(default_factory=SeenSignatures)
    process: int = 0
    processes: int = 1
    counts: SharedRecords = field(default_factory=connection_records)
    rates: SharedRecords = field(default_factory=rate_records)

    def connections(self, door: str) -> Connections:
        """Return the count of a door's connections, which has none in this process yet."""
        return Connections(door, self.limits.connections, self.counts, self.process, self.processes)
