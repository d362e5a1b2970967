"""Look-ups of the values of skipped keys: guessed ones, and those that are left to be looked up, are all that exist."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from catalog.indexes.skipping import Span
from catalog.partitions.lookups import likely_keys
from catalog.types.key_types import parse_key_type
from catalog.types.ranges import END, FIRST_VALUE

INTEGER = parse_key_type("int")
WIDTH = INTEGER.width
numbers = st.sets(st.integers(1, 12) | st.integers(-(2**31), 2**31 - 1) | st.none(), min_size=1, max_size=14)
YEAR = set(range(1, 13))


def keys_of(place: int, values: set[int | None]) -> set[bytes]:
    """Return the index keys of a place with these values of the next key."""
    return {_prefix(place) + (b"\0" if value is None else INTEGER.encode(value)) for value in values}


def _prefix(place: int) -> bytes:
    return b"\x01" + b"p" * place + b"\x01"


@given(st.lists(numbers, min_size=2, max_size=12), st.integers(1, 3), st.sampled_from([b"", FIRST_VALUE]))
@example([YEAR] * 8, 2, b"")
@example([YEAR, YEAR, YEAR | {13, None}, YEAR - {3}, {-5, 400}], 2, FIRST_VALUE)
def test_no_key_is_missed(values: list[set[int | None]], sampled: int, low: bytes) -> None:
    spans = [Span(len(_prefix(place)), _prefix(place) + low, _prefix(place) + END) for place in range(len(values))]
    stored = [keys_of(place, found) for place, found in enumerate(values)]
    sample, others = spans[:sampled], spans[sampled:]
    known = [key for span, keys in zip(sample, stored, strict=False) for key in keys if span.low <= key < span.high]
    likely, unknown = likely_keys(sample, known, others, WIDTH)
    existing = {key for span, keys in zip(others, stored[sampled:], strict=True) for key in keys if span.low <= key}
    looked_up = {key for span in unknown for key in existing if span.low <= key < span.high}
    assert existing <= set(likely) | looked_up
    assert len(set(likely)) == len(likely)
    assert looked_up.isdisjoint(likely)


def test_values_that_follow_one_another_are_not_looked_up() -> None:
    spans = [Span(len(_prefix(place)), _prefix(place), _prefix(place) + END) for place in range(10)]
    known = sorted(keys_of(0, YEAR) | keys_of(1, YEAR))
    likely, unknown = likely_keys(spans[:2], known, spans[2:], WIDTH)
    assert set(likely) == {key for place in range(2, 10) for key in keys_of(place, YEAR)}
    assert len(unknown) == 2 * 8
    assert likely_keys(spans[:2], known, spans[2:], None) == ([], spans[2:])
