"""Literals are converted exactly to their column's type, or refused."""

from __future__ import annotations

import contextlib
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.statements.cells import CellError, cell_text
from catalog.statements.terms import Literal, LiteralKind

TEXT, NUMBER, BOOLEAN = LiteralKind.TEXT, LiteralKind.NUMBER, LiteralKind.BOOLEAN


@pytest.mark.parametrize(
    ("type_name", "kind", "text", "cell"),
    [
        ("int", NUMBER, "007", "7"),
        ("int", NUMBER, "-1e3", "-1000"),
        ("int", NUMBER, "5.00", "5"),
        ("bigint", TEXT, "-9223372036854775808", "-9223372036854775808"),
        ("decimal(5,2)", NUMBER, "1.5", "1.5"),
        ("decimal(5,2)", NUMBER, "-0.50e1", "-5"),
        ("decimal(38,0)", TEXT, "9" * 38, "9" * 38),
        ("double", NUMBER, "1e-3", "0.001"),
        ("double", TEXT, "NaN", "nan"),
        ("double", TEXT, "-Infinity", "-inf"),
        ("boolean", BOOLEAN, "true", "true"),
        ("boolean", TEXT, "FALSE", "false"),
        ("date", TEXT, "2014/1/2", "2014-01-02"),
        ("date", LiteralKind.DATE, "0000-02-29", "0000-02-29"),
        ("timestamp", LiteralKind.DATE, "2014-01-02", "2014-01-02 00:00:00"),
        ("timestamp", TEXT, "2014-01-02 03:04:05.6", "2014-01-02 03:04:05.600000"),
        ("string", NUMBER, "1e3", "1e3"),
        ("string", BOOLEAN, "true", "true"),
        ("string", TEXT, " x ", " x "),
        ("char(3)", TEXT, "ab  ", "ab"),
        ("varchar(2)", TEXT, "äö", "äö"),
        ("binary", LiteralKind.BINARY, "00ff", "00ff"),
        ("binary", TEXT, "ä", "c3a4"),
        ("array<int>", LiteralKind.NULL, None, None),
    ],
)
def test_a_literal_becomes_the_text_that_a_cast_reads(type_name: str, kind: LiteralKind, text: str, cell: str) -> None:
    assert cell_text(type_name, Literal(kind, text)) == cell


@pytest.mark.parametrize(
    ("type_name", "kind", "text", "said"),
    [
        ("int", NUMBER, "1.5", "not a whole number"),
        ("tinyint", NUMBER, "128", "outside -128 … 127"),
        ("int", NUMBER, "1e99999", "not a whole number"),
        ("int", TEXT, "", "not a whole number"),
        ("int", BOOLEAN, "true", "is a boolean"),
        ("decimal(5,2)", NUMBER, "1.555", "more digits than decimal(5,2)"),
        ("decimal(5,2)", NUMBER, "1000", "more digits than decimal(5,2)"),
        ("float", NUMBER, "1e39", "exceeds the range of float"),
        ("double", NUMBER, "-1e999", "exceeds the range of double"),
        ("boolean", NUMBER, "1", "is a number"),
        ("boolean", TEXT, "yes", "neither true nor false"),
        ("date", TEXT, "2014-02-30", "not a valid date"),
        ("date", NUMBER, "20140101", "is a number"),
        ("timestamp", TEXT, "2014-01-02T25:00", "not a valid timestamp"),
        ("varchar(2)", TEXT, "abc", "more than varchar(2) holds"),
        ("char(2)", NUMBER, "123", "more than char(2) holds"),
        ("string", LiteralKind.BINARY, "00", "is a binary"),
        ("binary", NUMBER, "1", "X'1A2B'"),
        ("map<int,int>", TEXT, "x", "INSERT INTO … SELECT"),
    ],
)
def test_what_does_not_fit_is_refused(type_name: str, kind: LiteralKind, text: str, said: str) -> None:
    with pytest.raises(CellError) as caught:
        cell_text(type_name, Literal(kind, text))
    assert said in str(caught.value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-99999, max_value=99999))
def test_decimals_keep_every_digit(number: Decimal) -> None:
    for text in (str(number), format(number, "f"), format(number, "e")):
        cell = cell_text("decimal(9,4)", Literal(NUMBER, text))
        assert cell is not None
        assert Decimal(cell) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_keep_every_bit(number: float) -> None:
    cell = cell_text("double", Literal(NUMBER, repr(number)))
    assert cell is not None
    assert struct.pack(">d", float(cell)) == struct.pack(">d", number + 0.0)


@given(st.sampled_from(list(LiteralKind)), st.text(), st.sampled_from(["int", "double", "date", "char(2)", "boolean"]))
def test_every_text_is_a_value_or_refused(kind: LiteralKind, text: str, type_name: str) -> None:
    if kind is NUMBER:
        return
    with contextlib.suppress(CellError):
        cell_text(type_name, Literal(kind, text))
