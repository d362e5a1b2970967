"""The rules of Iceberg's own classes hold for updates of metadata: what they refuse, Calve refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from catalog.errors import InvalidTableError, RequirementFailedError
from catalog.iceberg.documents.consistency import check_consistency
from catalog.iceberg.documents.requirements import check_requirements
from catalog.iceberg.documents.tables import written
from catalog.iceberg.documents.updates import apply_updates
from tests.support.iceberg_java import IcebergJava
from tests.support.metadata_updates import (
    CASES,
    LOCATION,
    RandomUpdates,
    answer,
    base,
    snapshot,
    to_ref,
    with_snapshots,
)

JSON = dict[str, Any]

SEEDS, STEPS = range(100), 25


@pytest.fixture(scope="module")
def java(iceberg_jar: Path) -> Iterator[IcebergJava]:
    """Iceberg's own classes."""
    with IcebergJava(iceberg_jar) as started:
        yield started


@pytest.mark.parametrize("name", CASES)
def test_a_rule(name: str) -> None:
    reason, version, updates = CASES[name]
    document = with_snapshots(base(version))
    after = answer(document, updates(document))
    if reason:
        assert isinstance(after, str), after
        assert reason in after
    else:
        assert not isinstance(after, str), after


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_one_of_iceberg(java: IcebergJava, name: str) -> None:
    reason, version, updates = CASES[name]
    document = with_snapshots(base(version))
    after = java.changed(written(document), updates(document), LOCATION)
    assert isinstance(after, str) is bool(reason), after


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_random_updates_are_answered_as_by_iceberg(java: IcebergJava, part: int) -> None:
    for seed in SEEDS[part::4]:
        compare_updates(java, Random(seed))


def compare_updates(java: IcebergJava, random: Random) -> None:
    document = with_snapshots(base(random.choice([1, 2, 2, 2, 3])))
    updates = RandomUpdates(random)
    for _ in range(STEPS):
        drawn = updates.draw(document)
        ours, theirs = answer(document, drawn), java.changed(written(document), drawn, LOCATION)
        told = json.dumps([drawn, written(document)])
        if is_stricter(document, drawn, theirs):
            assert isinstance(ours, str), told
        elif isinstance(ours, str) or isinstance(theirs, str):
            assert isinstance(ours, str) is isinstance(theirs, str), (ours, theirs, told)
        else:
            assert summary(ours) == summary(theirs), told
            document = ours


