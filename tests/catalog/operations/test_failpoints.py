"""Every place at which an operation can be killed is one at which a test kills it."""

from __future__ import annotations

from pathlib import Path

from catalog.operations.failpoints import Point
from tests.support.places import ELSEWHERE, PLACES, REPOSITORY, places_of_the_code


def test_a_test_kills_at_every_place() -> None:
    in_matrix = [place for places in PLACES.values() for place in places]
    elsewhere = [place for places in ELSEWHERE.values() for place in places]
    listed = [*in_matrix, *elsewhere]
    assert len(listed) == len(set(listed))
    missing = places_of_the_code().symmetric_difference(listed)
    assert missing == set(), "add the place, and the test that kills there, to tests/support/places.py"


def test_the_tests_elsewhere_name_the_points() -> None:
    for file, places in ELSEWHERE.items():
        text = Path(REPOSITORY, file).read_text()
        for place in places:
            assert f"Point.{Point(place.rpartition(': ')[2]).name}" in text, (file, place)


def test_every_point_is_reached_somewhere() -> None:
    assert {place.rpartition(": ")[2] for place in places_of_the_code()} == set(Point)
