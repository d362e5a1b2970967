"""The handler of a connection: all calls of the protocol."""

from __future__ import annotations

from catalog.doors.hms.absent import AbsentCalls
from catalog.doors.hms.databases import DatabaseCalls
from catalog.doors.hms.functions import FunctionCalls
from catalog.doors.hms.locks import LockCalls
from catalog.doors.hms.partition_changes import PartitionChangeCalls
from catalog.doors.hms.partition_reads import PartitionReadCalls
from catalog.doors.hms.service import ServiceCalls
from catalog.doors.hms.statistics import StatisticsCalls
from catalog.doors.hms.tables import TableCalls
from catalog.doors.hms.truncation import TruncateCalls


class Handler(
    FunctionCalls,
    DatabaseCalls,
    TableCalls,
    TruncateCalls,
    PartitionReadCalls,
    PartitionChangeCalls,
    StatisticsCalls,
    LockCalls,
    ServiceCalls,
    AbsentCalls,
):
    """Answers the calls of one connection; its methods have the names of the protocol's calls."""
