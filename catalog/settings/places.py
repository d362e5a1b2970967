"""Allowed locations of tables, sources and metastores: the folders and hosts that the settings permit.

`CALVE_ALLOWED_LOCATIONS` lists folders in addition to the warehouse (`CALVE_WAREHOUSE`) and the sources of the YAML
list (`CALVE_TABLES`), except sources in a root folder; `CALVE_ALLOWED_HOSTS` lists hosts of metastores and Glue
endpoints. Both are comma-separated; `*` allows everything. Locations given by users are checked here, whichever front
door they come through; locations that the catalog derives, such as a table's folder below its database's, are not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from catalog.errors import CatalogError, InvalidLocationError, LocationNotAllowedError, SourceFileError
from catalog.files.credentials import has_credentials, without_credentials
from catalog.files.locations import (
    OwnFiles,
    has_options,
    has_plain_names,
    is_local,
    is_plainly_within,
    location_key,
    problem_of_uri,
    strict_key,
)
from catalog.settings.environment import default_warehouse, quality_pages, tables_path

if TYPE_CHECKING:
    from catalog.files.filesystem import FileInfo
    from catalog.model import Table

LOCATIONS, HOSTS = "CALVE_ALLOWED_LOCATIONS", "CALVE_ALLOWED_HOSTS"
EVERYWHERE = "*"

_GLOB = re.compile(r"[*?\[]|\{[{%#]")
_LOCAL = re.compile("^file:/+")
_PLAIN = re.compile(r"^(file:|/|\.|~)|^[^:]*$")
_NO_PATH = re.compile("[\0\ud800-\udfff]")
_ROOT = re.compile(rb"/|[^/]*:/+|file:/*", re.IGNORECASE)
"""Keys that contain all files of this machine or of a scheme; a source there does not allow a folder."""

_PATH_PROPERTIES = frozenset(
    (
        *("path", "location", "write.data.path", "write.metadata.path"),
        *("write.folder-storage.path", "write.object-storage.path"),
    )
)
"""Properties that tell Spark and Iceberg where to read or write files of a table."""

_READER_OPTIONS = frozenset(
    f"option.{name}"
    for name in (
        *("path", "paths", "location", "basepath", "recursivefilelookup", "pathglobfilter"),
        *("modifiedbefore", "modifiedafter"),
    )
)
"""Properties that Spark passes to readers as options (`TableCatalog.OPTION_PREFIX`), which redirect them."""

_CLASS_PROPERTIES = frozenset(("write.location-provider.impl", "write.py-location-provider.impl"))
"""Properties by which Iceberg, and PyIceberg, load a class that decides where they write files of a table."""

_CLIENT_PROPERTY = re.compile(
    r"(py-)?io-impl|token|credential|uri|oauth2-server-uri"
    r"|client\.(factory|region|(access-key|secret-access-key|role-arn|role-session)\b.*|session-token)"
    r"|client\.(assume-role|credentials-provider)\b.*|(option\.)?fs\..*|(s3|s3a|gcs|adls|hdfs|hf)\..*"
)
"""Properties that PyIceberg, and Spark's readers, take from a table instead of their own configuration: the class that
reads files, addresses, keys, and who signs requests. Sources: `pyiceberg.io`, `RestCatalog._load_file_io`."""

Place = tuple[bytes, str]
"""The key of a location (`catalog.files.locations.strict_key`) and its options, such as an endpoint."""


def require_location(location: str, field: str = "location") -> None:
    """Check that a location is inside an allowed folder, however it is spelled or linked.

    Args:
        field: Name of the location in messages.

    Raises:
        InvalidLocationError: It contains a password, which every log and page would show.
        LocationNotAllowedError: It is outside all allowed folders.
    """
    require_no_password(location, field)
    for _, error in _find_outside([location], field):
        raise error


def _find_outside(locations: Sequence[str], field: str = "location") -> Iterator[tuple[str, LocationNotAllowedError]]:
    """Yield the locations outside all allowed folders, each with its error."""
    if not locations or allows_everything():
        return
    roots = {place for root in allowed_locations() for place in _places(root)}
    for location in locations:
        if not all(any(_is_within(place, root) for root in roots) for place in _places(location)):
            reason = "is outside all allowed folders; use a folder below the warehouse, or ask an administrator to"
            shown = without_credentials(location)
            error = LocationNotAllowedError(f"{field} {shown!r} {reason} add the folder to {LOCATIONS}")
            yield location, error


def is_outside(location: str) -> bool:
    """Return whether a location is outside all allowed folders, wherever links lead."""
    return any(True for _ in _find_outside([location]))


def allows_everything() -> bool:
    """Return whether the settings allow all locations."""
    return EVERYWHERE in _setting(LOCATIONS)


def require_files(paths: Iterable[str], folders: Collection[str], field: str = "file") -> None:
    """Check that files which metadata name are in a table's own folders, or inside an allowed folder.

    Args:
        paths: Complete paths of files, or their folders.
        folders: In which the catalog has the table's files.
        field: Name of a file in messages.

    Raises:
        LocationNotAllowedError: One is outside.
    """
    if allows_everything():
        return
    own = OwnFiles(folders)
    outside = [path for path in paths if path not in own]
    for _, error in _find_outside(outside, field):
        raise error


def require_own_folder(location: str, field: str = "location") -> None:
    """Check that a folder can become a table's own, in which engines delete files that the table does not name.

    Args:
        field: Name of the location in messages.

    Raises:
        LocationNotAllowedError: It is, or contains, the warehouse, or overlaps a folder of sources or quality pages.
    """
    warehouse, shown = default_warehouse(), without_credentials(location)
    others = dict.fromkeys(_places(warehouse or ""), "the warehouse") if warehouse else {}
    shared = {place: f"the source {source!r} of a load" for source in _listed_sources() for place in _places(source)}
    shared |= dict.fromkeys(_places(quality_pages()), "the pages of quality checks")
    for place in _places(location):
        inside = next((name for root, name in (others | shared).items() if _is_within(root, place)), None)
        around = max((root for root in [*shared, *others] if _is_within(place, root)), key=_length, default=None)
        if inside is not None or around in shared.keys() - others.keys():
            name = shared[around] if inside is None and around is not None else inside
            raise LocationNotAllowedError(
                f"{field} {shown!r} is not a table's own folder: {name} is there; choose another folder"
            )


def is_own_place(location: str) -> bool:
    """Return whether a folder can become a table's own; see `require_own_folder`."""
    try:
        require_own_folder(location)
    except LocationNotAllowedError:
        return False
    return True


