"""Markdown of questions as HTML."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markupsafe import Markup

# HTML in a question is shown as text, and an image would be asked for from elsewhere.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def as_markup(markdown: str | None) -> Markup:
    """Return Markdown as HTML, with HTML in it as text."""
    return Markup(_MARKDOWN.render(markdown or ""))
