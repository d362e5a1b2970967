"""The parts of `make test-all` have all tests, and what has passed on a commit is remembered."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import __main__ as of_command
from tests.parts.parts import PARTS, SAMPLE, Part
from tests.parts.running import command
from tests.parts.state import State, current_commit

REPOSITORY = Path(__file__).parents[2]
OF_OTHER_COMMANDS = ("tests/trino/",)
"""Folders that `make test-trino` runs."""


def owners(path: str) -> list[Part]:
    """Return the parts that run all of a file: those that name it, else those that name the nearest folder of it."""
    for folder in (path, *map(str, Path(path).parents)):
        if parts := [part for part in PARTS.values() if folder in part.paths and part is not SAMPLE]:
            return parts
    return []


def test_each_file_of_tests_is_run_by_one_part_or_by_complementary_ones() -> None:
    for file in (REPOSITORY / "tests").rglob("test_*.py"):
        path = str(file.relative_to(REPOSITORY))
        if path.startswith(OF_OTHER_COMMANDS):
            continue
        parts = owners(path)
        assert parts, f"no part of make test-all runs {path}; add it in tests/parts/parts.py"
        assert len(parts) == 1 or is_split(parts), f"{path} is run by {[part.title for part in parts]}"


def is_split(parts: list[Part]) -> bool:
    """Return whether the last of these parts runs what the others do not, of the same files."""
    *first, rest = parts
    return (
        len({part.paths for part in parts}) == 1 and rest.keywords == f"not ({' or '.join(p.keywords for p in first)})"
    )


def test_the_first_part_is_what_make_test_runs() -> None:
    options = command(SAMPLE)[3:]
    assert options.pop() == "tests"
    makefile = (REPOSITORY / "Makefile").read_text()
    assert f'$(IN_PARALLEL) -m "{options[-1]}"\n' in makefile
    assert f"IN_PARALLEL := {' '.join(options[:-2])}\n" in makefile


def test_each_path_of_a_part_exists() -> None:
    for part in PARTS.values():
        for path in part.paths:
            assert (REPOSITORY / path).exists(), f"{path} of {part.title!r}"


def test_a_part_leaves_files_to_the_parts_that_name_them() -> None:
    ignored: Counter[str] = Counter()
    for part in PARTS.values():
        for argument in command(part):
            if argument.startswith("--ignore="):
                path = argument.removeprefix("--ignore=")
                assert part not in owners(path)
                ignored[path] += 1
    named = {path for part in PARTS.values() for path in part.paths}
    assert ignored.keys() <= named


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    commands = (["init", "-q"], ["config", "user.name", "test"], ["config", "user.email", "test@example.org"])
    for arguments in (*commands, ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def test_parts_that_passed_on_a_commit_are_not_repeated(repository: Path) -> None:
    path = repository / ".git" / "state" / "test-all.json"
    path.parent.mkdir()
    commit = current_commit(repository)
    state = State(path)
    assert state.missing(commit) == [*PARTS]
    state.record(1, commit, has_passed=True, seconds=60)
    state.record(2, commit, has_passed=False, seconds=90)
    assert State(path).missing(commit) == [*PARTS][1:]
    lines = [line.split() for line in State(path).table()]
    assert lines[0][:4] == ["1", "passed", "1.0", "min"]
    assert lines[1][:4] == ["2", "FAILED", "1.5", "min"]
    assert lines[2][:3] == ["3", "not", "run"]


def test_a_new_commit_repeats_all_parts(repository: Path) -> None:
    path = repository / ".git" / "test-all.json"
    State(path).record(1, current_commit(repository), has_passed=True, seconds=60)
    subprocess.run(["git", "-C", str(repository), "commit", "-q", "--allow-empty", "-m", "second"], check=True)
    assert State(path).missing(current_commit(repository)) == [*PARTS]


def test_results_of_changed_files_count_for_no_commit(repository: Path) -> None:
    path = repository / ".git" / "test-all.json"
    (repository / "changed").touch()
    assert current_commit(repository) is None
    State(path).record(1, None, has_passed=True, seconds=60)
    assert State(path).missing(None) == [*PARTS]


def edited(repository: Path) -> None:
    (repository / "changed").touch()


def committed(repository: Path) -> None:
    subprocess.run(["git", "-C", str(repository), "commit", "-q", "--allow-empty", "-m", "second"], check=True)


@pytest.mark.parametrize("change", [edited, committed])
def test_results_of_files_that_changed_during_a_run_count_for_no_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path, commit = repository / ".git" / "test-all.json", current_commit(repository)
    monkeypatch.setattr(of_command, "REPOSITORY", repository)
    monkeypatch.setattr(of_command, "STATE", path)
    monkeypatch.setattr(of_command, "run", lambda _part, repository: change(repository) or 0)
    assert of_command.main(["2"]) == 0
    (repository / "changed").unlink(missing_ok=True)
    assert State(path).missing(commit) == State(path).missing(current_commit(repository)) == [*PARTS]


def test_results_of_two_processes_are_kept(repository: Path) -> None:
    path, commit = repository / ".git" / "test-all.json", current_commit(repository)
    states = [State(path), State(path)]
    for number, state in enumerate(states, 1):
        state.record(number, commit, has_passed=True, seconds=60)
    assert State(path).missing(commit) == [*PARTS][2:]


@pytest.mark.parametrize("text", ["{", "[]", '{"a part": 3}', '{"a part": {"commit": null}}'])
def test_a_damaged_file_of_results_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "test-all.json"
    path.write_text(text)
    monkeypatch.setattr(of_command, "STATE", path)
    with pytest.raises(SystemExit, match=f"the file {path} does not have the results of parts; delete it"):
        of_command.main(["list"])


def test_results_stay_with_their_parts_when_numbers_change(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, commit = repository / ".git" / "test-all.json", current_commit(repository)
    State(path).record(2, commit, has_passed=True, seconds=60)
    renumbered = dict(enumerate([PARTS[1], Part("a new one", ()), *list(PARTS.values())[1:]], 1))
    monkeypatch.setattr("tests.parts.state.PARTS", renumbered)
    assert State(path).missing(commit) == [number for number in renumbered if number != 3]
