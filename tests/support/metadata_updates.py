"""Updates of tables' metadata, valid ones and others, and what Calve answers to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from catalog.errors import InvalidRequestError, RequirementFailedError
from catalog.iceberg.documents.new_tables import new_document
from catalog.iceberg.documents.tables import normalised, written
from catalog.iceberg.documents.updates import apply_updates

JSON = dict[str, Any]

LOCATION = "/t/metadata/00000-a.metadata.json"


def field(number: int, name: str, kind: Any, *, required: bool = False, **more: Any) -> JSON:
    """Return a field of a schema."""
    return {"id": number, "name": name, "type": kind, "required": required, **more}


PLACE: JSON = {"type": "struct", "fields": [field(7, "x", "int", required=True)]}
TAGS: JSON = {"type": "list", "element-id": 8, "element": "string", "element-required": False}
SCHEMA: JSON = {
    "type": "struct",
    "fields": [
        field(1, "id", "long", required=True),
        field(2, "name", "string"),
        field(3, "day", "date"),
        field(4, "at", "timestamptz"),
        field(5, "place", PLACE),
        field(6, "tags", TAGS),
    ],
}


def base(version: int = 2) -> JSON:
    """Return the metadata of a new table that is partitioned by month."""
    spec = {"fields": [{"name": "day_month", "transform": "month", "source-id": 3}]}
    order = {"fields": [sort_field(1)]}
    return new_document(SCHEMA, "/t", spec=spec, order=order, properties={"format-version": str(version)})


def sort_field(source: int, transform: str = "identity") -> JSON:
    """Return a field of a sort order."""
    return {"transform": transform, "source-id": source, "direction": "asc", "null-order": "nulls-first"}


def snapshot(document: JSON, number: int, **more: Any) -> JSON:
    """Return an update that adds a snapshot, by default one that may follow."""
    is_counted = document["format-version"] > 1
    line: JSON = {
        "snapshot-id": number,
        "sequence-number": document["last-sequence-number"] + 1 if is_counted else 0,
        "timestamp-ms": document["last-updated-ms"] + 1,
        "schema-id": document["current-schema-id"],
        "manifest-list": f"/t/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
    }
    if document["current-snapshot-id"] is not None:
        line["parent-snapshot-id"] = document["current-snapshot-id"]
    if document["format-version"] > 2:
        line |= {"first-row-id": document["next-row-id"], "added-rows": 5}
    line |= {name.replace("_", "-"): value for name, value in more.items()}
    return {"action": "add-snapshot", "snapshot": {name: value for name, value in line.items() if value is not None}}


def write_list(path: Path, *manifests: Path) -> str:
    """Write a manifest list, by default without manifests; return its path."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list

    counts = ("added", "existing", "deleted")
    numbers: JSON = {f"{name}_{what}_count": 0 for name in counts for what in ("files", "rows")}
    numbers |= {"partition_spec_id": 0, "sequence_number": 1, "min_sequence_number": 1, "added_snapshot_id": 1}
    entries = [
        ManifestFile.from_args(
            manifest_path=str(manifest), manifest_length=1, content=ManifestContent.DATA, partitions=[], **numbers
        )
        for manifest in manifests
    ]
    with write_manifest_list(2, PyArrowFileIO().new_output(str(path)), 1, None, 1, "null") as written:
        written.add_manifests(entries)
    return str(path)


def to_ref(number: int, name: str = "main", **more: Any) -> JSON:
    """Return an update that moves a branch or tag."""
    return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": number, **more}


def with_columns(*columns: JSON, **more: Any) -> JSON:
    """Return an update that adds a schema with further columns."""
    return {"action": "add-schema", "schema": {**deepcopy(SCHEMA), "fields": [*SCHEMA["fields"], *columns], **more}}


def spec(*fields: JSON) -> list[JSON]:
    """Return updates to another partition spec."""
    return [
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": list(fields)}},
        {"action": "set-default-spec", "spec-id": -1},
    ]


def part(source: int, transform: str, name: str, **more: Any) -> JSON:
    """Return a field of a partition spec."""
    return {"source-id": source, "transform": transform, "name": name, **more}


