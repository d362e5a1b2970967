"""Which parts have passed, on which commit."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.parts.parts import PARTS


def current_commit(repository: Path) -> str | None:
    """Return the commit that is checked out; None if files differ from it, so that a result is of no commit."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(repository), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return None if git("status", "--porcelain") else git("rev-parse", "HEAD")


class DamagedStateError(Exception):
    """The file with the results of parts cannot be read.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"the file {path} does not have the results of parts; delete it, which repeats all parts")
        self.path = path


@dataclass(frozen=True)
class Result:
    """The last run of a part.

    Attributes:
        commit: None if the files were those of no commit.
    """

    commit: str | None
    has_passed: bool
    seconds: float


class State:
    """The results of parts, in a file, by their titles: a part that is divided changes the numbers of others."""

    def __init__(self, path: Path) -> None:
        """Read the results, if there are any.

        Raises:
            DamagedStateError: The file is not one of results.
        """
        self._path = path
        self._results = self._read()

    def missing(self, commit: str | None) -> list[int]:
        """Return the parts that have not passed on a commit, in their order."""
        passed = {title for title, result in self._results.items() if result.has_passed and result.commit == commit}
        return [number for number, part in PARTS.items() if commit is None or part.title not in passed]

    def record(self, number: int, commit: str | None, *, has_passed: bool, seconds: float) -> None:
        """Replace the result of a part; results that other processes have recorded meanwhile are kept.

        Raises:
            DamagedStateError: The file is no longer one of results.
        """
        self._path.parent.mkdir(exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._results = {**self._read(), PARTS[number].title: Result(commit, has_passed, round(seconds, 1))}
            text = json.dumps({title: asdict(result) for title, result in self._results.items()}, indent=1)
            partial = self._path.with_suffix(".part")
            partial.write_text(text)
            partial.replace(self._path)

    def table(self) -> Iterator[str]:
        """Yield a line for each part: number, result, minutes, commit and title."""
        for number, part in PARTS.items():
            result = self._results.get(part.title)
            if result is None:
                yield f"{number:4}  not run                           {part.title}"
                continue
            outcome = "passed" if result.has_passed else "FAILED"
            commit = (result.commit or "no commit")[:9]
            yield f"{number:4}  {outcome}  {result.seconds / 60:6.1f} min  {commit:9}    {part.title}"

    def _read(self) -> dict[str, Result]:
        if not self._path.exists():
            return {}
        try:
            return {title: Result(**values) for title, values in json.loads(self._path.read_text()).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedStateError(self._path) from error