def refuse_around_warehouse(location: str) -> None:
    """Check that a location neither is nor contains the warehouse, in which other tables get their folders.

    Raises:
        LocationNotAllowedError: It does.
    """
    for _, error in _around_warehouse([location]):
        raise error


def _around_warehouse(locations: Iterable[str]) -> Iterator[tuple[str, LocationNotAllowedError]]:
    """Yield the locations that are or contain the warehouse, each with its error."""
    warehouse = default_warehouse()
    roots = list(_places(warehouse)) if warehouse else []
    for location in locations if roots else ():
        if any(_is_within(root, place) for root in roots for place in _places(location)):
            shown = without_credentials(location)
            reason = "contains the warehouse, in which other tables get their folders; choose a folder inside it"
            yield location, LocationNotAllowedError(f"location {shown!r} {reason}")


def require_no_password(location: str, field: str) -> None:
    """Check that a location can be stored and contains no password, which every log and page would show.

    Args:
        field: Name of the location in messages.

    Raises:
        InvalidLocationError: It contains a password, or characters that no path can have.
    """
    if invalid := _NO_PATH.search(location):
        raise InvalidLocationError(f"{field} has the character {invalid.group()!r}, which no path can have; remove it")
    if has_credentials(location):
        raise InvalidLocationError(
            f"{field} {without_credentials(location)!r} has a password in it, or an option that may be one; set "
            "storage credentials in the environment, or in Spark's configuration"
        )


def require_root(location: str, field: str) -> str:
    """Return a folder that will contain other folders, whose names are appended to its location.

    Args:
        field: Name of the location in messages.

    Raises:
        InvalidLocationError: It names no folder, or contains a password, or options, to which no name can be appended.
    """
    require_no_password(location, field)
    if problem := problem_of_uri(location):
        raise InvalidLocationError(f"{field} {location!r} {problem}")
    if "?" in location and not _PLAIN.match(location):
        raise InvalidLocationError(
            f"{field} {location!r} has options, to which no folder can be appended; write it without '?', and set the "
            "options in the environment"
        )
    return location


def require_partition_locations(table: Table, locations: Iterable[str]) -> None:
    """Check that the locations of partitions are allowed; see `find_forbidden`.

    Raises:
        InvalidLocationError: One contains a password.
        LocationNotAllowedError: One is not allowed.
    """
    for _, error in find_forbidden(table, locations):
        raise error


def find_forbidden(table: Table, locations: Iterable[str]) -> Iterator[tuple[str, CatalogError]]:
    """Yield the partition locations that are not allowed, each with its error: also those around the warehouse.

    A location inside the table's is allowed, unless symbolic links on a local disk may lead elsewhere.

    Args:
        locations: As `catalog.tables.normalising.normalise_location` returns them.
    """
    outside, is_link = [], cache(os.path.islink)
    for location in locations:
        try:
            # Below the table's folder are only the partition's values, whose escaped characters may look like options.
            if "?" in location or not location.startswith(f"{table.location}/"):
                require_no_password(location, "location")
        except InvalidLocationError as error:
            yield location, error
            continue
        if not is_plainly_within(location, table.location) or any(
            map(is_link, _folders_below(location, table.location))
        ):
            outside.append(location)
    refused = dict(_find_outside(outside))
    yield from refused.items()
    yield from _around_warehouse(location for location in outside if location not in refused)


def _folders_below(location: str, folder: str) -> Iterator[str]:
    """Yield a location, and the folders between it and a folder that it is in; none of an object store."""
    while is_local(folder) and len(location := location.rstrip("/")) > len(folder):
        yield location
        location = location.rpartition("/")[0]