def answer(document: JSON | None, updates: Sequence[JSON]) -> JSON | str:
    """Return the metadata after updates as Calve writes them; a text with the reason if it refuses them."""
    try:
        after = apply_updates(document, updates, location=None if document is None else LOCATION)
    except (InvalidRequestError, RequirementFailedError) as error:
        return str(error)
    assert after is not None or document is not None
    return document if after is None and document is not None else normalised(written(after or {}))


# --- single cases -----------------------------------------------------------------------------------------------------

_FILES = {"snapshot-id": 1, "statistics-path": "/t/1.puffin", "file-size-in-bytes": 9}
_KEY = {"key-id": "k", "encrypted-key-metadata": "aGk="}

CASES: Mapping[str, tuple[str, int, Callable[[JSON], list[JSON]]]] = {
    # A table with the snapshots 1, 2 and 3 on main, the format version, and the updates.
    "child": ("", 2, lambda table: [snapshot(table, 9), to_ref(9)]),
    "replacement after one commit": (
        "",
        2,
        lambda table: [snapshot(table, 9, sequence_number=3, parent_snapshot_id=None), to_ref(9)],
    ),
    "replacement after two commits": (
        "sequence number",
        2,
        lambda table: [snapshot(table, 9, sequence_number=2, parent_snapshot_id=None), to_ref(9)],
    ),
    "old number": ("sequence number", 2, lambda table: [snapshot(table, 9, sequence_number=3), to_ref(9)]),
    "no number": (
        "sequence number",
        2,
        lambda table: [snapshot(table, 9, sequence_number=None, parent_snapshot_id=None), to_ref(9)],
    ),
    "number in the first version": (
        "Sequence number must be 0",
        1,
        lambda table: [snapshot(table, 9, sequence_number=4), to_ref(9)],
    ),
    "snapshot known": ("already exists", 2, lambda table: [snapshot(table, 2)]),
    "snapshot of before": (
        "Invalid update timestamp",
        2,
        lambda table: [snapshot(table, 9, timestamp_ms=table["last-updated-ms"] - 90_000), to_ref(9)],
    ),
    "snapshot a little before": (
        "",
        2,
        lambda table: [snapshot(table, 9, timestamp_ms=table["last-updated-ms"] - 30_000), to_ref(9)],
    ),
    "snapshot without files": ("manifest-list", 2, lambda table: [snapshot(table, 9, manifest_list=None)]),
    "unknown snapshot": ("unknown snapshot", 2, lambda _table: [to_ref(99)]),
    "roll-back": ("", 2, lambda _table: [to_ref(1)]),
    "no current snapshot": ("", 2, lambda _table: [{"action": "remove-snapshot-ref", "ref-name": "main"}]),
    "tag with a branch's limits": (
        "Tags do not support",
        2,
        lambda _table: [to_ref(1, "t", type="tag", **{"min-snapshots-to-keep": 2})],
    ),
    "limit of zero": ("above 0", 2, lambda _table: [to_ref(1, "b", **{"max-ref-age-ms": 0})]),
    "rows behind": ("first-row-id", 3, lambda table: [snapshot(table, 9, first_row_id=0), to_ref(9)]),
    "rows not counted": ("added-rows", 3, lambda table: [snapshot(table, 9, added_rows=None), to_ref(9)]),
    "rows ahead": ("", 3, lambda table: [snapshot(table, 9, first_row_id=1_000), to_ref(9)]),
    "column": ("", 2, lambda _table: [with_columns(field(9, "more", "int")), {**TO_LAST_SCHEMA}]),
    "column id twice": ("more than once", 2, lambda _table: [with_columns(field(8, "more", "int"))]),
    "column id of 64 bits": ("32 bits", 2, lambda _table: [with_columns(field(2**31, "more", "int"))]),
    "column name twice": ("more than one field", 2, lambda _table: [with_columns(field(9, "name", "int"))]),
    "full name twice": ("more than one field", 2, lambda _table: [with_columns(field(9, "place.x", "int"))]),
    "identifier": ("", 2, lambda _table: [with_columns(**{"identifier-field-ids": [1]})]),
    "optional identifier": (
        "identifier-field-ids",
        2,
        lambda _table: [with_columns(**{"identifier-field-ids": [2]})],
    ),
    "type of a later version": ("not supported until v3", 2, lambda _table: [with_columns(field(9, "v", "variant"))]),
    "39 digits": ("38 digits", 2, lambda _table: [with_columns(field(9, "v", "decimal(39, 0)"))]),
    "unknown schema": (
        "unknown schema",
        2,
        lambda _table: [{"action": "set-current-schema", "schema-id": 7}],
    ),
    "schema without the partition's column": (
        "source column",
        2,
        lambda _table: [
            {"action": "add-schema", "schema": {"type": "struct", "fields": SCHEMA["fields"][:2]}},
            {**TO_LAST_SCHEMA},
        ],
    ),
    "schema with another type of the partition's column": (
        "Invalid source type",
        2,
        lambda _table: [
            {"action": "add-schema", "schema": {"type": "struct", "fields": [*SCHEMA["fields"][:2], TEXT_DAY]}},
            {**TO_LAST_SCHEMA},
        ],
    ),
    "current schema removed": ("current schema", 2, lambda _table: [{"action": "remove-schemas", "schema-ids": [0]}]),
    "spec": ("", 2, lambda _table: spec(part(1, "bucket[16]", "b"))),
    "spec by list elements": ("parent", 2, lambda _table: spec(part(8, "identity", "b"))),
    "spec by a struct": ("type struct", 2, lambda _table: spec(part(5, "identity", "b"))),
    "spec by a struct's field": ("", 2, lambda _table: spec(part(7, "identity", "b"))),
    "spec with a column's name": ("another column", 2, lambda _table: spec(part(1, "identity", "name"))),
    "spec with hours of a date": ("Invalid source type", 2, lambda _table: spec(part(3, "hour", "h"))),
    "spec with no bucket": ("width", 2, lambda _table: spec(part(1, "bucket[0]", "b"))),
    "spec with two of a time": ("", 2, lambda _table: spec(part(4, "day", "d"), part(4, "hour", "h"))),
    "column with the name of a partition": (
        "another column",
        2,
        lambda _table: [with_columns(field(9, "day_month", "int")), {**TO_LAST_SCHEMA}],
    ),
    "spec with a name twice": ("more than once", 2, lambda _table: spec(part(1, "identity", "b"), part(4, "day", "b"))),
    "spec with one id": (
        "field-id",
        2,
        lambda _table: spec(part(1, "identity", "a", **{"field-id": 1001}), part(4, "day", "b")),
    ),
    "spec of the first version": ("", 1, lambda _table: spec(part(3, "void", "d"), part(1, "identity", "a"))),
    "spec of the first version with a gap": (
        "sequential",
        1,
        lambda _table: spec(part(1, "identity", "a", **{"field-id": 1001})),
    ),
    "default spec removed": (
        "default partition spec",
        2,
        lambda _table: [{"action": "remove-partition-specs", "spec-ids": [0]}],
    ),
    "order": ("", 2, lambda _table: order(2, sort_field(3), sort_field(4, "day"))),
    "order of number 0": ("order-id", 2, lambda _table: order(0, sort_field(3))),
    "no order of number 1": ("order-id", 2, lambda _table: order(1)),
    "order of a list": ("type list", 2, lambda _table: order(2, sort_field(6))),
    "order of years of a text": ("Invalid source type", 2, lambda _table: order(2, sort_field(2, "year"))),
    "statistics": (
        "",
        2,
        lambda _table: [
            {
                "action": "set-statistics",
                "statistics": {**_FILES, "file-footer-size-in-bytes": 4, "blob-metadata": []},
            }
        ],
    ),
    "statistics without sizes": (
        "file-footer-size-in-bytes",
        2,
        lambda _table: [{"action": "set-statistics", "statistics": {**_FILES, "blob-metadata": []}}],
    ),
    "key": ("", 3, lambda _table: [{"action": "add-encryption-key", "encryption-key": _KEY}]),
    "key without contents": (
        "encrypted-key-metadata",
        3,
        lambda _table: [{"action": "add-encryption-key", "encryption-key": {"key-id": "k"}}],
    ),
    "lower version": (
        "Cannot downgrade",
        2,
        lambda _table: [{"action": "upgrade-format-version", "format-version": 1}],
    ),
    "unknown version": (
        "version",
        2,
        lambda _table: [{"action": "upgrade-format-version", "format-version": 9}],
    ),
}
"""Name → part of the reason of a refusal, empty for none; the format version; the updates."""

