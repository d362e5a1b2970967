"""Metadata of views, and what each update of Iceberg's REST protocol does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from uuid import uuid4

from catalog.errors import InvalidTableError
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.schemas import Json, is_same_schema
from catalog.iceberg.documents.shapes import check_schema, check_updates, check_view_version, number_of
from catalog.iceberg.documents.updates import apply_each, with_properties

_HISTORY_SIZE = "version.history.num-entries"
_HISTORY_DEFAULT = 10
_MAY_DROP_DIALECT = "replace.drop-dialect.allowed"
_LAST_ADDED = -1
_HIGHEST_VERSION = 1


def new_view(schema: Json, version: Json, location: str, properties: Mapping[str, str]) -> Json:
    """Return the metadata of a new view.

    Args:
        version: Its first version, with representations, default namespace and default catalog.

    Raises:
        InvalidRequestError: The version is incomplete, or has two texts of one dialect.
    """
    check_view_version({"schema-id": _LAST_ADDED, **version})
    updates: list[Json] = [
        {"action": "set-location", "location": location},
        {"action": "add-schema", "schema": schema},
        {"action": "add-view-version", "view-version": {**version, "schema-id": _LAST_ADDED}},
        {"action": "set-current-view-version", "view-version-id": _LAST_ADDED},
        {"action": "set-properties", "updates": dict(properties)},
    ]
    created = apply_view_updates(None, updates)
    assert created is not None
    return created


def apply_view_updates(base: Json | None, updates: Sequence[Json]) -> Json | None:
    """Return a view's metadata after updates; None if they change nothing.

    Raises:
        InvalidRequestError: An update is unknown, incomplete, or impossible.
    """
    check_updates(updates)
    changes = _Changes(base)
    apply_each(changes, updates, _UPDATES, "view")
    return changes.finished()


class _Changes:
    """A document while updates are applied to it."""

    def __init__(self, base: Json | None) -> None:
        self.before = None if base is None else _current(base)
        self.document: Json = (
            {
                "view-uuid": str(uuid4()),
                "format-version": 1,
                "location": None,
                "schemas": [],
                "current-version-id": None,
                "versions": [],
                "version-log": [],
                "properties": {},
            }
            if base is None
            else deepcopy(base)
        )
        self.is_changed = base is None
        self.is_new = base is None
        self.added_versions: set[int] = set()
        self.last_schema: int | None = None
        self.last_version: int | None = None
        self.log_entry: Json | None = None

    def finished(self) -> Json | None:
        """Return the document after all updates; None if nothing changed."""
        document = self.document
        if not self.is_changed:
            return None
        if not document["location"]:
            raise InvalidTableError("the view would have no location; set one")
        if document["current-version-id"] is None:
            raise InvalidTableError("Invalid view: no versions were added")
        if self.log_entry is not None:
            document["version-log"].append(self.log_entry)
        self._refuse_lost_dialects()
        self._expire_versions()
        return document

    def _refuse_lost_dialects(self) -> None:
        if self.before is None or self.document["properties"].get(_MAY_DROP_DIALECT, "").lower() == "true":
            return
        before, after = _dialects(self.before), _dialects(_current(self.document))
        if not before <= after:
            raise InvalidTableError(
                f"Cannot replace view due to loss of view dialects ({_MAY_DROP_DIALECT}=false):\nPrevious dialects: "
                f"[{', '.join(sorted(before))}]\nNew dialects: [{', '.join(sorted(after))}]"
            )

    def _expire_versions(self) -> None:
        document = self.document
        text = document["properties"].get(_HISTORY_SIZE, str(_HISTORY_DEFAULT))
        size = number_of(text, _HISTORY_SIZE)
        if size <= 0:
            raise InvalidTableError(f"{_HISTORY_SIZE} must be positive but was {text}")
        current = document["current-version-id"]
        size = max(size, len(self.added_versions | {current}))
        if len(document["versions"]) <= size:
            return
        newest = sorted((version["version-id"] for version in document["versions"]), reverse=True)
        kept = {current}
        for version_id in newest:
            if len(kept) < size:
                kept.add(version_id)
        document["versions"] = [version for version in document["versions"] if version["version-id"] in kept]
        log: list[Json] = []
        for entry in document["version-log"]:
            if entry["version-id"] in kept:
                log.append(entry)
            else:
                # The time before would look as if another version had been valid.
                log.clear()
        document["version-log"] = log


def _assign_uuid(changes: _Changes, update: Json) -> None:
    if update["uuid"] != changes.document["view-uuid"]:
        if not changes.is_new:
            raise InvalidTableError("Cannot reassign uuid; leave out the update assign-uuid")
        changes.document["view-uuid"] = str(update["uuid"])


def _upgrade_format_version(changes: _Changes, update: Json) -> None:
    before, after = changes.document["format-version"], update["format-version"]
    if not before <= after <= _HIGHEST_VERSION:
        raise InvalidTableError(f"Cannot set format version v{after} of a v{before} view; version 1 is supported")


def _add_schema(changes: _Changes, update: Json) -> None:
    check_schema(update["schema"])
    schema, schemas = dict(update["schema"]), changes.document["schemas"]
    for known in schemas:
        if is_same_schema(known, schema):
            changes.last_schema = known["schema-id"]
            return
    schema["schema-id"] = max([0, *(known["schema-id"] + 1 for known in schemas)])
    schemas.append(schema)
    changes.last_schema, changes.is_changed = schema["schema-id"], True


def _add_version(changes: _Changes, update: Json) -> None:
    version = dict(update["view-version"])
    document = changes.document
    if version["schema-id"] == _LAST_ADDED:
        if changes.last_schema is None:
            raise InvalidTableError("Cannot set last added schema: no schema has been added")
        version["schema-id"] = changes.last_schema
    if all(schema["schema-id"] != version["schema-id"] for schema in document["schemas"]):
        raise InvalidTableError(f"Cannot add version with unknown schema: {version['schema-id']}")
    for known in document["versions"]:
        if _content(known) == _content(version):
            changes.last_version = known["version-id"]
            return
    texts = [line["dialect"].lower() for line in version["representations"] if line.get("type") == "sql"]
    for dialect in texts:
        if texts.count(dialect) > 1:
            raise InvalidTableError(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
    if not version["representations"]:
        raise InvalidTableError("Invalid view version: it has no representation; add the text of its query")
    version["version-id"] = max([version.get("version-id", 1), *(v["version-id"] + 1 for v in document["versions"])])
    version.setdefault("timestamp-ms", now_ms())
    document["versions"].append(version)
    changes.added_versions.add(version["version-id"])
    changes.last_version, changes.is_changed = version["version-id"], True


def _set_current_version(changes: _Changes, update: Json) -> None:
    chosen, document = update["view-version-id"], changes.document
    if chosen == _LAST_ADDED:
        if changes.last_version is None:
            raise InvalidTableError("Cannot set last version id: no current version id has been set")
        chosen = changes.last_version
    if chosen == document["current-version-id"]:
        return
    version = next((line for line in document["versions"] if line["version-id"] == chosen), None)
    if version is None:
        raise InvalidTableError(f"Cannot set current version to unknown version: {chosen}")
    document["current-version-id"] = chosen
    at_ms = version["timestamp-ms"] if chosen in changes.added_versions else now_ms()
    changes.log_entry = {"timestamp-ms": at_ms, "version-id": chosen}
    changes.is_changed = True


def _set_location(changes: _Changes, update: Json) -> None:
    location = str(update["location"]).rstrip("/")
    if location != changes.document["location"]:
        changes.document["location"], changes.is_changed = location, True


def _change_properties(changes: _Changes, update: Json) -> None:
    before = changes.document.get("properties") or {}
    after = with_properties(before, update)
    changes.document["properties"] = after
    changes.is_changed |= after != before


_UPDATES: Mapping[str, Callable[[_Changes, Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": _add_schema,
    "set-location": _set_location,
    "set-properties": _change_properties,
    "remove-properties": _change_properties,
    "add-view-version": _add_version,
    "set-current-view-version": _set_current_version,
}


def _current(document: Json) -> Json:
    return next(line for line in document["versions"] if line["version-id"] == document["current-version-id"])


def _dialects(version: Json) -> set[str]:
    return {line["dialect"].lower() for line in version["representations"] if line.get("type") == "sql"}


def _content(version: Json) -> Json:
    """Return what makes versions different: all but id, time and the operation."""
    return {
        name: version.get(name)
        for name in ("summary", "representations", "default-catalog", "default-namespace", "schema-id")
    }
