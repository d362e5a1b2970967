"""Offline Data Docs of Great Expectations: pages load vendored files instead of files from ten content networks.

Upstream does not plan to change the pages (great_expectations issues 2870 and 8734).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_ASSETS = files("spark_jobs.checking") / "data_docs_assets"

_REPLACEMENTS = {
    "/bootstrap/4.3.1/css/bootstrap.css": "css/bootstrap.min.css",
    "/bootstrap/4.3.1/js/bootstrap.js": "js/bootstrap.min.js",
    "/bootstrap-table@1.19.1/dist/bootstrap-table.css": "css/bootstrap-table.min.css",
    "/bootstrap-table@1.19.1/dist/bootstrap-table.js": "js/bootstrap-table.min.js",
    # The templates mix two versions that have the same styles.
    "/bootstrap-table@1.19.0/dist/extensions/filter-control/bootstrap-table-filter-control.css": (
        "css/bootstrap-table-filter-control.min.css"
    ),
    "/bootstrap-table@1.19.1/dist/extensions/filter-control/bootstrap-table-filter-control.js": (
        "js/bootstrap-table-filter-control.min.js"
    ),
    "/bootstrap-datepicker/1.9.0/css/bootstrap-datepicker.css": "css/bootstrap-datepicker.min.css",
    "/bootstrap-datepicker/1.9.0/js/bootstrap-datepicker.js": "js/bootstrap-datepicker.min.js",
    "/bootstrap-dark@1.1.0/dist/css/bootstrap-prefers-dark.css": "css/bootstrap-prefers-dark.min.css",
    "/popper.js/1.12.9/umd/popper.js": "js/popper.min.js",
    "/jquery-3.7.1.js": "js/jquery.min.js",
    "/font-awesome/6.6.0/css/all.css": "css/fontawesome.min.css",
    # Images of Great Expectations' package.
    "/logo-long.png": "images/logo-long.png",
    "/full_logo_dark.png": "images/logo-long.png",
}
"""Suffix of an external address, without `.min` → file among the assets. A new version needs a newly vendored file."""

_IMAGES = ("favicon.ico", "logo-long.png")

_OWN_STYLES = """\
<style>
  /* The newsletter of Great Expectations would cover the last lines. */
  footer { display: none; }
  .calve-partitions td:nth-child(1) { white-space: nowrap; }
  .calve-partitions td:nth-child(2) { min-width: 16rem; }
  @media (max-width: 600px) { .col-6 { flex: 0 0 100%; max-width: 100%; } }
  @media (prefers-color-scheme: dark) {
    /* The logo is black. */
    .navbar-brand a { background: none; }
    .navbar-brand a img { visibility: visible; filter: invert(1); }
    .alert-secondary { background-color: #2b3035; border-color: #495057; color: #dee2e6; }
  }
</style>
"""

# Chart scripts, which only profiling pages use.
_UNUSED_SCRIPT = re.compile(
    r"<script[^>]*\bsrc=[\"']https?://[^\"']*/(?:vega|vega-lite|vega-embed)@[^\"']*[\"'][^>]*>\s*</script>"
)
_TAG = re.compile(r"<(?:script|link|img|iframe|embed|object|source)\b[^>]*>", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(?:\b(?:src|href)=[\"']|url\(\s*[\"']?|@import\s+[\"'])((?:https?:)?//[^\"')\s]+)", re.IGNORECASE
)
_INTEGRITY = re.compile(r"\s(?:integrity|crossorigin)=(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_ICON = re.compile(r"(?:\.\./)+static/images/favicon\.ico")
_PAGE_LINK = re.compile(r"(?<=<a)\s+href=[\"']\.[^\"']*[\"']")
_STYLE = re.compile(r"<style\b.*?</style>|\bstyle=(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE | re.DOTALL)


class ExternalLoadError(RuntimeError):
    """A page still loads files from the internet, because Great Expectations' templates have changed.

    Attributes:
        addresses: The addresses that it loads.
    """

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        super().__init__(
            f"a page of Data Docs loads {', '.join(addresses)} from the internet; vendor these files in {_ASSETS.name} "
            f"and name them in {Path(__file__).name}"
        )


def offline_page(page: str, assets: str) -> str:
    """Return a page of Data Docs that loads its styles, scripts and images from a folder instead of the internet.

    Its links to other pages of the site are removed, because each page is written by itself.

    Args:
        page: The HTML as Great Expectations renders it.
        assets: The relative path from the page to the folder with `page_assets`.

    Raises:
        ExternalLoadError: The page loads a file that is not vendored.
    """
    page = _UNUSED_SCRIPT.sub("", page)
    for pattern in (_TAG, _STYLE):
        page = pattern.sub(lambda part: _rewrite_part(part.group(), assets), page)
    page = _PAGE_LINK.sub("", page.replace("</head>", f"{_OWN_STYLES}</head>", 1))
    if left := external_loads(page):
        raise ExternalLoadError(left)
    return page


@cache
def page_assets() -> tuple[str, dict[str, bytes]]:
    """Return the files that pages load, by their path below the folder of assets, and a digest of all of them.

    Raises:
        ExternalLoadError: A style loads a file that is not vendored.
    """
    contents = dict(_contents(_ASSETS, ""))
    images = files("great_expectations") / "render" / "view" / "static" / "images"
    contents |= {f"images/{name}": (images / name).read_bytes() for name in _IMAGES}
    for name, content in contents.items():
        if name.endswith(".css") and (left := external_loads(f"<style>{content.decode()}</style>")):
            raise ExternalLoadError(left)
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16], contents


def _contents(folder: Traversable, start: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder of the package, which may be in a zip file."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield f"{start}{entry.name}", entry.read_bytes()
        else:
            yield from _contents(entry, f"{start}{entry.name}/")


def external_loads(page: str) -> list[str]:
    """Return the addresses outside the site that a browser loads to show a page."""
    parts = [*_TAG.findall(page), *_STYLE.findall(page)]
    return sorted({address for part in parts for address in _ADDRESS.findall(part)})


def _rewrite_part(part: str, assets: str) -> str:
    replaced = part
    for address, local in _local_files(part):
        replaced = replaced.replace(address, f"{assets}/{local}")
    replaced = _ICON.sub(f"{assets}/images/favicon.ico", replaced)
    return _INTEGRITY.sub("", replaced) if replaced != part else part


def _local_files(part: str) -> Iterator[tuple[str, str]]:
    for address in _ADDRESS.findall(part):
        plain = address.partition("?")[0].replace(".min.", ".")
        for end, local in _REPLACEMENTS.items():
            if plain.endswith(end):
                yield address, local
