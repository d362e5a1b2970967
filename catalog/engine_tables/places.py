"""Locations in the changes of engines: all of them must be inside the allowed folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from catalog.errors import InvalidLocationError, InvalidRequestError
from catalog.files.filesystem import in_parallel
from catalog.files.locations import has_plain_names
from catalog.iceberg.avro import listed_manifests
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.named_files import UnreadableFileError, reading
from catalog.iceberg.places import METADATA
from catalog.iceberg.storage import file_io, require_manifest
from catalog.settings.places import is_path_property, require_location, require_properties

_STATISTICS = ("statistics", "partition-statistics")


def check_places(updates: Sequence[Json], document: Json | None = None) -> None:
    """Check the locations that updates, or whole metadata, name.

    Raises:
        LocationNotAllowedError, InvalidLocationError: One is not allowed, or engines do not agree where it is.
        InvalidRequestError: One is not a string.
    """
    if document is not None:
        updates = [
            {"action": "set-location", "location": document.get("location")},
            {"action": "set-properties", "updates": document.get("properties") or {}},
            *({"action": "add-snapshot", "snapshot": snapshot} for snapshot in document.get("snapshots") or ()),
            *({"action": f"set-{name}", name: line} for name in _STATISTICS for line in document.get(name) or ()),
        ]
    for update in updates:
        require_properties(properties_set_by(update))
        for field, location in _places(update):
            if not isinstance(location, str) or not location:
                raise InvalidRequestError(f"{field} is {location!r}, which is no location; give a folder or file")
            require_location(location, field)
            if field == "location" and not has_plain_names(location):
                raise InvalidLocationError(
                    f"location {location!r} has an empty name, '.' or '..' in it, which engines resolve in different "
                    "ways; write it without them"
                )


def properties_set_by(update: Json) -> Json:
    """Return the properties that an update sets; of one that is not valid, none."""
    values = update.get("updates", update.get("updated")) if update.get("action") == "set-properties" else None
    return values if isinstance(values, dict) else {}


def check_manifests(updates: Iterable[Json], before: Json | None = None) -> None:
    """Check that the manifests of new snapshots exist, after reading their lists, whose places are checked.

    One request for each list, and for each manifest that is in no list of a parent.

    Args:
        before: The table's metadata, with the parents.

    Raises:
        InvalidRequestError: A list cannot be read, or a manifest is missing, so that no reader could read the table,
            and no table could be purged, because nobody would know which files this one needs.
    """
    parents = {line["snapshot-id"]: line for line in (before or {}).get("snapshots") or ()}
    known = set[str]()
    for update in updates:
        snapshot = update.get("snapshot") if update.get("action") == "add-snapshot" else None
        if not isinstance(snapshot, dict):
            continue
        named = dict.fromkeys(_manifests(snapshot))
        parent = parents.pop(snapshot.get("parent-snapshot-id"), None)
        if parent is not None and not known.issuperset(named):
            # A damaged parent has no manifests that need not be asked for.
            with suppress(InvalidRequestError):
                known.update(_manifests(parent))
        for _ in in_parallel(partial(_require_manifest, snapshot), [path for path in named if path not in known]):
            pass
        known.update(named)


def _manifests(snapshot: Json) -> list[str]:
    path = snapshot.get("manifest-list")
    if path is None:
        return list(snapshot.get("manifests") or ())
    with _reading(snapshot, "manifest list", path):
        return [manifest.manifest_path for manifest in listed_manifests(file_io(path), path)]


def _require_manifest(snapshot: Json, path: str) -> None:
    with _reading(snapshot, "manifest", path):
        require_manifest(file_io(snapshot.get("manifest-list") or path), path)


@contextmanager
def _reading(snapshot: Json, what: str, path: str) -> Iterator[None]:
    try:
        with reading(path):
            yield
    except UnreadableFileError as error:
        raise InvalidRequestError(
            f"the {what} {error.path} of snapshot {snapshot.get('snapshot-id')} cannot be read: {error.reason}; write "
            "it before the commit"
        ) from error


def _places(update: Json) -> Iterator[tuple[str, object]]:
    """Yield the locations of an update, each with the name of its field."""
    if update.get("action") == "set-location":
        yield "location", update.get("location")
    snapshot = update.get("snapshot")
    if isinstance(snapshot, dict):
        if "manifest-list" in snapshot:
            yield "manifest-list", snapshot["manifest-list"]
        yield from (("manifest", path) for path in snapshot.get("manifests") or ())
    for name in _STATISTICS:
        if isinstance(line := update.get(name), dict):
            yield "statistics-path", line.get("statistics-path")


def folders_of(document: Json) -> list[str]:
    """Return the folders in which engines write files of a table: its location, and those in its properties."""
    properties: dict[str, str] = document.get("properties") or {}
    return [document["location"], *(value for name, value in properties.items() if value and is_path_property(name))]


def writing_folders_of(document: Json) -> list[str]:
    """Return the folders in which engines write files of a table unless its properties say otherwise, and these."""
    location, *others = folders_of(document)
    return [f"{location}/data", f"{location}/{METADATA}", *others]


def place_of(metadata_location: str) -> str:
    """Return the folder of the table or view that a metadata file describes.

    Raises:
        StorageError: The file cannot be read.
    """
    return str(read_document(metadata_location)["location"])
