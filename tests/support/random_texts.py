"""Random strings, of which many are nearly values of a type."""

from __future__ import annotations

from random import Random

VALUES = (
    *("1", "-7", "+03", " 4", "4 ", "127", "128", "2147483648", "9223372036854775808", "202401", "19723", "20240105"),
    *(
        "3.0",
        "1.50",
        ".5",
        "5.",
        "1e3",
        "1.5d",
        "2f",
        "0x1p3",
        "1e-40",
        "123456.789",
        "1e400",
        "NaN",
        "-inf",
        "Infinity",
    ),
    *("true", "FALSE", " true ", "y", "yes", "no", "t", "0", "on", "", " ", "null", "abc", "ab   ", "abcd", "a/b"),
    *("2024-05-04", "2024-5-4", "2024/5/4", "24-5-4", "2024-05", "2024-02-30", "0000-01-01", "9999-12-31", "today"),
    *("2024-05-02 00:00:00", "2024-05-02T00:00:00.000", "2024-05-02 10:30", "2024-05-02 10:30:00.123456", "12:30"),
    *("2024-05-02 10:30:00.1234567", "2024-05-02 10:30:00.123456000", "2024-05-02T10:30:00Z", "2024-05-02 24:00:00"),
    *("2024-05-02 10:30:00+01:00", "2024-05-02T10:30:00.5-0530", "2024-05-02 10:30:00 UTC", "now", "10000-01-01"),
    *("2024-05-02 10:30:00 Europe/Berlin", "0001-01-01 00:00:00", "1582-10-10", "1582-10-10 12:00:00", "-2024-01-01"),
)
_CHARACTERS = "0123456789-+./: TZeEdDfFxX\tnaity"


def random_texts(count: int, seed: int) -> list[str]:
    """Return `VALUES`, and then strings that differ from one of them by a few characters; none twice."""
    random, texts = Random(seed), dict.fromkeys(VALUES)
    while len(texts) < count:
        text = random.choice(VALUES)
        for _ in range(random.choice((1, 1, 2, 3))):
            at = random.randint(0, len(text))
            text = text[:at] + random.choice(("", random.choice(_CHARACTERS))) + text[at + random.randint(0, 1) :]
        texts[text] = None
    return list(texts)