TO_LAST_SCHEMA: JSON = {"action": "set-current-schema", "schema-id": -1}
TEXT_DAY = field(3, "day", "string")


def order(number: int, *fields: JSON) -> list[JSON]:
    """Return updates to another sort order."""
    return [
        {"action": "add-sort-order", "sort-order": {"order-id": number, "fields": list(fields)}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


def with_snapshots(document: JSON) -> JSON:
    """Return the metadata after three snapshots on main."""
    for number in (1, 2, 3):
        changed = apply_updates(document, [snapshot(document, number), to_ref(number)], location=LOCATION)
        assert changed is not None
        document = changed
    return document


# --- random sequences -------------------------------------------------------------------------------------------------

_COLUMNS = ("int", "string", "double", "decimal(9, 2)", "timestamptz", "timestamp_ns", "variant", "uuid", "fixed[4]")
_TRANSFORMS = ("identity", "month", "day", "hour", "year", "void", "bucket[8]", "truncate[4]", "bucket[0]", "other")


class RandomUpdates:
    """Draws updates of a table, which are more or less valid."""

    def __init__(self, random: Random) -> None:
        """Set the source of chance."""
        self._random = random
        self._numbers = 100

    def draw(self, document: JSON) -> list[JSON]:
        """Return some updates."""
        kinds = [
            *(self._commit, self._commit, self._commit, self._schema, self._spec, self._order, self._ref),
            *(self._removal, self._choice, self._statistics, self._other),
        ]
        return [line for _ in range(self._random.choice([1, 1, 2, 3])) for line in self._random.choice(kinds)(document)]

    def _commit(self, document: JSON) -> list[JSON]:
        self._numbers += 1
        choose = self._random.choice
        more: JSON = {}
        if choose([True, False]):
            last = document["last-sequence-number"]
            more["sequence_number"] = choose([last, last + 1, last + 2, last - 1, 0])
        if choose([True, False, False]):
            more["parent_snapshot_id"] = choose([None, 5, *self._snapshots(document)])
        if choose([True, False, False]):
            more["timestamp_ms"] = document["last-updated-ms"] + choose([-90_000, -30_000, 0, 200_000])
        if choose([True, False, False]):
            more["first_row_id"] = document.get("next-row-id", 0) + choose([-1, 0, 3])
        added = snapshot(document, choose([self._numbers] * 9 + self._snapshots(document)), **more)
        if choose([True, False, False, False]):
            return [added]
        name = choose(["main", "main", "main", "audit"])
        return [added, to_ref(added["snapshot"]["snapshot-id"], name)]

    def _schema(self, document: JSON) -> list[JSON]:
        choose = self._random.choice
        fields = deepcopy(choose(document["schemas"])["fields"])
        last = document["last-column-id"]
        if choose([True, False, False]):
            fields.pop(choose(range(len(fields))))
        if choose([True, True, False]):
            number = choose([last + 1, last + 1, last, 1])
            name = choose([f"c{last + 1}", f"c{last + 1}", "name", "day_month", "place.x"])
            fields.append(field(number, name, choose(_COLUMNS), required=choose([True, False])))
        if choose([True, False, False, False]):
            # Not of times: transforms of partitions that are no longer used refuse other types at once.
            choose([line for line in fields if line["id"] not in (3, 4)])["type"] = choose(_COLUMNS[:3])
        schema: JSON = {"type": "struct", "schema-id": choose([0, 1, 7]), "fields": fields}
        if choose([True, False, False]):
            schema["identifier-field-ids"] = choose([[], [1], [2], [7], [last]])
        return [{"action": "add-schema", "schema": schema}, *choose([[], [TO_LAST_SCHEMA]])]

    def _spec(self, document: JSON) -> list[JSON]:
        choose, last = self._random.choice, document["last-partition-id"]
        has_ids = choose([True, True, False])
        fields = []
        for number in range(choose([0, 1, 1, 2, 3])):
            source = choose([1, 2, 3, 4, 5, 7, 8, document["last-column-id"], 99])
            name = choose([f"p{number}", f"p{number}", "name", "id", "same"])
            ids = {"field-id": choose([last + 1 + number, 1000 + number])} if has_ids else {}
            fields.append(part(source, choose(_TRANSFORMS), name, **ids))
        return spec(*fields)[: choose([1, 2, 2])]

    def _order(self, document: JSON) -> list[JSON]:
        choose = self._random.choice
        fields = [
            sort_field(choose([1, 2, 3, 4, 5, 7, 8, document["last-column-id"]]), choose(_TRANSFORMS))
            for _ in range(choose([0, 1, 2]))
        ]
        return order(choose([0, 1, 2, 5]), *fields)[: choose([1, 2, 2])]

    def _ref(self, document: JSON) -> list[JSON]:
        choose = self._random.choice
        more = choose([{}, {}, {"max-ref-age-ms": choose([0, 5])}, {"min-snapshots-to-keep": choose([-1, 5])}])
        name = choose(["main", "audit", "tag", "tag"])
        kind = "tag" if name == "tag" else "branch"
        return [to_ref(choose([*self._snapshots(document), 77]), name, type=kind, **more)]

    def _removal(self, document: JSON) -> list[JSON]:
        choose, known = self._random.choice, self._snapshots(document)
        removals: list[JSON] = [
            {"action": "remove-snapshot-ref", "ref-name": choose(["main", "audit", "tag", "none"])},
            {"action": "remove-schemas", "schema-ids": [choose([0, 1, 2])]},
            {"action": "remove-partition-specs", "spec-ids": [choose([0, 1, 2])]},
        ]
        # Iceberg fails if more snapshots are to be removed than are left.
        if len(known) > 6:
            removals += [{"action": "remove-snapshots", "snapshot-ids": ids} for ids in ([choose(known)], known[:2])]
        return [choose(removals)]

    def _choice(self, _document: JSON) -> list[JSON]:
        choose = self._random.choice
        number = choose([-1, 0, 1, 2, 9])
        return [
            choose(
                [
                    {"action": "set-current-schema", "schema-id": number},
                    {"action": "set-default-spec", "spec-id": number},
                    {"action": "set-default-sort-order", "sort-order-id": number},
                ]
            )
        ]

    def _statistics(self, document: JSON) -> list[JSON]:
        choose = self._random.choice
        number = choose([*self._snapshots(document), 77])
        files = {**_FILES, "snapshot-id": number}
        blob = {"type": "t", "snapshot-id": number, "sequence-number": 1, "fields": [1]}
        sizes = {"file-footer-size-in-bytes": 4, "blob-metadata": [choose([blob, {"type": "t"}, blob])]}
        return [
            choose(
                [
                    {"action": "set-statistics", "statistics": {**files, **sizes}},
                    {"action": "set-partition-statistics", "partition-statistics": files},
                    {"action": "remove-statistics", "snapshot-id": number},
                    {"action": "remove-partition-statistics", "snapshot-id": number},
                ]
            )
        ]

    def _other(self, document: JSON) -> list[JSON]:
        choose = self._random.choice
        return [
            choose(
                [
                    {"action": "upgrade-format-version", "format-version": choose([1, 2, 3, 9])},
                    {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": choose("123x")}},
                    {"action": "remove-properties", "removals": ["write.metadata.previous-versions-max"]},
                    {"action": "set-location", "location": "/t/"},
                    {"action": "assign-uuid", "uuid": document["table-uuid"]},
                    {"action": "add-encryption-key", "encryption-key": choose([_KEY, {"key-id": "l"}])},
                    {"action": "remove-encryption-key", "key-id": "k"},
                ]
            )
        ]

    @staticmethod
    def _snapshots(document: JSON) -> list[int]:
        return [line["snapshot-id"] for line in document["snapshots"]]
