"""Changes of a table's metadata: what each update of Iceberg's REST protocol does to the document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Final, TypeVar

from catalog.errors import InvalidRequestError, InvalidTableError, RequirementFailedError
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents.consistency import check_consistency
from catalog.iceberg.documents.placing import check_order_fields, check_spec_fields, check_spec_names
from catalog.iceberg.documents.schemas import (
    FIRST_PARTITION_FIELD_ID,
    UNSORTED,
    Json,
    check_types,
    highest_id,
    is_same_schema,
    is_same_spec,
    sources_of,
)
from catalog.iceberg.documents.shapes import check_schema, check_sort_order, check_spec, check_updates, number_of
from catalog.iceberg.documents.tables import DEFAULT_VERSION, LINEAGE_VERSION, MAIN, by_id, check_version, empty

KEPT_METADATA: Final = "write.metadata.previous-versions-max"
"""The table property with the number of previous metadata files that the metadata name."""

_KEPT_METADATA_DEFAULT = 100
_LAST_ADDED = -1
MOST_SKIPPED = 1_000_000
"""By how much a snapshot's sequence number may exceed the last one; writers add 1, copies of tables may leave gaps."""

_STATISTICS = ("statistics", "partition-statistics")

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
        # By id, so that the cost of a commit does not grow with the product of the snapshots and the updates.
        self.snapshots: dict[int, Json] = {line["snapshot-id"]: line for line in self.document["snapshots"]}
        self.statistics: dict[str, dict[int, list[Json]]] = {group: {} for group in _STATISTICS}
        for group, files in self.statistics.items():
            for line in self.document[group]:
                files.setdefault(line["snapshot-id"], []).append(line)
        self.added_snapshots = set[int]()
        self.has_removed_snapshots = False
        self.logged = 0
        self.added: dict[str, list[int]] = {"schemas": [], "partition-specs": [], "sort-orders": []}
        self.last_added: dict[str, int | None] = {}
        # Clocks of servers differ, and readers on the JVM refuse metadata that are older than those before.
        self.now_ms = now_ms() if base is None else max(now_ms(), base["last-updated-ms"])

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
            # Source: of a spec or an order, Iceberg asks whether the one that was added last is new.
            asked = known if group == "schemas" else self.last_added.get(group)
            self.last_added[group] = known if asked in self.added[group] else None

    def resolve(self, group: str, chosen: int, what: str) -> int:
        """Return the id of a schema, spec or order; -1 means the one that was added last."""
        if chosen == _LAST_ADDED:
            last = self.last_added.get(group)
            if last is None:
                raise InvalidTableError(f"Cannot set last added {what}: no {what} has been added")
            return last
        return chosen

    def set(self, name: str, value: object) -> None:
        """Set a field of the document."""
        if self.document.get(name) != value:
            self.document[name], self.is_changed = value, True

    @property
    def schema(self) -> Json:
        """The current schema."""
        if not self.document["schemas"]:
            raise InvalidTableError("the table has no schema yet; add one first")
        return by_id(self.document["schemas"], "schema-id", self.document["current-schema-id"])

    # --- Snapshots ----------------------------------------------------------------------------------------------------

    def remove_ref(self, name: str) -> None:
        """Remove a branch or tag, if it exists."""
        if name == MAIN:
            self.document["current-snapshot-id"] = None
        if self.document["refs"].pop(name, None) is not None:
            self.is_changed = True

    def remove_statistics(self, group: str, snapshot_id: int) -> None:
        """Remove the statistics files of a snapshot."""
        if self.statistics[group].pop(snapshot_id, None) is not None:
            self.is_changed = True

    # --- The result ---------------------------------------------------------------------------------------------------

    def finished(self, location: str | None) -> Json | None:
        """Return the document after all updates; None if nothing changed.

        Raises:
            InvalidTableError: The document is incomplete or contradicts itself.
        """
        document = self.document
        if not self.is_changed:
            return None
        document["last-updated-ms"] = self.now_ms
        document["snapshots"] = list(self.snapshots.values())
        document["snapshot-log"] = self._snapshot_log()
        for group, files in self.statistics.items():
            document[group] = list(chain.from_iterable(files.values()))
        if self.base is not None and location is not None:
            entry = {"timestamp-ms": self.base["last-updated-ms"], "metadata-file": location}
            document["metadata-log"] = [*document["metadata-log"], entry][-_kept_metadata(document["properties"]) :]
        check_consistency(document, newest=self.logged + 1)
        spec = by_id(document["partition-specs"], "spec-id", document["default-spec-id"])
        order = by_id(document["sort-orders"], "order-id", document["default-sort-order-id"])
        check_spec_fields(spec["fields"], self.schema)
        check_order_fields(order["fields"], self.schema)
        return document

    def _snapshot_log(self) -> list[Json]:
        """Return the log without what never was or no longer is a state of the table.

        Before a removed snapshot, the whole history goes.
        """
        current, log = self.document["current-snapshot-id"], list[Json]()
        for entry in self.document["snapshot-log"]:
            snapshot_id = entry["snapshot-id"]
            if self.has_removed_snapshots and snapshot_id not in self.snapshots:
                log.clear()
            elif snapshot_id == current or snapshot_id not in self.added_snapshots:
                log.append(entry)
        return log


