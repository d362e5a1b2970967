"""Scripts are split into statements, also with quotes and comments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.statements.splitting import replace_literals, split, without_comments


def texts(script: str) -> list[str]:
    return [statement.text for statement in split(script)]


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        (" ; ;; \n", []),
        ("-- only a comment; with a semicolon", []),
        ("SHOW DATABASES", ["SHOW DATABASES"]),
        ("a; b ;c", ["a", "b", "c"]),
        ("a 'x;y' b; c", ["a 'x;y' b", "c"]),
        ('a "x;y" b; c', ['a "x;y" b', "c"]),
        ("a `x;y` b; c", ["a `x;y` b", "c"]),
        ("a 'it''s;' b; c", ["a 'it''s;' b", "c"]),
        (r"a 'it\';s' b; c", [r"a 'it\';s' b", "c"]),
        (r"a '\\'; b", [r"a '\\'", "b"]),
        (r"a (r'\'), R'\'; b", [r"a (r'\'), R'\'", "b"]),
        ('a r"\\"; b', ['a r"\\"', "b"]),
        (r"a r'x\';y'; b", [r"a r'x\'", "y'; b"]),
        (r"ar'x\';y'; b", [r"ar'x\';y'", "b"]),
        ("a -- it's; a comment\n b; c", ["a -- it's; a comment\n b", "c"]),
        ("a /* ; ' */ b; c", ["a /* ; ' */ b", "c"]),
        ("a /* x /* ; */ ; */ b; c", ["a /* x /* ; */ ; */ b", "c"]),
        ("/* before */ a /* behind */ ; -- and\n b", ["a", "b"]),
        ("SELECT /*+ BROADCAST(t) */ 1", ["SELECT /*+ BROADCAST(t) */ 1"]),
        ("SELECT 1 - 2 / 3;x", ["SELECT 1 - 2 / 3", "x"]),
    ],
)
def test_semicolons_end_statements_outside_of_quotes_and_comments(script: str, statements: list[str]) -> None:
    assert texts(script) == statements


@pytest.mark.parametrize("opened", ["'", '"', "`", "/*", "/* a /* b */", "'\\"])
def test_nothing_behind_an_open_quote_is_taken_for_a_statement(opened: str) -> None:
    assert texts(f"a; b {opened} x; DROP TABLE t;")[1:] in ([f"b {opened} x; DROP TABLE t;"], ["b"])


def test_a_statement_knows_where_it_begins() -> None:
    script = "a;\n\n-- note\n  b;\nc\nd; e"
    found = list(split(script))
    assert [(each.text, each.line) for each in found] == [("a", 1), ("b", 4), ("c\nd", 5), ("e", 6)]
    assert all(script[each.offset :].startswith(each.text) for each in found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a 'x' \"y\" `z`", "a # # `z`"),
        ("a -- it's\nb = 'x'", "a        \nb = #"),
        ("a /* don't */ b = 'x'", "a             b = #"),
        ("a `it's` = 'x'", "a `it's` = #"),
        (r"a r'\', 'x'", "a #, #"),
        (r"a 'x\'y', 'it''s'", "a #, ##"),
        ("a 'x", "a #"),
    ],
)
def test_literals_are_replaced_for_people(text: str, shown: str) -> None:
    assert replace_literals(text, lambda _: "#") == shown


def test_literals_of_long_comments_are_replaced_in_no_time() -> None:
    assert replace_literals("a --" + "\\'" * 500_000, lambda _: "#").split() == ["a"]


scripts = st.lists(st.sampled_from([*"ab;'\"`\\ \n-*/", "--", "/*", "*/", "''"]), max_size=40).map("".join)


@given(scripts)
def test_no_character_but_of_comments_blanks_and_semicolons_is_lost(script: str) -> None:
    found = list(split(script))
    ends = [each.offset + len(each.text) for each in found]
    for begin, each, end in zip([0, *ends], found, ends, strict=False):
        assert script[each.offset : end] == each.text
        assert not without_comments(script[begin : each.offset]).strip(" \n;")
    assert not without_comments(script[ends[-1] if ends else 0 :]).strip(" \n;")


@given(scripts)
def test_comments_are_blanked_without_moving_anything(script: str) -> None:
    for each in split(script):
        plain = without_comments(each.text)
        assert len(plain) == len(each.text)
        assert all(after in (before, " ") for before, after in zip(each.text, plain, strict=True))
