"""Offline Data Docs of Great Expectations: pages load vendored files instead of files from ten content networks.

Upstream does not plan to change the pages (great_expectations issues 2870 and 8734).
"""

from __future__ import annotations

import base64
import mimetypes
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_ASSETS = files("spark_jobs.checking") / "data_docs_assets"
_VENDOR = "static/vendor"

_REPLACEMENTS = {
    "/bootstrap/4.3.1/css/bootstrap.css": f"{_VENDOR}/css/bootstrap.min.css",
    "/bootstrap/4.3.1/js/bootstrap.js": f"{_VENDOR}/js/bootstrap.min.js",
    "/bootstrap-table@1.19.1/dist/bootstrap-table.css": f"{_VENDOR}/css/bootstrap-table.min.css",
    "/bootstrap-table@1.19.1/dist/bootstrap-table.js": f"{_VENDOR}/js/bootstrap-table.min.js",
    # The templates mix two versions that have the same styles.
    "/bootstrap-table@1.19.0/dist/extensions/filter-control/bootstrap-table-filter-control.css": (
        f"{_VENDOR}/css/bootstrap-table-filter-control.min.css"
    ),
    "/bootstrap-table@1.19.1/dist/extensions/filter-control/bootstrap-table-filter-control.js": (
        f"{_VENDOR}/js/bootstrap-table-filter-control.min.js"
    ),
    "/bootstrap-datepicker/1.9.0/css/bootstrap-datepicker.css": f"{_VENDOR}/css/bootstrap-datepicker.min.css",
    "/bootstrap-datepicker/1.9.0/js/bootstrap-datepicker.js": f"{_VENDOR}/js/bootstrap-datepicker.min.js",
    "/bootstrap-dark@1.1.0/dist/css/bootstrap-prefers-dark.css": f"{_VENDOR}/css/bootstrap-prefers-dark.min.css",
    "/popper.js/1.12.9/umd/popper.js": f"{_VENDOR}/js/popper.min.js",
    "/jquery-3.7.1.js": f"{_VENDOR}/js/jquery.min.js",
    "/font-awesome/6.6.0/css/all.css": f"{_VENDOR}/css/fontawesome.min.css",
    # Great Expectations copies its logo to each site.
    "/logo-long.png": "static/images/logo-long.png",
    "/full_logo_dark.png": "static/images/logo-long.png",
}
"""Suffix of an external address, without `.min` → file in the site. A new version needs a newly vendored file."""

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
_SCRIPT_FILE = re.compile(r"<script\b[^>]*\bsrc=[\"'](?P<file>\.[^\"']+)[\"'][^>]*>\s*</script>", re.IGNORECASE)
_STYLE_FILE = re.compile(
    r"<link\b(?=[^>]*\brel=[\"']stylesheet)[^>]*\bhref=[\"'](?P<file>\.[^\"']+)[\"'][^>]*>", re.IGNORECASE
)
_FILE = re.compile(
    r"(?P<before>url\(\s*[\"']?|\bsrc=[\"']|<link\b[^>]*\bhref=[\"'])(?P<file>\.\.?/[^\"')\s]+)(?P<after>[\"')])",
    re.IGNORECASE,
)
_PAGE_LINK = re.compile(r"(?<=<a)\s+href=[\"']\.[^\"']*[\"']")
_STYLE = re.compile(r"<style\b.*?</style>|\bstyle=(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE | re.DOTALL)


class ExternalLoadError(RuntimeError):
    """A page still loads files from the internet, because Great Expectations' templates have changed.

    Attributes:
        page: The page.
        addresses: The addresses that it loads.
    """

    def __init__(self, page: Path, addresses: list[str]) -> None:
        self.page = page
        self.addresses = addresses
        super().__init__(
            f"{page} loads {', '.join(addresses)} from the internet; vendor these files in {_ASSETS.name} and name "
            f"them in {Path(__file__).name}"
        )


def make_self_contained(site: Path) -> None:
    """Make all pages of a Data Docs site load their styles, scripts and images from the site itself.

    A repeated call changes only pages that were written since.

    Args:
        site: Folder with the site's `index.html`.

    Raises:
        ExternalLoadError: A page loads a file that is not vendored.
    """
    _copy(_ASSETS, site / _VENDOR)
    for page in [*site.rglob("*.html"), *(site / "static" / "styles").glob("*.css")]:
        text = page.read_text(encoding="utf-8")
        root = os.path.relpath(site, page.parent)
        rewritten = _rewrite_part(text, root) if page.suffix == ".css" else _rewrite(text, root)
        if rewritten != text:
            part = page.with_name(f".{page.name}.part")
            part.write_text(rewritten, encoding="utf-8")
            part.replace(page)
        if left := external_loads(page):
            raise ExternalLoadError(page, left)


def _copy(source: Traversable, target: Path) -> None:
    """Copy a file or folder of the package, which may be in a zip file."""
    if source.is_file():
        target.write_bytes(source.read_bytes())
        return
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        _copy(entry, target / entry.name)


def as_one_file(page: Path) -> str:
    """Return a page of a self-contained site with all that it loads, and without links to the site's other pages."""

    def script(tag: re.Match[str]) -> str:
        # The only text that would end the script.
        code = (page.parent / tag["file"]).read_text(encoding="utf-8").replace("</script", "<\\/script")
        return f"<script>{code}</script>"

    def style(tag: re.Match[str]) -> str:
        sheet = page.parent / tag["file"]
        return f"<style>{_with_files(sheet.read_text(encoding='utf-8'), sheet.parent)}</style>"

    text = _SCRIPT_FILE.sub(script, page.read_text(encoding="utf-8"))
    text = _STYLE_FILE.sub(style, text)
    return _PAGE_LINK.sub("", _with_files(text, page.parent))


def _with_files(text: str, folder: Path) -> str:
    """Return a page or style with the images and fonts that it names, relative to a folder, as data."""

    def data(address: re.Match[str]) -> str:
        file = folder / address["file"]
        if not file.is_file():
            return address[0]
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        encoded = base64.b64encode(file.read_bytes()).decode("ascii")
        return f"{address['before']}data:{kind};base64,{encoded}{address['after']}"

    return _FILE.sub(data, text)


def external_loads(page: Path) -> list[str]:
    """Return the addresses outside the site that a browser loads to show a page or a stylesheet."""
    text = page.read_text(encoding="utf-8")
    parts = [text] if page.suffix == ".css" else [*_TAG.findall(text), *_STYLE.findall(text)]
    return sorted({address for part in parts for address in _ADDRESS.findall(part)})


def _rewrite(text: str, root: str) -> str:
    """Return a page with its external loads replaced; `root` is the path from the page to the site's folder."""
    text = _UNUSED_SCRIPT.sub("", text)
    for pattern in (_TAG, _STYLE):
        text = pattern.sub(lambda part: _rewrite_part(part.group(), root), text)
    return text


def _rewrite_part(part: str, root: str) -> str:
    replaced = part
    for address, local in _local_files(part):
        replaced = replaced.replace(address, f"{root}/{local}")
    # The page's link to the icon has one `..` too few.
    replaced = _ICON.sub(f"{root}/static/images/favicon.ico", replaced)
    return _INTEGRITY.sub("", replaced) if replaced != part else part


def _local_files(part: str) -> Iterator[tuple[str, str]]:
    for address in _ADDRESS.findall(part):
        plain = address.partition("?")[0].replace(".min.", ".")
        for end, local in _REPLACEMENTS.items():
            if plain.endswith(end):
                yield address, local
