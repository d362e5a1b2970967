"""The code blocks of README and docs, and helpers to run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    [*REPOSITORY.glob("docs/*.md"), *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
)

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_ANY_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page.

    Attributes:
        title: The file name; None if the block is not a file.
    """

    page: str
    line: int
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        """Return the position of the block."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a console block.

    Attributes:
        output: The expected output; empty if the block does not show it.
        file: The file to which the output is redirected; None for the terminal.
    """

    words: tuple[str, ...]
    output: str
    file: str | None


def snippets(page: Path) -> list[Snippet]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(REPOSITORY))
    found = [
        Snippet(name, text.count("\n", 0, match.start()) + 1, match["language"], match["title"], match["text"])
        for match in _FENCE.finditer(text)
    ]
    fences = len(_ANY_FENCE.findall(text))
    assert fences == 2 * len(found), f"{name} has {fences} fences, of which {2 * len(found)} are blocks that tests know"
    return found


def commands(console: str) -> Iterator[Command]:
    """Yield the commands of a console block: a line with `$`, and the following lines while a quote is open."""
    lines = console.splitlines()
    assert lines[0].startswith("$ "), f"a console block begins with a command, and not with {lines[0]!r}"
    while lines:
        text = lines.pop(0).removeprefix("$ ")
        while (words := _words(text)) is None:
            text += "\n" + lines.pop(0)
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        file = words[-1] if words[-2:-1] == (">",) else None
        yield Command(words[:-2] if file else words, "\n".join(output), file)


def _words(text: str) -> tuple[str, ...] | None:
    if text.endswith("\\"):
        return None
    try:
        return tuple(shlex.split(text, comments=True))
    except ValueError:
        return None


_STATEMENT = re.compile(
    r"^(?=(?:ALTER|CALL|CREATE|DESCRIBE|DROP|EXPLAIN|INSERT|LOAD|MSCK|SELECT|SHOW|USE)\b)", re.MULTILINE
)


def statements(sql: str) -> Iterator[str]:
    """Yield the statements of a block with their syntax: without optional parts, and with them.

    `[…]` is optional, `{A | B}` is a choice, of which the first is used, and `…` is a placeholder.
    """
    for shown in _STATEMENT.split(sql):
        text = re.sub(r"--.*$", "", shown, flags=re.MULTILINE).strip().removesuffix(";")
        if not text:
            continue
        chosen = re.sub(r"\{([^|{}]*) \|[^{}]*\}", r"\1", text)
        marked = re.sub(r"ARRAY\[([^\]]*)\]", r"ARRAY<\1>", chosen)
        for form in {_without_options(marked), _with_options(marked)}:
            if "…" not in re.sub("'[^']*'", "", form):
                yield re.sub(r"ARRAY<([^>]*)>", r"ARRAY[\1]", form)


def _without_options(text: str) -> str:
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    return text


def _with_options(text: str) -> str:
    return text.replace("[", "").replace("]", "")
