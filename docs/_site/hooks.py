"""Hooks of mkdocs: pages that lie outside docs/, and links that leave it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parents[2]

ROOT_PAGES = {"README.md": "index.md", **{name: name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")}}
"""Markdown in the root of the repository → its page on the site."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root folder."""
    for name, page in ROOT_PAGES.items():
        content = _with_links_of_site((REPOSITORY / name).read_text(encoding="utf-8"), folder="")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links from docs/ to the root folder."""
    return markdown if page.file.src_uri in ROOT_PAGES.values() else _with_links_of_site(markdown, folder="docs/")


def _with_links_of_site(markdown: str, *, folder: str) -> str:
    """Return a page whose links lead to pages of the site.

    The site does not have the code: of a link to it, the text remains.

    Args:
        folder: The folder of the page in the repository, empty or with a slash at its end.
    """

    def rewritten(link: re.Match[str]) -> str:
        target, hash_sign, anchor = link["target"].partition("#")
        if not target or "://" in target:
            return link[0]
        path = str((REPOSITORY / folder / target).resolve().relative_to(REPOSITORY))
        site = path.removeprefix("docs/") if path.startswith("docs/") else ROOT_PAGES.get(path)
        if site is None:
            return link["text"]
        return f"{link['image']}[{link['text']}]({site}{hash_sign}{anchor})"

    return _LINK.sub(rewritten, markdown)
