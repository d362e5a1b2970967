"""The pages of quality checks: one HTML file a check, in one folder a table, and the files that all pages load.

    shop.orders/42-manual__2024-05-02.html
    assets/3f1c0a9b2d4e/css/bootstrap.min.css

A check writes its own page and reads no other, so that it costs the same beside any number of pages. The results are in
the catalog (`QualityResults`): a page that is missing loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from catalog.errors import PageNotFoundError
from catalog.files.filesystem import Folder

ASSETS = "assets"
"""The folder of the styles, scripts and fonts that pages load, by a digest of their contents."""

_PAGE = re.compile(r"[0-9]+-[\w:+-]*\.html")
# No part begins with a dot: `..` would leave the folder.
_READABLE = re.compile(r"[^/.][^/]*/[0-9]+-[\w:+-]*\.html|assets/[0-9a-f]+(?:/[\w-][\w.-]*)+")
_MOST_NAME = 150


class QualityPages:
    """The pages below a folder or URI (`catalog.settings.environment.quality_pages`)."""

    def __init__(self, location: str) -> None:
        """Set the location; nothing is read."""
        self._folder = Folder(location)

    def write(self, table: str, operation_number: int, operation_id: str, page: str) -> str:
        """Write the page of an operation's check, and return its path or URI; a repeated check replaces it.

        Raises:
            StorageError: The storage refused.
        """
        name = f"{operation_number}-{re.sub(r'[^A-Za-z0-9_:+-]', '-', operation_id)[:_MOST_NAME]}.html"
        folder = self._folder.inside(table)
        folder.write_bytes(name, page.encode())
        return f"{folder.location}/{name}"

    def add_assets(self, digest: str, files: Mapping[str, bytes]) -> None:
        """Write the files that pages load, unless they are there."""
        complete = f"{ASSETS}/{digest}/complete"
        if self._folder.file_info(complete) is None:
            for name, content in files.items():
                self._folder.write_bytes(f"{ASSETS}/{digest}/{name}", content)
            self._folder.write_empty(complete)

    def read(self, name: str) -> bytes:
        """Return a page, or a file that pages load, by its path below the location, such as `shop.orders/42-run.html`.

        Raises:
            PageNotFoundError: It does not exist, was removed after its time, or is no file of pages.
        """
        if not _READABLE.fullmatch(name) or self._folder.file_info(name) is None:
            raise PageNotFoundError(
                f"{self._folder.location} has no page {name!r} of a quality check: pages are removed after "
                "CALVE_QUALITY_DAYS days, and are written where CALVE_QUALITY_PAGES says; the results of checks are in "
                "the catalog"
            )
        with self._folder.open(name) as file:
            return bytes(file.read())

    def name_of(self, page: str) -> str | None:
        """Return the path of a page below the location, for `read`; None if it was written into another location."""
        start = f"{self._folder.location}/"
        name = page.removeprefix(start)
        return name if page.startswith(start) and _READABLE.fullmatch(name) else None

    def delete_older(self, before_ms: int, *, is_dry_run: bool = False) -> int:
        """Delete the pages that were written before a time; return their number. No other file is deleted."""
        deleted = 0
        for table in self._folder.folders(""):
            if table == ASSETS:
                continue
            folder = self._folder.inside(table)
            for file, is_folder in folder.entries(recursive=False):
                name = file.path.rpartition("/")[2]
                if is_folder or file.modified_at_ms >= before_ms or not _PAGE.fullmatch(name):
                    continue
                deleted += 1
                if not is_dry_run:
                    folder.delete_file(name)
        return deleted
