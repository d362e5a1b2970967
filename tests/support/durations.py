"""The seconds that tests took: the slowest tests, and the sum of each folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

SLOWEST = 10


def folder_of(nodeid: str) -> str:
    """Return the folder of a test, of at most two levels below `tests`."""
    return "/".join(nodeid.partition("::")[0].split("/")[:-1][:3])


def lines(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Yield the lines of both lists. Set-up and tear-down count; what tests share counts for the first of them."""
    tests: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for report in reports:
        folder = folder_of(report.nodeid)
        tests[report.nodeid] += report.duration
        folders[folder] += report.duration
        counts[folder] += report.when == "setup"
    yield f"slowest {min(SLOWEST, len(tests))} of {len(tests)} tests:"
    yield from (f"{seconds:8.1f} s  {nodeid}" for nodeid, seconds in tests.most_common(SLOWEST))
    yield "folders, with the sum of all processes:"
    yield from (f"{seconds:8.1f} s  {counts[folder]:5} tests  {folder}" for folder, seconds in folders.most_common())
    yield f"{sum(folders.values()):8.1f} s  {sum(counts.values()):5} tests"
