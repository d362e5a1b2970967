"""Text for people without characters that change how the text around them looks."""

from __future__ import annotations

import re

_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""The controls of writing directions with which ED can look like DE. Source: Unicode Standard Annex 9."""


def visible(text: str) -> str:
    r"""Return a text in which such characters are escapes, such as `\u202e`."""
    return _DIRECTIONS.sub(lambda match: ascii(match.group())[1:-1], text)