@pytest.mark.long
def test_random_requirements_hold_as_for_iceberg(java: IcebergJava) -> None:
    random = Random(1)
    document = with_snapshots(base())
    for _ in range(500):
        number = random.choice([0, 1, 2, 3, 8, 999, 1000])
        name = random.choice(["main", "none"])
        drawn = [
            random.choice(
                [
                    {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": random.choice([None, 2, 3])},
                    {"type": "assert-table-uuid", "uuid": random.choice([document["table-uuid"], "x"])},
                    *(
                        {"type": f"assert-{field}", field: number}
                        for field in (
                            *("last-assigned-field-id", "current-schema-id", "last-assigned-partition-id"),
                            *("default-spec-id", "default-sort-order-id"),
                        )
                    ),
                ]
            )
            for _ in range(random.choice([1, 2]))
        ]
        try:
            check_requirements(document, drawn)
            holds = True
        except RequirementFailedError:
            holds = False
        assert (java.requirement_error(written(document), drawn) is None) is holds, drawn


def is_stricter(before: JSON, updates: list[JSON], theirs: JSON | str) -> bool:
    """Return whether Calve refuses on purpose what Iceberg accepts."""
    if isinstance(theirs, str):
        return False
    numbers = [line["snapshot"].get("sequence-number", 0) for line in updates if line["action"] == "add-snapshot"]
    last = before["last-sequence-number"]
    return before["format-version"] > 1 and any(
        after < known for known, after in zip([last, *numbers], numbers, strict=False)
    )


def summary(document: JSON) -> JSON:
    """Return what must be equal, without what each side chooses for itself."""
    names = ("format-version", "last-sequence-number", "last-column-id", "location", "table-uuid")
    chosen = ("current-schema-id", "default-spec-id", "default-sort-order-id")
    current = document.get("current-snapshot-id")
    return {
        **{name: document.get(name, 0) for name in (*names, *chosen)},
        "next-row-id": document.get("next-row-id", 0),
        "current": None if current in (None, -1) else current,
        "schemas": [line["schema-id"] for line in document["schemas"]],
        "specs": [line["spec-id"] for line in document["partition-specs"]],
        "orders": [line["order-id"] for line in document["sort-orders"]],
        "snapshots": [line["snapshot-id"] for line in document["snapshots"]],
        "log": [line["snapshot-id"] for line in document["snapshot-log"]],
        "refs": {name: (ref["snapshot-id"], ref["type"]) for name, ref in document["refs"].items()},
        "statistics": sorted(line["snapshot-id"] for line in document["statistics"]),
        "partitions": sorted(line["snapshot-id"] for line in document.get("partition-statistics", ())),
    }


def test_a_replacement_made_on_old_metadata_undoes_no_later_number() -> None:
    document = with_snapshots(base())
    for number in (0, 1, 2):
        line = {"snapshot-id": 9, "sequence-number": number, "timestamp-ms": document["last-updated-ms"]}
        added = {"action": "add-snapshot", "snapshot": {**line, "manifest-list": "/t/9.avro"}}
        assert "sequence number" in answer(document, [added, to_ref(9)])


def test_a_sequence_number_leaves_room_for_later_ones() -> None:
    document = with_snapshots(base())
    last = document["last-sequence-number"]
    for number in (last + 1_000_001, 2**63 - 1):
        said = answer(document, [snapshot(document, 9, sequence_number=number), to_ref(9)])
        assert f"sequence number {number}, far above the last sequence number {last}" in said
        assert f"use {last + 1}" in said
    copied = answer(document, [snapshot(document, 9, sequence_number=last + 1_000_000), to_ref(9)])
    assert copied["last-sequence-number"] == last + 1_000_000


def test_logs_that_were_out_of_order_before_prevent_no_commit() -> None:
    document = with_snapshots(base())
    document["snapshot-log"][0]["timestamp-ms"] += 90_000
    document["metadata-log"][0]["timestamp-ms"] += 90_000
    after = answer(document, [snapshot(document, 9), to_ref(9)])
    assert not isinstance(after, str), after
    with pytest.raises(InvalidTableError, match="Invalid update timestamp"):
        check_consistency(after)


class Counted(dict[str, Any]):
    """An object of metadata that counts how often its fields are read."""

    reads = 0

    def __getitem__(self, key: str) -> Any:
        Counted.reads += 1
        return super().__getitem__(key)


def reads_of_a_commit(count: int, removed: int) -> int:
    """Return how many fields of snapshots and of their log a commit reads."""
    document = with_snapshots(base())
    first = document["snapshots"][0]
    document["snapshots"] += [Counted({**first, "snapshot-id": 10 + number}) for number in range(count)]
    at_ms = document["last-updated-ms"]
    document["snapshot-log"] = [
        Counted({"snapshot-id": line["snapshot-id"], "timestamp-ms": at_ms}) for line in document["snapshots"]
    ]
    document["snapshot-log"].append({"snapshot-id": 3, "timestamp-ms": at_ms})
    Counted.reads = 0
    updates = [{"action": "remove-snapshots", "snapshot-ids": [10 + number]} for number in range(removed)]
    assert apply_updates(document, [to_ref(2), *updates], location=LOCATION) is not None
    return Counted.reads


@pytest.mark.parametrize("share", [0, 0.5])
def test_the_work_of_a_commit_grows_with_the_snapshots_and_no_faster(share: float) -> None:
    few, many = (reads_of_a_commit(count, int(count * share)) for count in (100, 1_000))
    assert 0 < many <= 11 * few
