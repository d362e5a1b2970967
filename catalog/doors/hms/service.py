"""Calls about the server itself, and about users."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from fb303.ttypes import fb_status
from hive_metastore import ttypes
from hive_metastore.ttypes import ConfigValSecurityException, MetaException

from catalog.doors.hms.base import Base

# ruff: noqa: D102 - the calls are those of the protocol, and have its names

VERSION = "3.1.3"
"""The version that clients are told; they choose calls by it."""

_STARTED = int(time.time())
_READABLE = re.compile("(hive|hdfs|mapred|metastore).*", re.DOTALL)
_DEFAULT_PARTITION = {
    "hive.exec.default.partition.name": "__HIVE_DEFAULT_PARTITION__",
    "metastore.default.partition.name": "__HIVE_DEFAULT_PARTITION__",
}
_WAREHOUSE = ("hive.metastore.warehouse.dir", "metastore.warehouse.dir")


class ServiceCalls(Base):
    """Health, versions, settings and users."""

    def getName(self) -> str:
        return "Hive Metastore"

    def getVersion(self) -> str:
        return VERSION

    def getStatus(self) -> int:
        return int(fb_status.ALIVE)

    def getStatusDetails(self) -> str:
        return "alive"

    def aliveSince(self) -> int:
        return _STARTED

    def getCounters(self) -> dict[str, int]:
        return {}

    def getCounter(self, key: str) -> int:
        return 0

    def getOption(self, key: str) -> str:
        return ""

    def getOptions(self) -> dict[str, str]:
        return {}

    def getCpuProfile(self, seconds: int) -> str:
        return ""

    def setOption(self, key: str, value: str) -> None:
        """Accept an option, which changes nothing."""

    def reinitialize(self) -> None:
        """Accept the request, which changes nothing."""

    def shutdown(self) -> None:
        """Accept the request, which changes nothing: clients cannot stop the server."""

    def set_ugi(self, user: str | None, groups: list[str] | None) -> list[str]:
        self.user = user or self.client.name
        return [user] if user else []

    def get_config_value(self, name: str | None, default: str | None) -> str | None:
        if name is None:
            return default
        if not _READABLE.fullmatch(name):
            raise ConfigValSecurityException(f"For security reasons, the config key {name} cannot be accessed")
        if name in _WAREHOUSE:
            return self._warehouse()
        return _DEFAULT_PARTITION.get(name, default)

    def getMetaConf(self, key: str | None) -> str:
        raise MetaException(f"Invalid configuration key {key}")

    def setMetaConf(self, key: str | None, value: str | None) -> None:
        raise MetaException(f"Invalid configuration key {key}")

    def get_metastore_db_uuid(self) -> str:
        return str(uuid5(NAMESPACE_OID, self.catalog.storage.identity))

    def flushCache(self) -> None:
        """Accept the request: there is no cache."""

    # --- events: there are none ---------------------------------------------------------------------------------

    def get_next_notification(self, request: Any) -> Any:
        return ttypes.NotificationEventResponse(events=[])

    def get_current_notificationEventId(self) -> Any:
        return ttypes.CurrentNotificationEventId(eventId=0)

    def get_notification_events_count(self, request: Any) -> Any:
        return ttypes.NotificationEventsCountResponse(eventsCount=0)

    def fire_listener_event(self, request: Any) -> Any:
        return ttypes.FireEventResponse()