def require_properties(properties: Mapping[str, str | None]) -> None:
    """Check that no property of a table redirects readers or writers to other files or servers, or has them load code.

    Raises:
        LocationNotAllowedError: One does.
    """
    for name, value in properties.items():
        if value and name.strip().lower() in _CLASS_PROPERTIES and not allows_everything():
            raise LocationNotAllowedError(
                f"property {name!r} would have writers load the class {value!r}, which puts files where it likes; "
                "remove it, and set write.data.path for a folder of data files"
            )
        if value and _CLIENT_PROPERTY.fullmatch(name.strip().lower()) and not allows_everything():
            raise LocationNotAllowedError(
                f"property {name!r} would tell the clients of all readers which code, servers or keys to use; remove "
                "it, and set it in the configuration of your own client"
            )
        if value is not None and name.strip().lower() in _READER_OPTIONS:
            raise LocationNotAllowedError(
                f"property {name!r} would make readers read other files than those of the table's location and "
                "partitions; remove it, and set the location instead"
            )
        if value and is_path_property(name):
            require_location(value)
            if not allows_everything() and not has_plain_names(value):
                raise LocationNotAllowedError(
                    f"property {name!r} is {value!r}, with an empty name, '.' or '..' in it, which engines resolve in "
                    "different ways; write the location without them"
                )


def is_path_property(name: str) -> bool:
    """Return whether a table property is the location of files."""
    return name.strip().lower().removeprefix("option.") in _PATH_PROPERTIES


def require_host(host: str, port: int | None) -> None:
    """Check that a metastore's host is allowed on this port.

    Raises:
        LocationNotAllowedError: It is not.
    """
    names = {EVERYWHERE, host.lower(), f"{host.lower()}:{port}"}
    if not names & {name.lower() for name in _setting(HOSTS)}:
        raise LocationNotAllowedError(
            f"host {host}:{port} is not in the list of allowed hosts; an administrator can add it to {HOSTS}"
        )


def require_endpoint(url: str) -> None:
    """Check that the host of a service's URL is allowed.

    Raises:
        LocationNotAllowedError: It is not, or the URL has no host.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = "", None
    require_host(host, port)


def allowed_files(source: str) -> list[FileInfo]:
    """Return the files of a source, as `find_files` does; links to files outside allowed folders are refused.

    Raises:
        InvalidLocationError: The source contains a password.
        LocationNotAllowedError: The source, or one of its files, is outside all allowed folders.
        SourceFileError: No file has this name, none matches, or the name of an object looks like options.
    """
    # Imported late: PyArrow takes longer than most commands.
    from catalog.files.sources import find_files

    # Check the whole source: `?` is a wildcard, but also starts the options of an address.
    require_no_password(source, "source")
    folder = _fixed_part(source)
    require_location(folder, "source")
    files = find_files(source)
    for file in files:
        # Hadoop resolves `..` in the names of objects.
        if is_local(folder) or not has_plain_names(unquote(file.path)):
            require_location(file.path)
        elif has_options(file.path):
            raise SourceFileError(
                f"source {file.path!r} has a name that readers take for options of an address; rename the object"
            )
    return files


def allowed_locations() -> list[str]:
    """Return the allowed folders."""
    warehouse = default_warehouse()
    return [*_setting(LOCATIONS), *([warehouse] if warehouse else []), *_listed_sources()]


def allow_everything_by_default() -> None:
    """Disable the checks, unless configured, for a process that runs with its user's own permissions."""
    for name in (LOCATIONS, HOSTS):
        os.environ.setdefault(name, EVERYWHERE)


def _setting(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


def _listed_sources() -> Iterable[str]:
    path = tables_path()
    try:
        folders = _sources_of(path, path.stat().st_mtime_ns, tuple(sorted(os.environ.items())))
    except OSError:
        return ()
    return (folder for folder in folders if not any(_ROOT.fullmatch(key) for key, _ in _places(folder)))


@lru_cache(maxsize=4)
def _sources_of(path: Path, _changed: int, _environment: object) -> tuple[str, ...]:
    # Imported late, because it imports much of the catalog.
    from catalog.settings.table_config import load_sources

    try:
        return tuple(_fixed_part(config.source) for config in load_sources(path).values())
    except CatalogError:
        return ()


def _fixed_part(source: str) -> str:
    """Return the folder that contains the matches of a glob; the source itself if it is no glob."""
    wildcard = _GLOB.search(source)
    if wildcard is None:
        return source
    folder, slash, _ = source[: wildcard.start()].rpartition("/")
    return folder or slash or "."


def _places(location: str) -> Iterator[Place]:
    """Yield the possible meanings of a location: as written, and unescaped."""
    for text in {location, unquote(location)}:
        if _PLAIN.match(text):
            yield location_key(os.path.expanduser(text)), ""
            yield location_key(os.path.abspath(os.path.expanduser(_LOCAL.sub("/", text)))), ""
        else:
            folder, _, options = text.partition("?")
            yield strict_key(folder), options


def _length(place: Place) -> int:
    return len(place[0])


def _is_within(place: Place, root: Place) -> bool:
    return place[1] == root[1] and place[0].startswith(root[0]) and b"\0" not in place[0]
