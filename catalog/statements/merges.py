"""Splitting of MERGE into its parts, whose expressions stay as they were written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from catalog.statements.splitting import Part, part_of, split_update, words_of


class MergeCase(StrEnum):
    """The rows that a WHEN clause is about."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(StrEnum):
    """The change that a WHEN clause makes to its rows."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True)
class ClauseParts:
    """A WHEN clause.

    Attributes:
        condition: After AND; None without it.
        values: Pairs of column and expression; None for `*`. The columns of INSERT without a list are empty.
    """

    case: MergeCase
    action: MergeAction
    condition: Part | None
    values: Sequence[tuple[Part, Part]] | None = ()


@dataclass(frozen=True)
class MergeParts:
    """A MERGE.

    Attributes:
        source: A name, or a query in parentheses.
        target_alias, source_alias: Empty if there is none.
    """

    target: Part
    target_alias: Part
    source: Part
    source_alias: Part
    condition: Part
    clauses: Sequence[ClauseParts] = field(default_factory=list)


class MergeSyntaxError(Exception):
    """The text is no MERGE.

    Attributes:
        position: The place in the text.
    """

    def __init__(self, problem: str, position: int) -> None:
        """Set the problem and its place."""
        super().__init__(problem)
        self.position = position


_CASES = {
    ("MATCHED",): MergeCase.MATCHED,
    ("NOT", "MATCHED"): MergeCase.NOT_MATCHED,
    ("NOT", "MATCHED", "BY", "TARGET"): MergeCase.NOT_MATCHED,
    ("NOT", "MATCHED", "BY", "SOURCE"): MergeCase.NOT_MATCHED_BY_SOURCE,
}
_ACTIONS = {
    MergeCase.MATCHED: (MergeAction.UPDATE, MergeAction.DELETE),
    MergeCase.NOT_MATCHED: (MergeAction.INSERT,),
    MergeCase.NOT_MATCHED_BY_SOURCE: (MergeAction.UPDATE, MergeAction.DELETE),
}

_Word = tuple[str, int, int]
"""A word or sign outside of parentheses and CASE, in upper case, with its start and end."""


def split_merge(text: str, start: int) -> MergeParts:
    """Return the parts of a MERGE.

    Args:
        start: The position after INTO.

    Raises:
        MergeSyntaxError: A part is missing or misplaced.
    """
    words = list(_outer(words_of(text, start)))
    using = _find(words, "USING", start, "USING and the source")
    on = _find(words, "ON", using[2], "ON and a condition")
    whens = [word for word in words if word[0] == "WHEN" and word[1] >= on[2]]
    if not whens:
        raise MergeSyntaxError("MERGE has no WHEN clause; say what to do WHEN MATCHED or WHEN NOT MATCHED", len(text))
    ends = [*(when[1] for when in whens[1:]), len(text)]
    clauses = [_clause(text, words, when, end) for when, end in zip(whens, ends, strict=True)]
    target, target_alias = _aliased(text, words, start, using[1])
    source, source_alias = _aliased(text, words, using[2], on[1])
    return MergeParts(target, target_alias, source, source_alias, part_of(text, on[2], whens[0][1]), clauses)


def _outer(words: Iterator[_Word]) -> Iterator[_Word]:
    """Yield the words outside of parentheses and of CASE … END."""
    depth = 0
    for word in words:
        if word[0] in ("(", "[", "CASE"):
            # The parenthesis itself is a word outside.
            if depth == 0 and word[0] != "CASE":
                yield word
            depth += 1
        elif word[0] in (")", "]", "END") and depth:
            depth -= 1
            if depth == 0 and word[0] != "END":
                yield word
        elif depth == 0:
            yield word


def _find(words: Sequence[_Word], name: str, start: int, expected: str) -> _Word:
    found = next((word for word in words if word[0] == name and word[1] >= start), None)
    if found is None:
        raise MergeSyntaxError(f"MERGE has no {expected}", start)
    return found


def _aliased(text: str, words: Sequence[_Word], start: int, end: int) -> tuple[Part, Part]:
    """Return a name or query, and its alias."""
    own = [word for word in words if start <= word[1] < end]
    if not own:
        raise MergeSyntaxError("expected a table", start)
    count = 2 if own[0][0] == "(" else 3 if len(own) > 2 and own[1][0] == "." else 1
    rest = own[count:]
    if rest and rest[0][0] == "AS":
        rest = rest[1:]
    if len(rest) > 1 or (len(own) > count and not rest):
        raise MergeSyntaxError("expected a table and its alias", own[0][1])
    alias = part_of(text, rest[0][1], rest[0][2]) if rest else Part("", end)
    return part_of(text, own[0][1], own[min(count, len(own)) - 1][2]), alias


def _clause(text: str, words: Sequence[_Word], when: _Word, end: int) -> ClauseParts:
    own = [word for word in words if when[2] <= word[1] < end]
    then = _find(own, "THEN", when[2], "THEN in a WHEN clause")
    conjunction = next((word for word in own if word[0] == "AND" and word[1] < then[1]), None)
    head = tuple(word[0] for word in own if word[1] < (then if conjunction is None else conjunction)[1])
    case = _CASES.get(head)
    if case is None:
        raise MergeSyntaxError(f"a clause is WHEN {', WHEN '.join(MergeCase)}", when[1])
    condition = None if conjunction is None else part_of(text, conjunction[2], then[1])
    tail = [word for word in own if word[1] >= then[2]]
    if not tail or tail[0][0] not in _ACTIONS[case]:
        raise MergeSyntaxError(f"WHEN {case} is followed by THEN {' or '.join(_ACTIONS[case])}", then[1])
    action = MergeAction(tail[0][0])
    if action is MergeAction.UPDATE:
        return ClauseParts(case, action, condition, _assigned(text, tail, end))
    if action is MergeAction.INSERT:
        return ClauseParts(case, action, condition, _inserted(text, tail, end))
    if len(tail) > 1:
        raise MergeSyntaxError("nothing follows DELETE but the next WHEN", tail[1][1])
    return ClauseParts(case, action, condition)


def _assigned(text: str, tail: Sequence[_Word], end: int) -> Sequence[tuple[Part, Part]] | None:
    if len(tail) < 3 or tail[1][0] != "SET":
        raise MergeSyntaxError("UPDATE is followed by SET and assignments, or SET *", tail[0][1])
    if [word[0] for word in tail[2:]] == ["*"]:
        return None
    assignments, _ = split_update(text[:end], tail[1][2])
    return assignments


def _inserted(text: str, tail: Sequence[_Word], end: int) -> Sequence[tuple[Part, Part]] | None:
    names = [word[0] for word in tail[1:]]
    if names == ["*"]:
        return None
    if names not in (["VALUES", "(", ")"], ["(", ")", "VALUES", "(", ")"]):
        raise MergeSyntaxError("INSERT is followed by (columns) VALUES (expressions), or *", tail[0][1])
    values = _listed(text, tail[-2][2], tail[-1][1])
    columns = _listed(text, tail[1][2], tail[2][1]) if len(names) > 3 else [Part("", part.position) for part in values]
    if len(columns) != len(values):
        raise MergeSyntaxError(f"INSERT has {len(columns)} columns and {len(values)} values", tail[0][1])
    return list(zip(columns, values, strict=True))


def _listed(text: str, start: int, end: int) -> list[Part]:
    """Return the items between commas."""
    commas = [word for word in _outer(words_of(text[:end], start)) if word[0] == ","]
    starts, ends = [start, *(comma[2] for comma in commas)], [*(comma[1] for comma in commas), end]
    return [part_of(text, first, last) for first, last in zip(starts, ends, strict=True)]
