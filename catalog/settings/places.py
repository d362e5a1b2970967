"""Where tables, sources and metastores may lie: below the folders, and on the hosts, that the settings allow.

`CALVE_ALLOWED_LOCATIONS` names folders beside the warehouse (`CALVE_WAREHOUSE`) and the sources of the YAML list
(`CALVE_TABLES`), of which those in the root folder count for nothing; `CALVE_ALLOWED_HOSTS` names hosts of metastores
and of Glue's endpoints. Both are lists with commas between; `*` allows everything. Whatever somebody names is checked
here, whichever front door it came through: what the catalog derives by itself, such as the folder of a table below its
database's, is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from catalog.errors import CatalogError, InvalidLocationError, LocationNotAllowedError
from catalog.files.credentials import has_credentials, without_credentials
from catalog.files.filesystem import FileInfo, find_files
from catalog.files.locations import is_plainly_within, location_key, strict_key
from catalog.settings.environment import tables_path

if TYPE_CHECKING:
    from catalog.model import Table

LOCATIONS, HOSTS = "CALVE_ALLOWED_LOCATIONS", "CALVE_ALLOWED_HOSTS"
EVERYWHERE = "*"

_GLOB = re.compile(r"[*?\[]")
_LOCAL = re.compile("^file:/+")
_PLAIN = re.compile(r"^(file:|/|\.|~)|^[^:]*$")
_NO_PATH = re.compile("[\0\ud800-\udfff]")
_ROOT = re.compile(rb"/|[^/]*:/+|file:/*", re.IGNORECASE)
"""Keys of what contains all files of this machine, or of a scheme: a source there makes no allowed folder."""

_PATH_PROPERTIES = frozenset(
    (
        *("path", "location", "write.data.path", "write.metadata.path"),
        *("write.folder-storage.path", "write.object-storage.path"),
    )
)
"""Properties by which Spark and Iceberg find, or write, files of a table."""

_READER_OPTIONS = frozenset(
    f"option.{name}"
    for name in (
        *("path", "paths", "location", "basepath", "recursivefilelookup", "pathglobfilter"),
        *("modifiedbefore", "modifiedafter"),
    )
)
"""Properties that Spark gives to a reader as options (`TableCatalog.OPTION_PREFIX`), which then reads other files."""

Place = tuple[bytes, str]
"""The key of a location (`catalog.files.locations.strict_key`), and its options, such as an endpoint."""


def require_location(location: str, field: str = "location") -> None:
    """Make sure that a location is below an allowed folder, whatever links and spellings it is written with.

    Args:
        field: What a message calls it.

    Raises:
        InvalidLocationError: It has a password in it, which every log and page would show.
        LocationNotAllowedError: It is not.
    """
    require_no_password(location, field)
    for _, error in _find_elsewhere([location], field):
        raise error


def _find_elsewhere(locations: Sequence[str], field: str = "location") -> Iterator[tuple[str, LocationNotAllowedError]]:
    """Yield those of locations that are below no allowed folder, each with the error that says so."""
    if not locations or EVERYWHERE in _setting(LOCATIONS):
        return
    roots = {place for root in allowed_locations() for place in _places(root)}
    for location in locations:
        if not all(any(_is_within(place, root) for root in roots) for place in _places(location)):
            reason = "is below no folder that is allowed here; use one below the warehouse, or ask an administrator to"
            error = LocationNotAllowedError(f"{field} {location!r} {reason} add the folder to {LOCATIONS}")
            yield location, error


def require_no_password(location: str, field: str) -> None:
    """Make sure that a location can be stored, and has no password in it, which every log and page would show.

    Args:
        field: What a message calls it.

    Raises:
        InvalidLocationError: It has one, or characters that no path can have.
    """
    if odd := _NO_PATH.search(location):
        raise InvalidLocationError(
            f"{field} has the character {odd.group()!r}, which no path can have; write it without"
        )
    if has_credentials(location):
        raise InvalidLocationError(
            f"{field} {without_credentials(location)!r} has a password in it, or an option that may be one; give "
            "credentials of storage in the environment, or in Spark's configuration"
        )


def require_root(location: str, field: str) -> str:
    """Return a folder that other folders are put into, by their names at its end.

    Args:
        field: What a message calls it.

    Raises:
        InvalidLocationError: It has a password in it, or options, behind which no name can be put.
    """
    require_no_password(location, field)
    if "?" in location and not _PLAIN.match(location):
        raise InvalidLocationError(
            f"{field} {location!r} has options, behind which no folder can be named; write it without '?', and set the "
            "options in the environment"
        )
    return location


def require_partition_locations(table: Table, locations: Iterable[str]) -> None:
    """Make sure that partitions' locations are allowed; see `find_forbidden`.

    Raises:
        InvalidLocationError: One has a password in it.
        LocationNotAllowedError: One is not.
    """
    for _, error in find_forbidden(table, locations):
        raise error


def find_forbidden(table: Table, locations: Iterable[str]) -> Iterator[tuple[str, CatalogError]]:
    """Yield those of partitions' locations that are not allowed, each with the error that says why.

    Below their table's they are allowed, without a look at the disk.

    Args:
        locations: As `catalog.tables.definitions.normalise_location` returns them.
    """
    outside = []
    for location in locations:
        try:
            # In its table's folder only its values are its own, whose escaped characters may look like options.
            if "?" in location or not location.startswith(f"{table.location}/"):
                require_no_password(location, "location")
        except InvalidLocationError as error:
            yield location, error
            continue
        if not is_plainly_within(location, table.location):
            outside.append(location)
    yield from _find_elsewhere(outside)


def require_properties(properties: Mapping[str, str | None]) -> None:
    """Make sure that properties of a table lead no reader to files elsewhere.

    Raises:
        LocationNotAllowedError: One does.
    """
    for name, value in properties.items():
        if value is not None and name.strip().lower() in _READER_OPTIONS:
            raise LocationNotAllowedError(
                f"property {name!r} would make readers read other files than those of the table's location and "
                "partitions; leave it out, and set the location instead"
            )
        if value and is_path_property(name):
            require_location(value)


def is_path_property(name: str) -> bool:
    """Return whether a property of a table says where files are."""
    return name.strip().lower().removeprefix("option.") in _PATH_PROPERTIES


def require_host(host: str, port: int | None) -> None:
    """Make sure that a metastore's host is allowed, on this port.

    Raises:
        LocationNotAllowedError: It is not.
    """
    names = {EVERYWHERE, host.lower(), f"{host.lower()}:{port}"}
    if not names & {name.lower() for name in _setting(HOSTS)}:
        raise LocationNotAllowedError(
            f"host {host}:{port} is not among those that may be asked here; an administrator can add it to {HOSTS}"
        )


def require_endpoint(url: str) -> None:
    """Make sure that the host of a service's URL is allowed.

    Raises:
        LocationNotAllowedError: It is not, or the URL names none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = "", None
    require_host(host, port)


