"""Changes of a table's metadata: what each update of Iceberg's REST protocol does to the document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final, TypeVar

from catalog.errors import InvalidRequestError, InvalidTableError, RequirementFailedError
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.schemas import (
    FIRST_PARTITION_FIELD_ID,
    UNSORTED,
    Json,
    check_sources,
    check_types,
    highest_id,
    is_same_schema,
    is_same_spec,
)
from catalog.iceberg.documents.shapes import check_schema, check_sort_order, check_spec, check_updates, number_of
from catalog.iceberg.documents.tables import DEFAULT_VERSION, LINEAGE_VERSION, MAIN, by_id, check_version, empty

KEPT_METADATA: Final = "write.metadata.previous-versions-max"
"""The table property with the number of previous metadata files that the metadata name."""

_KEPT_METADATA_DEFAULT = 100
_LAST_ADDED = -1

Changes = TypeVar("Changes")


def apply_updates(base: Json | None, updates: Sequence[Json], *, location: str | None = None) -> Json | None:
    """Return a table's metadata after updates; None if they change nothing.

    Args:
        base: The normalised metadata before; None for a new table.
        location: The location of the metadata before, for the metadata log.

    Raises:
        InvalidRequestError: An update is unknown, incomplete, or impossible.
        RequirementFailedError: The client made a snapshot on top of metadata that are no longer current.
    """
    check_updates(updates)
    changes = _Changes(base, updates)
    apply_each(changes, updates, _UPDATES, "table")
    return changes.finished(location)


def apply_each(
    changes: Changes, updates: Sequence[Json], known: Mapping[str, Callable[[Changes, Json], None]], what: str
) -> None:
    """Apply checked updates to a document in turn.

    Args:
        known: Action of an update → the function that applies it.
        what: The kind of document, for messages: `table` or `view`.

    Raises:
        InvalidRequestError: An update is unknown, incomplete, or impossible.
    """
    for update in updates:
        action = update.get("action")
        apply = known.get(str(action))
        if apply is None:
            raise InvalidRequestError(f"unknown update {action!r} of a {what}; known are {', '.join(sorted(known))}")
        try:
            apply(changes, update)
        except KeyError as error:
            raise InvalidRequestError(f"update {action} has no field {error}; add it") from None


class _Changes:
    """A document while updates are applied to it."""

    def __init__(self, base: Json | None, updates: Sequence[Json]) -> None:
        self.is_changed = base is None
        self.base = base
        self.document = empty(_initial_version(updates)) if base is None else deepcopy(base)
        self.added_snapshots: set[int] = set()
        self.replaced_snapshots: set[int] = set()
        self.has_removed_snapshots = False
        self.added: dict[str, list[int]] = {"schemas": [], "partition-specs": [], "sort-orders": []}
        self.last_added: dict[str, int | None] = {}
        self.now_ms = now_ms()

    # --- Schemas, partition specs and sort orders ---------------------------------------------------------------------

    def add(self, group: str, key: str, entry: Json, known: int | None, first: int = 0) -> None:
        """Add a schema, partition spec or sort order, unless an equal one exists.

        Args:
            known: The id of the equal one.
            first: The lowest id of a new one.
        """
        if known is None:
            new = max([first, *(line[key] + 1 for line in self.document[group])])
            if key == "order-id" and not entry["fields"]:
                new = UNSORTED["order-id"]
            self.document[group].append({**entry, key: new})
            self.added[group].append(new)
            self.is_changed, self.last_added[group] = True, new
        else:
            self.last_added[group] = known if known in self.added[group] else None

    def resolve(self, group: str, key: str, chosen: int, what: str) -> int:
        """Return the id of an existing schema, spec or order; -1 means the one that was added last."""
        if chosen == _LAST_ADDED:
            last = self.last_added.get(group)
            if last is None:
                raise InvalidTableError(f"Cannot set last added {what}: no {what} has been added")
            return last
        if all(line[key] != chosen for line in self.document[group]):
            raise InvalidTableError(f"Cannot set current {what} to unknown {what}: {chosen}")
        return chosen

    def set(self, name: str, value: object) -> None:
        """Set a field of the document."""
        if self.document.get(name) != value:
            self.document[name], self.is_changed = value, True

    @property
    def schema(self) -> Json:
        """The current schema; of a table that has none yet, the one that was added last."""
        if (current := self.document["current-schema-id"]) is None and (
            current := self.last_added.get("schemas")
        ) is None:
            raise InvalidTableError("the table has no schema yet; add one first")
        return by_id(self.document["schemas"], "schema-id", current)

    # --- Snapshots ----------------------------------------------------------------------------------------------------

    def find_snapshot(self, snapshot_id: int) -> Json | None:
        """Return a snapshot; None if there is none with the id."""
        return next((line for line in self.document["snapshots"] if line["snapshot-id"] == snapshot_id), None)

    def remove_ref(self, name: str) -> None:
        """Remove a branch or tag, if it exists."""
        if name == MAIN:
            self.document["current-snapshot-id"] = None
        if self.document["refs"].pop(name, None) is not None:
            self.is_changed = True

    def remove_statistics(self, group: str, snapshot_id: int) -> None:
        """Remove the statistics files of a snapshot."""
        kept = [line for line in self.document[group] if line["snapshot-id"] != snapshot_id]
        self.set(group, kept)

    # --- The result ---------------------------------------------------------------------------------------------------

    def finished(self, location: str | None) -> Json | None:
        """Return the document after all updates; None if nothing changed.

        Raises:
            InvalidTableError: The document is incomplete or contradicts itself.
        """
        document = self.document
        if not self.is_changed:
            return None
        self._check()
        document["last-updated-ms"] = self.now_ms
        self._correct_snapshot_log()
        if self.base is not None and location is not None:
            entry = {"timestamp-ms": self.base["last-updated-ms"], "metadata-file": location}
            document["metadata-log"] = [*document["metadata-log"], entry][-_kept_metadata(document["properties"]) :]
        return document

    def _check(self) -> None:
        document = self.document
        for name, what in (
            ("current-schema-id", "schema"),
            ("default-spec-id", "partition spec"),
            ("default-sort-order-id", "sort order"),
        ):
            if document[name] is None:
                raise InvalidTableError(f"the table would have no {what}; add and set one")
        if not document["location"]:
            raise InvalidTableError("the table would have no location; set one")
        spec = by_id(document["partition-specs"], "spec-id", document["default-spec-id"])
        order = by_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
        check_sources("partition spec", spec["fields"], self.schema)
        check_sources("sort order", order["fields"], self.schema)

    def _correct_snapshot_log(self) -> None:
        """Remove what never was or no longer is a state of the table; before a removed snapshot, the whole history."""
        log: list[Json] = []
        for entry in self.document["snapshot-log"]:
            snapshot_id = entry["snapshot-id"]
            if self.find_snapshot(snapshot_id) is None:
                if self.has_removed_snapshots:
                    log.clear()
                    continue
            elif snapshot_id in self.replaced_snapshots and snapshot_id != self.document["current-snapshot-id"]:
                continue
            log.append(entry)
        self.document["snapshot-log"] = log


def _assign_uuid(changes: _Changes, update: Json) -> None:
    changes.set("table-uuid", str(update["uuid"]))


def _upgrade_format_version(changes: _Changes, update: Json) -> None:
    before, after = changes.document["format-version"], update["format-version"]
    check_version(after)
    if after < before:
        raise InvalidTableError(f"Cannot downgrade v{before} table to v{after}; the version can only grow")
    if after > before:
        changes.set("format-version", after)
        if before == 1:
            for name in ("schema", "partition-spec"):
                changes.document.pop(name, None)
        if after >= LINEAGE_VERSION:
            changes.document.setdefault("next-row-id", 0)


def _add_schema(changes: _Changes, update: Json) -> None:
    check_schema(update["schema"])
    schema, document = dict(update["schema"]), changes.document
    check_types(schema, document["format-version"])
    schemas = document["schemas"]
    known = next((line["schema-id"] for line in schemas if is_same_schema(line, schema)), None)
    changes.add("schemas", "schema-id", schema, known, document["current-schema-id"] or 0)
    if (last := max(document["last-column-id"], highest_id(schema))) != document["last-column-id"]:
        changes.set("last-column-id", last)
        if known is not None:
            changes.last_added["schemas"] = known


def _set_current_schema(changes: _Changes, update: Json) -> None:
    changes.set("current-schema-id", changes.resolve("schemas", "schema-id", update["schema-id"], "schema"))


def _add_spec(changes: _Changes, update: Json) -> None:
    check_spec(update["spec"])
    document, given = changes.document, update["spec"]
    check_sources("partition spec", given["fields"], changes.schema)
    fields = _with_partition_ids(document, given["fields"])
    known = next(
        (line["spec-id"] for line in document["partition-specs"] if is_same_spec(line["fields"], fields)), None
    )
    if known is None and document["format-version"] == 1:
        ids = [field["field-id"] for field in fields]
        if ids != list(range(FIRST_PARTITION_FIELD_ID, FIRST_PARTITION_FIELD_ID + len(ids))):
            raise InvalidTableError(
                "Spec does not use sequential IDs that are required in v1; upgrade the table to format version 2"
            )
    changes.add("partition-specs", "spec-id", {**given, "fields": fields}, known)
    if known is None:
        document["last-partition-id"] = max([document["last-partition-id"], *(field["field-id"] for field in fields)])


def _with_partition_ids(document: Json, fields: Sequence[Json]) -> list[Json]:
    """Return the fields of a new spec, those without id with that of an equal field, or a new one."""
    known = {
        (tuple(field.get("source-ids") or [field["source-id"]]), field["transform"]): field["field-id"]
        for spec in document["partition-specs"]
        for field in spec["fields"]
    }
    last, numbered = document["last-partition-id"], []
    for field in fields:
        field_id = field.get("field-id")
        if field_id is None:
            key = (tuple(field.get("source-ids") or [field["source-id"]]), field["transform"])
            field_id = known.get(key) if document["format-version"] > 1 else None
        if field_id is None:
            field_id = last + 1
        last = max(last, field_id)
        numbered.append({**field, "field-id": field_id})
    return numbered


def _set_default_spec(changes: _Changes, update: Json) -> None:
    chosen = changes.resolve("partition-specs", "spec-id", update["spec-id"], "partition spec")
    changes.set("default-spec-id", chosen)


def _add_sort_order(changes: _Changes, update: Json) -> None:
    check_sort_order(update["sort-order"])
    order, orders = dict(update["sort-order"]), changes.document["sort-orders"]
    check_sources("sort order", order["fields"], changes.schema)
    known = next((line["order-id"] for line in orders if line["fields"] == order["fields"]), None)
    changes.add("sort-orders", "order-id", order, known, first=1)


def _set_default_sort_order(changes: _Changes, update: Json) -> None:
    chosen = changes.resolve("sort-orders", "order-id", update["sort-order-id"], "sort order")
    changes.set("default-sort-order-id", chosen)


def _add_snapshot(changes: _Changes, update: Json) -> None:
    snapshot, document = dict(update["snapshot"]), changes.document
    for group, what in (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order")):
        if not document[group]:
            raise InvalidTableError(f"Attempting to add a snapshot before a {what} is added")
    snapshot_id, version = snapshot["snapshot-id"], document["format-version"]
    if changes.find_snapshot(snapshot_id) is not None:
        raise InvalidTableError(f"Snapshot already exists for id: {snapshot_id}")
    number, last = snapshot.get("sequence-number", 0), document["last-sequence-number"]
    if version > 1 and number <= last and snapshot.get("parent-snapshot-id") is not None:
        raise RequirementFailedError(
            f"Cannot add snapshot with sequence number {number} older than last sequence number {last}"
        )
    if version > 1:
        document["last-sequence-number"] = number
    if version >= LINEAGE_VERSION:
        _count_rows(document, snapshot)
    document["snapshots"].append(snapshot)
    changes.added_snapshots.add(snapshot_id)
    changes.is_changed = True


def _count_rows(document: Json, snapshot: Json) -> None:
    first = snapshot.get("first-row-id")
    if first is None:
        raise InvalidTableError("Cannot add a snapshot: first-row-id is null")
    if first < document["next-row-id"]:
        raise RequirementFailedError(
            f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {document['next-row-id']}"
        )
    document["next-row-id"] += snapshot.get("added-rows") or 0


def _set_snapshot_ref(changes: _Changes, update: Json) -> None:
    name, snapshot_id = update["ref-name"], update["snapshot-id"]
    ref = {key: value for key, value in update.items() if key not in ("action", "ref-name") and value is not None}
    ref.setdefault("type", "branch")
    document = changes.document
    if document["refs"].get(name) == ref:
        return
    snapshot = changes.find_snapshot(snapshot_id)
    if snapshot is None:
        raise InvalidTableError(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN:
        if ref["type"] != "branch":
            raise InvalidTableError("Cannot set main to a tag, it must be a branch")
        before = document["current-snapshot-id"]
        if before in changes.added_snapshots and before != snapshot_id:
            changes.replaced_snapshots.add(before)
        document["current-snapshot-id"] = snapshot_id
        # A roll-back happens now, a new snapshot when its client made it.
        at_ms = snapshot["timestamp-ms"] if snapshot_id in changes.added_snapshots else changes.now_ms
        document["snapshot-log"].append({"timestamp-ms": at_ms, "snapshot-id": snapshot_id})
        changes.now_ms = max(changes.now_ms, at_ms)
    document["refs"][name] = ref
    changes.is_changed = True


def _remove_snapshots(changes: _Changes, update: Json) -> None:
    removed, document = set(update["snapshot-ids"]), changes.document
    known = {line["snapshot-id"] for line in document["snapshots"]} & removed
    if not known:
        return
    document["snapshots"] = [line for line in document["snapshots"] if line["snapshot-id"] not in known]
    for snapshot_id in known:
        for group in ("statistics", "partition-statistics"):
            changes.remove_statistics(group, snapshot_id)
    for name in [name for name, ref in document["refs"].items() if ref["snapshot-id"] in known]:
        changes.remove_ref(name)
    changes.has_removed_snapshots = changes.is_changed = True


def _set_statistics(group: str) -> Callable[[_Changes, Json], None]:
    field = group

    def apply(changes: _Changes, update: Json) -> None:
        statistics = dict(update[field])
        changes.remove_statistics(group, statistics["snapshot-id"])
        changes.set(group, [*changes.document[group], statistics])

    return apply


def _remove_statistics(group: str) -> Callable[[_Changes, Json], None]:
    return lambda changes, update: changes.remove_statistics(group, update["snapshot-id"])


def _remove_of(group: str, key: str, field: str, current: str, what: str) -> Callable[[_Changes, Json], None]:
    def apply(changes: _Changes, update: Json) -> None:
        removed = set(update[field])
        if changes.document[current] in removed:
            raise InvalidTableError(f"Cannot remove the {what}; set another one first")
        changes.set(group, [line for line in changes.document[group] if line[key] not in removed])

    return apply


def _set_location(changes: _Changes, update: Json) -> None:
    changes.set("location", str(update["location"]).rstrip("/"))


def _set_properties(changes: _Changes, update: Json) -> None:
    changes.set("properties", with_properties(changes.document["properties"], update))


def _remove_properties(changes: _Changes, update: Json) -> None:
    changes.set("properties", with_properties(changes.document["properties"], update))


def _add_encryption_key(changes: _Changes, update: Json) -> None:
    key, keys = dict(update["encryption-key"]), changes.document.get("encryption-keys") or []
    if all(line["key-id"] != key["key-id"] for line in keys):
        changes.set("encryption-keys", [*keys, key])


def _remove_encryption_key(changes: _Changes, update: Json) -> None:
    keys = changes.document.get("encryption-keys") or []
    kept = [line for line in keys if line["key-id"] != update["key-id"]]
    if len(kept) < len(keys):
        changes.set("encryption-keys", kept)


def with_properties(before: Mapping[str, str], update: Json) -> dict[str, str]:
    """Return properties after `set-properties` or `remove-properties`, also with the field names of early clients.

    Raises:
        InvalidRequestError: A name or a value is not a string.
    """
    if update["action"] == "set-properties":
        values = update.get("updates", update.get("updated"))
        if not isinstance(values, dict):
            raise InvalidRequestError("update set-properties has no field 'updates'; add it")
        for name, value in values.items():
            if not isinstance(value, str):
                raise InvalidRequestError(f"property {name} is {value!r}, which is not a string; give a string")
        return {**before, **values}
    removed: Iterable[str] = update.get("removals", update.get("removed")) or ()
    gone = set(removed)
    return {name: value for name, value in before.items() if name not in gone}


_UPDATES: Mapping[str, Callable[[_Changes, Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-spec": _add_spec,
    "set-default-spec": _set_default_spec,
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_default_sort_order,
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_snapshot_ref,
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": lambda changes, update: changes.remove_ref(update["ref-name"]),
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _set_statistics("statistics"),
    "remove-statistics": _remove_statistics("statistics"),
    "set-partition-statistics": _set_statistics("partition-statistics"),
    "remove-partition-statistics": _remove_statistics("partition-statistics"),
    "remove-partition-specs": _remove_of(
        "partition-specs", "spec-id", "spec-ids", "default-spec-id", "default partition spec"
    ),
    "remove-schemas": _remove_of("schemas", "schema-id", "schema-ids", "current-schema-id", "current schema"),
    "add-encryption-key": _add_encryption_key,
    "remove-encryption-key": _remove_encryption_key,
}


def _initial_version(updates: Sequence[Json]) -> int:
    versions = [update.get("format-version") for update in updates if update.get("action") == "upgrade-format-version"]
    return versions[0] if versions and isinstance(versions[0], int) else DEFAULT_VERSION


def _kept_metadata(properties: Mapping[str, str]) -> int:
    text = properties.get(KEPT_METADATA)
    return _KEPT_METADATA_DEFAULT if text is None else max(1, number_of(text, f"property {KEPT_METADATA}"))
