"""Names of environment variables and of Spark's settings whose values are secrets."""

from __future__ import annotations

import re

SECRET_NAMES = (
    r"(?i)secret|password|passphrase|token|credential|connection[._-]?string"
    r"|(access|account|api|private|session|storage)[._-]?key|(?<![a-z])(pass|pwd|sas)(?![a-z])"
)
"""A regular expression of Python and of Java: Spark redacts the same names as Calve (`spark.redaction.regex`).

It includes Spark's default, which redacts fewer.
"""

_SECRET = re.compile(SECRET_NAMES)


def is_name_of_secret(name: str) -> bool:
    """Return whether a variable or a setting of this name has, or may have, a secret."""
    return _SECRET.search(name) is not None