def allowed_files(source: str) -> list[FileInfo]:
    """Return the files of a source, as `find_files`; none that a link leads to from elsewhere.

    Raises:
        InvalidLocationError: The source has a password in it.
        LocationNotAllowedError: The source, or one of its files, is below no allowed folder.
        SourceFileError: There is nothing of this name, or nothing matches.
    """
    # In all of it: `?` is a wildcard, and what options of an address begin with.
    require_no_password(source, "source")
    require_location(_fixed_part(source), "source")
    files = find_files(source)
    for file in files:
        require_location(file.path)
    return files


def allowed_locations() -> list[str]:
    """Return the folders below which locations may lie."""
    warehouse = os.environ.get("CALVE_WAREHOUSE")
    return [*_setting(LOCATIONS), *([warehouse] if warehouse else []), *_listed_sources()]


def allow_everything_by_default() -> None:
    """Lift the checks for a process that acts with its user's own rights, unless the settings say otherwise."""
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
    # Imported late: it imports much of the catalog.
    from catalog.settings.table_config import load_sources

    try:
        return tuple(_fixed_part(config.source) for config in load_sources(path).values())
    except CatalogError:
        return ()


def _fixed_part(source: str) -> str:
    """Return the folder in which the matches of a glob are; of everything else, the source itself."""
    wildcard = _GLOB.search(source)
    if wildcard is None:
        return source
    folder, slash, _ = source[: wildcard.start()].rpartition("/")
    return folder or slash or "."


def _places(location: str) -> Iterator[Place]:
    """Yield what a location may mean: as it is written, and with its escapes read."""
    for text in {location, unquote(location)}:
        if _PLAIN.match(text):
            yield location_key(os.path.expanduser(text)), ""
            yield location_key(os.path.abspath(os.path.expanduser(_LOCAL.sub("/", text)))), ""
        else:
            folder, _, options = text.partition("?")
            yield strict_key(folder), options


def _is_within(place: Place, root: Place) -> bool:
    return place[1] == root[1] and place[0].startswith(root[0]) and b"\0" not in place[0]
