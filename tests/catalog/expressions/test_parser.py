"""Filter expressions: their meaning, refused expressions, and error positions."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Column, FileFormat, Table
from catalog.errors import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTooComplexError,
    LiteralTypeError,
    UnknownColumnError,
    UnsupportedExpressionError,
)
from catalog.expressions import Filter, parse_expression
from catalog.expressions.parser import MAXIMUM_LENGTH
from catalog.expressions.tree import ALL, Condition, Operator, conjuncts
from catalog.types.key_types import KeyValue, parse_key_type
from tests.support.fuzz_expressions import fuzz
from tests.support.strategies import TYPE_NAMES, values

TABLE = Table(
    database="demo",
    name="t",
    columns=(Column("v", "int"),),
    partition_keys=(Column("s", "string"), Column("n", "int"), Column("d", "date"), Column("c", "char(3)")),
    format=FileFormat.PARQUET,
    location="/demo/t",
)


def matches(expression: str, s: str | None = None, n: int | None = None, d: str | None = None) -> bool | None:
    """Return the value of an expression for a partition; None for unknown."""
    day = None if d is None else TABLE.key_types[2].parse(d)
    is_true, is_false = (is_matched(text, s, n, day) for text in (expression, f"not ({expression})"))
    assert not (is_true and is_false)
    return True if is_true else False if is_false else None


def is_matched(expression: str, *values: KeyValue | None) -> bool:
    """Return whether a partition with these typed values, followed by nulls, matches."""
    columns = {number: (value,) for number, value in enumerate((*values, None, None, None, None))}
    condition: Filter[KeyValue | None] = Filter(
        parse_expression(expression, TABLE), dict.fromkeys(range(4), lambda value: value)
    )
    return next(iter(condition.mask(columns)))


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_an_empty_expression_means_all(text: str | None) -> None:
    assert parse_expression(text, TABLE) == ALL


@pytest.mark.parametrize(
    ("expression", "is_of_false", "is_of_true"),
    [
        ("b between false and true", True, True),
        ("b between true and true", False, True),
        ("b not between false and false", False, True),
        ("b between false and true and true", True, True),
        ("b in (true) or b = false", True, True),
    ],
)
def test_truth_values_are_bounds_of_boolean_keys(expression: str, is_of_false: bool, is_of_true: bool) -> None:
    table = replace(TABLE, partition_keys=(Column("b", "boolean"),))
    condition: Filter[KeyValue | None] = Filter(parse_expression(expression, table), {0: lambda value: value})
    values = [table.key_types[0].parse(text) for text in ("false", "true")]
    assert list(condition.mask({0: values})) == [is_of_false, is_of_true]


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("n = 1", True),
        ("N = '1'", True),
        ('`n` = "01"', True),
        ("1 = n", True),
        ("2 > n", True),
        ("n <> 1", False),
        ("not n = 2", True),
        ("n between 1 and 1", True),
        ("n not between 1 and 3", False),
        ("n in (3, 2, '1')", True),
        ("n = -1", False),
        ("n = null", None),
        ("not (n = null)", None),
        ("n in (2, null)", None),
        ("n in (1, null)", True),
        ("n not in (2, null)", None),
        ("c = 'a'", None),
        ("c in ('a', 'b')", None),
        ("c not in ('a', 'b')", None),
        ("c not like 'a%'", None),
        ("c is null", True),
        ("c is not null", False),
        ("c = 'a' or n = 1", True),
        ("c = 'a' and n = 2", False),
        ("c = 'a' and n = 1", None),
        ("true", True),
        ("n = 1 and false", False),
        ("s = 'it''s'", True),
        ('s = "it\'s"', True),
        ("s = 'it\\'s'", True),
        ("s like 'it_s'", True),
        ("s like 'IT%'", False),
        ("s like 'it!_s' escape '!'", False),
        ("s not like 'x%'", True),
        ("d = '2023-02-01'", True),
        ("d = date '2023-2-1'", True),
        ("d < '2023-02-02' and d > '0000-02-29'", True),
    ],
)
def test_an_expression_follows_three_valued_logic(expression: str, answer: bool | None) -> None:
    assert matches(expression, s="it's", n=1, d="2023-02-01") is answer


@pytest.mark.parametrize(
    ("expression", "error", "named", "position"),
    [
        ("n =", ExpressionSyntaxError, "the end cannot be read", 3),
        ("n = 1 and", ExpressionSyntaxError, "the end cannot be read", 9),
        ("n in ()", ExpressionSyntaxError, "a literal", 6),
        ("n = 1 n = 2", ExpressionSyntaxError, "'n'", 6),
        ("s = 'open", ExpressionSyntaxError, "a quote is not closed", 4),
        ("s = 'it\\'s", ExpressionSyntaxError, "a quote is not closed", 4),
        ("n = 1; n = 2", ExpressionSyntaxError, "';'", 5),
        ("missing = 1", UnknownColumnError, "'missing' is not a partition key of demo.t", 0),
        ("n = 1 and V = 2", UnknownColumnError, "'V'", 10),
        ("n = 'foo'", LiteralTypeError, "'foo' is not a whole number", 4),
        ("n = 1.5", LiteralTypeError, "'1.5'", 4),
        ("n in (1, 3e9)", LiteralTypeError, "'3e9'", 9),
        ("d = '2023-02-30'", LiteralTypeError, "'2023-02-30'", 4),
        ("s like 5", LiteralTypeError, "quoted pattern", 7),
        ("n like '1%'", UnsupportedExpressionError, "'n' is of type int", 0),
        ("d like '2023%'", UnsupportedExpressionError, "'d' is of type date", 0),
        ("n = n", UnsupportedExpressionError, "two partition keys", 4),
        ('"n" = "s"', UnsupportedExpressionError, "two partition keys", 6),
        ("1 in (n)", UnsupportedExpressionError, "a partition key is expected instead of a literal", 0),
        ("n between n and 2", UnsupportedExpressionError, "a literal is expected instead of a partition key", 10),
        ("1 = 'a'", UnsupportedExpressionError, "a number is compared with a string", 0),
        ("s like 'a' escape 'xx'", UnsupportedExpressionError, "one quoted character", 18),
        ("n + 1 = 2", ExpressionSyntaxError, "'+'", 2),
        ("upper(s) = 'A'", ExpressionSyntaxError, "'('", 5),
        ("n", ExpressionSyntaxError, "the end", 1),
        ("n = 1 x", ExpressionSyntaxError, "'x'", 6),
        ("t.n = 1", ExpressionSyntaxError, "'.'", 1),
        ("n in (select 1)", ExpressionSyntaxError, "'1'", 13),
        ("n is true", ExpressionSyntaxError, "'true'", 5),
        ("select 1", ExpressionSyntaxError, "'1'", 7),
    ],
)
def test_a_faulty_expression_is_refused_where_it_is_wrong(
    expression: str, error: type[ExpressionError], named: str, position: int | None
) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse_expression(expression, TABLE)
    assert type(refused.value) is error
    assert named in str(refused.value)
    assert expression in str(refused.value)
    if position is not None:
        assert refused.value.position == position


@pytest.mark.parametrize("key_type", ["tinyint", "int", "bigint", "decimal(9,2)"])
@pytest.mark.parametrize("number", ["1" + "0" * 39, "-1" + "0" * 39])
def test_a_number_beyond_the_range_of_a_key_is_compared_as_sql_does(key_type: str, number: str) -> None:
    table = Table("demo", "t", (), (Column("k", key_type),), FileFormat.PARQUET, "/demo/t")
    is_above = not number.startswith("-")
    for text, expected in {
        f"k = {number}": False,
        f"k != {number}": True,
        f"k < {number}": is_above,
        f"k <= {number}": is_above,
        f"k > {number}": not is_above,
        f"{number} <= k": not is_above,
        f"k in (0, {number})": True,
        f"k not in (1, {number})": True,
        f"k between 0 and {number}": is_above,
    }.items():
        for written, answer in ((text, expected), (f"not ({text})", not expected)):
            condition: Filter[KeyValue | None] = Filter(parse_expression(written, table), {0: lambda known: known})
            assert list(islice(condition.mask({0: (0, None)}), 2)) == [answer, False], written


def test_a_decimal_of_more_digits_than_any_is_compared_exactly() -> None:
    key_type = parse_key_type("decimal(5,2)")
    assert key_type.parse_bound("1." + "0" * 50) == (key_type.parse("1"), True)
    for text, below in (("1." + "0" * 45 + "1", "1"), ("-0." + "9" * 45, "-1"), ("1e-100", "0"), ("0e90", "0")):
        bound, is_exact = key_type.parse_bound(text)
        assert (bound is not None and bound // 10**40 == int(below), is_exact) == (True, text == "0e90"), text


def test_a_long_list_of_alternatives_is_read() -> None:
    expression = " or ".join(f"n = {number}" for number in range(3000))
    assert matches(expression, n=2999) is True
    assert matches(expression, n=3000) is False


@pytest.mark.parametrize(
    "expression",
    [
        "n = 1 or " * (MAXIMUM_LENGTH // 9) + "n = 1000",
        "n > 1 and (n < 2 or (" * 2_000 + "n = 3" + "))" * 2_000,
    ],
)
def test_an_expression_beyond_reason_is_too_complex(expression: str) -> None:
    with pytest.raises(ExpressionTooComplexError):
        parse_expression(expression, TABLE)


@pytest.mark.parametrize("depth", [1, 10, 50, 100, 200, 400, 800])
@pytest.mark.parametrize(("opened", "closed"), [("not (", ")"), ("n = 1 and (n = 2 or (", "))")])
def test_what_is_read_can_be_evaluated_however_deep_it_is(depth: int, opened: str, closed: str) -> None:
    expression = opened * depth + "n = 1" + closed * depth
    try:
        parsed = parse_expression(expression, TABLE)
    except ExpressionTooComplexError:
        assert depth >= 50
    else:
        assert conjuncts(parsed)
        assert is_matched(expression, "", 1) in (True, False)


@given(st.data())
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_a_typed_value_is_written_as_a_literal_that_reads_as_the_same_value(name: str, data: st.DataObject) -> None:
    table = Table("demo", "t", (), (Column("k", name),), FileFormat.PARQUET, "/demo/t")
    [key_type] = table.key_types
    value = key_type.parse(str(data.draw(values(name))))
    assert parse_expression(f"k = {key_type.format(value)}", table) == Condition(0, Operator.EQUAL, value)


def test_no_text_makes_the_parser_fail_in_another_way() -> None:
    outcomes, _, _ = fuzz(5_000)
    usual = {error.__name__ for error in ExpressionError.__subclasses__()} - {ExpressionTooComplexError.__name__}
    assert {"parsed", *usual} <= set(outcomes)


MOMENTS = Table(
    database="demo",
    name="m",
    columns=(Column("v", "int"),),
    partition_keys=(Column("t", "timestamp"),),
    format=FileFormat.PARQUET,
    location="/demo/m",
)
NANOSECONDS = st.integers(-3_000, 3_000)


def moment(nanoseconds: int) -> str:
    """Return the literal of a time near 2024-01-01, in nanoseconds."""
    day = "2024-01-01 00:00:00" if nanoseconds >= 0 else "2023-12-31 23:59:59"
    return f"'{day}.{nanoseconds % 10**9:09}'"


@given(stored=st.integers(-3, 3), low=NANOSECONDS, high=NANOSECONDS, data=st.data())
def test_literals_of_nanoseconds_are_compared_exactly(stored: int, low: int, high: int, data: st.DataObject) -> None:
    """A partition has microseconds, and null is neither inside nor outside."""
    value, time = 1_000 * stored, int(MOMENTS.key_types[0].parse("2024-01-01 00:00:00")) + stored
    expression, expected = data.draw(
        st.sampled_from(
            [
                (f"t = {moment(low)}", value == low),
                (f"t <> {moment(low)}", value != low),
                (f"t < {moment(low)}", value < low),
                (f"t <= {moment(low)}", value <= low),
                (f"{moment(low)} < t", value > low),
                (f"t >= {moment(low)}", value >= low),
                (f"t between {moment(low)} and {moment(high)}", low <= value <= high),
                (f"t in ({moment(low)}, {moment(high)})", value in (low, high)),
                (f"t not in ({moment(low)}, {moment(high)})", value not in (low, high)),
            ]
        )
    )
    for text, answer in ((expression, expected), (f"not ({expression})", not expected)):
        condition: Filter[KeyValue | None] = Filter(parse_expression(text, MOMENTS), {0: lambda known: known})
        assert list(islice(condition.mask({0: (time, None)}), 2)) == [answer, False], text
