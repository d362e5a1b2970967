"""Fuzz tests of the filter parser: it must raise only its own errors, in a short time.

The suite runs a few thousand inputs; to run more: `python -m tests.support.fuzz_expressions 1000000`.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from catalog import Column, FileFormat, Table
from catalog.errors import ExpressionError
from catalog.expressions import parse_expression
from catalog.expressions.parser import MAXIMUM_LENGTH

TABLE = Table(
    database="demo",
    name="t",
    columns=(),
    partition_keys=(Column("s", "string"), Column("n", "int"), Column("d", "date"), Column("c", "char(3)")),
    format=FileFormat.PARQUET,
    location="/demo/t",
)
TOKENS = (
    *("s", "n", "d", "c", "S", "`s`", '"n"', "t.s", "missing", "ä", "🙂"),
    *("=", "<>", "!=", "<", "<=", ">", ">=", "==", "<=>", "+", "-", "*", "/", "||", ";", ",", ".", "(", ")", "[", "{"),
    *(
        "and",
        "or",
        "not",
        "in",
        "like",
        "between",
        "is",
        "null",
        "escape",
        "true",
        "false",
        "date",
        "NOT NULL",
        "select",
    ),
    *("1", "-1", "0x1F", "1e5", "1.5", ".5", "99999999999999999999", "'a'", '"a"', "'it''s'", "'\\'", "'%_\\%'", "''"),
    *(
        "date '2023-9-01'",
        "'2023-02-30'",
        "'",
        '"',
        "`",
        "\\",
        "--",
        "/*",
        "*/",
        "#",
        "{{",
        "\0",
        "\x01",
        "\ud800",
        "\n",
    ),
)
CLAUSES = (
    *("s = 'a'", "n > 1", "d <= '2023-9-01'", "c is null", "n in (1, 2, null)", "s like 'a%'", "n between 1 and 2"),
    *("not n = 1", "s not in ('a', 'b')", "1 = 1", "(n = 1 or n = 2)", "s like 'a!%' escape '!'"),
)


def inputs(seed: int) -> Iterator[str]:
    """Yield random texts without end: valid ones, damaged ones, random tokens, and sometimes a very long one."""
    chance = random.Random(seed)
    while True:
        kind = chance.random()
        if kind < 0.45:
            text = "".join(chance.choice(TOKENS) + chance.choice(("", " ", " ")) for _ in range(chance.randint(1, 24)))
        elif kind < 0.95:
            text = " ".join(
                part
                for _ in range(chance.randint(1, 6))
                for part in (chance.choice(CLAUSES), chance.choice(("and", "or")))
            ).rsplit(" ", 1)[0]
            if chance.random() < 0.7:
                at, width = chance.randrange(len(text) + 1), chance.choice((0, 1, 2, 5))
                text = text[:at] + chance.choice(("", *TOKENS)) + text[at + width :]
        elif kind < 0.9995:
            text = "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0x110000)))) for _ in range(40))
        else:
            text = _repeated(chance)
        yield text


def _repeated(chance: random.Random) -> str:
    opening, closing = chance.choice(
        (
            ("(", ")"),
            ("not ", ""),
            ("not (", ")"),
            ("n = 1 and (n > 2 or ", ")"),
            ("'", ""),
            ("n in (1,", ")"),
            ("((n", "))"),
        )
    )
    piece = chance.choice(
        (opening, chance.choice(CLAUSES) + " or ", chance.choice(CLAUSES) + " and ", chance.choice(TOKENS))
    )
    count = chance.randint(1, chance.choice((20_000, MAXIMUM_LENGTH)) // len(piece) + 2)
    return piece * count + "n = 1" + closing * (count if piece == opening else 0)


def fuzz(count: int, seed: int = 0) -> tuple[Counter[str], float, str]:
    """Parse a number of inputs.

    Returns:
        The count of each outcome, and the longest time in seconds with its input.

    Raises:
        Exception: Any error that is not an `ExpressionError`, with the input as its note.
    """
    outcomes: Counter[str] = Counter()
    slowest, slowest_text = 0.0, ""
    for _, text in zip(range(count), inputs(seed), strict=False):
        began = time.perf_counter()
        try:
            parse_expression(text, TABLE)
        except ExpressionError as error:
            outcomes[type(error).__name__] += 1
        except BaseException as error:
            error.add_note(f"input: {text[:1000]!r}")
            raise
        else:
            outcomes["parsed"] += 1
        if (took := time.perf_counter() - began) > slowest:
            slowest, slowest_text = took, text
    return outcomes, slowest, slowest_text


if __name__ == "__main__":
    found, seconds, culprit = fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for outcome, times in found.most_common():
        print(f"{outcome:<28} {times:>10,}")
    print(f"slowest: {seconds:.3f} s, {len(culprit):,} characters: {culprit[:80]!r}")