def _assign_uuid(changes: _Changes, update: Json) -> None:
    known, given = changes.document.get("table-uuid"), str(update["uuid"])
    if changes.base is not None and known is not None and known.lower() != given.lower():
        raise InvalidTableError(f"the table has the uuid {known}, and cannot become another one: {given}")
    changes.set("table-uuid", given)


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
    chosen, document = changes.resolve("schemas", update["schema-id"], "schema"), changes.document
    if chosen != document["current-schema-id"] and all(line["schema-id"] != chosen for line in document["schemas"]):
        raise InvalidTableError(f"Cannot set current schema to unknown schema: {chosen}")
    changes.set("current-schema-id", chosen)
    for spec in document["partition-specs"]:
        check_spec_names(spec["fields"], changes.schema)


def _add_spec(changes: _Changes, update: Json) -> None:
    check_spec(update["spec"])
    document, given = changes.document, update["spec"]
    fields = _with_partition_ids(document, given["fields"])
    check_spec_fields(fields, changes.schema)
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
    if document["format-version"] == 1:
        return [{"field-id": FIRST_PARTITION_FIELD_ID + number, **field} for number, field in enumerate(fields)]
    known = {
        (tuple(sources_of(field)), field["transform"]): field["field-id"]
        for spec in document["partition-specs"]
        for field in spec["fields"]
    }
    last, numbered = document["last-partition-id"], []
    for field in fields:
        field_id = field.get("field-id")
        if field_id is None:
            field_id = known.get((tuple(sources_of(field)), field["transform"]))
        if field_id is None:
            field_id = last + 1
        last = max(last, field_id)
        numbered.append({**field, "field-id": field_id})
    return numbered


def _set_default_spec(changes: _Changes, update: Json) -> None:
    chosen = changes.resolve("partition-specs", update["spec-id"], "partition spec")
    changes.set("default-spec-id", chosen)


def _add_sort_order(changes: _Changes, update: Json) -> None:
    check_sort_order(update["sort-order"])
    order, orders = dict(update["sort-order"]), changes.document["sort-orders"]
    check_order_fields(order["fields"], changes.schema)
    if (given := order.get("order-id")) is not None and (given == UNSORTED["order-id"]) is bool(order["fields"]):
        raise InvalidTableError(f"the sort order has the order-id {given}: 0 is that of the order without fields")
    known = next((line["order-id"] for line in orders if line["fields"] == order["fields"]), None)
    changes.add("sort-orders", "order-id", order, known, first=1)


def _set_default_sort_order(changes: _Changes, update: Json) -> None:
    chosen = changes.resolve("sort-orders", update["sort-order-id"], "sort order")
    changes.set("default-sort-order-id", chosen)


def _add_snapshot(changes: _Changes, update: Json) -> None:
    snapshot, document = dict(update["snapshot"]), changes.document
    for group, what in (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order")):
        if not document[group]:
            raise InvalidTableError(f"Attempting to add a snapshot before a {what} is added")
    snapshot_id, version = snapshot["snapshot-id"], document["format-version"]
    if snapshot_id in changes.snapshots:
        raise InvalidTableError(f"Snapshot already exists for id: {snapshot_id}")
    number, last = snapshot.get("sequence-number") or 0, document["last-sequence-number"]
    # A snapshot that replaces the whole table may have the number of a concurrent one, because it keeps no files.
    if version > 1 and (number < last or (number == last and snapshot.get("parent-snapshot-id") is not None)):
        raise RequirementFailedError(
            f"Cannot add snapshot with sequence number {number} older than last sequence number {last}"
        )
    if number > last + MOST_SKIPPED:
        raise InvalidTableError(
            f"Cannot add snapshot with sequence number {number}, far above the last sequence number {last}, which "
            f"leaves no room for others; use {last + 1}"
        )
    document["last-sequence-number"] = number
    if version >= LINEAGE_VERSION:
        _count_rows(document, snapshot)
    changes.snapshots[snapshot_id] = snapshot
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
    snapshot = changes.snapshots.get(snapshot_id)
    if snapshot is None:
        raise InvalidTableError(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN:
        if ref["type"] != "branch":
            raise InvalidTableError("Cannot set main to a tag, it must be a branch")
        document["current-snapshot-id"] = snapshot_id
        # A roll-back happens now, a new snapshot when its client made it.
        at_ms = snapshot["timestamp-ms"] if snapshot_id in changes.added_snapshots else changes.now_ms
        document["snapshot-log"].append({"timestamp-ms": at_ms, "snapshot-id": snapshot_id})
        changes.logged += 1
    document["refs"][name] = ref
    changes.is_changed = True


def _remove_snapshots(changes: _Changes, update: Json) -> None:
    document = changes.document
    known = changes.snapshots.keys() & set(update["snapshot-ids"])
    if not known:
        return
    for snapshot_id in known:
        del changes.snapshots[snapshot_id]
        for group in _STATISTICS:
            changes.remove_statistics(group, snapshot_id)
    for name in [name for name, ref in document["refs"].items() if ref["snapshot-id"] in known]:
        changes.remove_ref(name)
    changes.has_removed_snapshots = changes.is_changed = True


def _set_statistics(group: str) -> Callable[[_Changes, Json], None]:
    field = group

    def apply(changes: _Changes, update: Json) -> None:
        statistics = dict(update[field])
        changes.statistics[group][statistics["snapshot-id"]] = [statistics]
        changes.is_changed = True

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
