"""Limits of the front doors."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.doors.serving.access import Client, Role
from catalog.doors.serving.bodies import Body, UnknownBodies
from catalog.doors.serving.connections import Connections, Place, connection_records
from catalog.doors.serving.limits import Limits, Rates, rate_records
from catalog.errors import InvalidConfigurationError, RequestTooLargeError, SlowRequestError, TooManyRequestsError


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


JSON = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\a'),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text('[]{}"\\a'), children, max_size=3),
    max_leaves=20,
)


@given(value=JSON, nesting=st.integers(0, 6))
def test_nesting_is_that_of_the_parsed_value(value: Any, nesting: int) -> None:
    body = json.dumps(value).encode()
    if depth(value) <= nesting:
        Limits(nesting=nesting).require_flat(body)
    else:
        with pytest.raises(RequestTooLargeError, match=f"more than {nesting} levels"):
            Limits(nesting=nesting).require_flat(body)


def test_a_string_that_does_not_end_hides_nothing_from_a_parser() -> None:
    with pytest.raises(RequestTooLargeError):
        Limits(nesting=10).require_flat(b"[" * 100_000 + b'"' + b"]" * 100_000)


def test_size() -> None:
    Limits(body_bytes=10).require_size(10)
    with pytest.raises(RequestTooLargeError, match=r"has 11 bytes or more, 10 are allowed.*CALVE_DOOR_BODY_BYTES"):
        Limits(body_bytes=10).require_size(11)


def test_a_client_has_its_own_rate_and_bursts_of_twice_as_many() -> None:
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])
    for _ in range(4):
        rates.take("a")
    with pytest.raises(TooManyRequestsError, match="more than 2 requests a second"):
        rates.take("a")
    rates.take("b")
    now[0] += 0.5
    rates.take("a")
    with pytest.raises(TooManyRequestsError):
        rates.take("a")


def test_a_rate_is_that_of_all_processes_of_a_door() -> None:
    known = rate_records()

    def taken(door: str = "rest") -> int:
        rates, count = Rates(2, door, known, clock=lambda: 1_000.0), 0
        with suppress(TooManyRequestsError):
            while True:
                rates.take("a")
                count += 1
        return count

    process = os.fork()
    if not process:
        Rates(2, "rest", known, clock=lambda: 1_000.0).take("a")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert (taken(), taken(), taken("hms")) == (3, 0, 4)


def test_no_rate_is_no_limit() -> None:
    rates = Rates(0)
    for _ in range(1_000):
        rates.take("a")


def test_connections_are_those_of_all_processes_of_a_door() -> None:
    counts = connection_records()
    first, second, other = (
        Connections(door, 3, counts, number) for door, number in (("hms", 0), ("hms", 1), ("rest", 0))
    )

    def opened(connections: Connections) -> Place | None:
        if place := connections.open("a"):
            place.prove()
        return place

    places = [opened(first), opened(first), opened(second), opened(second)]
    assert list(map(bool, places)) == [True, True, True, False]
    assert opened(other)
    assert places[0] is not None
    places[0].close()
    assert (bool(opened(second)), bool(opened(first))) == (True, False)
    follower = Connections("hms", 3, counts, 1)
    assert [bool(opened(follower)) for _ in range(3)] == [True, True, False], "those of the dead are gone"


def test_clients_that_are_not_known_yet_have_a_part_of_the_places() -> None:
    counts = connection_records()
    connections = Connections("rest", 16, counts, 0, processes=2)

    def open_all(address: str) -> list[Place]:
        return list(iter(lambda: connections.open(address), None))

    assert [len(open_all(address)) for address in "abc"] == [2, 2, 0]
    connections = Connections("rest", 16, counts, 0)
    unknown = open_all("a")
    assert len(unknown) == 4
    for place in unknown:
        place.prove()
        place.prove()
    assert len(open_all("a")) == 4
    unknown[0].close()
    assert len(open_all("b")) == 4
    assert len(open_all("c")) == 0


def test_a_client_with_many_connections_loses_idle_ones_when_places_get_rare() -> None:
    connections, ended = Connections("hms", 16, connection_records(), 0), list[str]()

    def opened(name: str, address: str = "a") -> Place:
        place = connections.open(address)
        assert place is not None

        def end() -> None:
            ended.append(name)
            place.close()

        place.end = end
        place.prove(Client(name.partition(" ")[0], Role.READER))
        place.rest()
        return place

    first, second, *_ = [opened(f"reader {number}") for number in range(8)]
    first.work()
    first.rest()
    second.work()
    assert ended == [], "half of the places are for one client"
    for number in range(8, 30):
        opened(f"reader {number}")
    # The one that is in use stays.
    assert ended == [f"reader {number}" for number in (2, 3, 4, 5, 6, 7, 0, *range(8, 23))]
    for number in range(8):
        opened(f"owner {number}")
    assert len(ended) == 22
    assert connections.open("b") is None, "all places are taken"


def test_a_client_that_uses_all_its_connections_gets_no_more() -> None:
    connections = Connections("hms", 16, connection_records(), 0)
    reader, owner = Client("reader", Role.READER), Client("owner", Role.OWNER)

    def opened(client: Client) -> Place:
        place = connections.open("a")
        assert place is not None
        place.prove(client)
        return place

    used = [opened(reader) for _ in range(8)]
    refused = connections.open("a")
    assert refused is not None
    with pytest.raises(TooManyRequestsError, match=r"reader has 8 connections .* CALVE_DOOR_CONNECTIONS"):
        refused.prove(reader)
    refused.close()
    owned = [opened(owner) for _ in range(8)]
    for place in [*used, *owned]:
        place.close()
    assert len([opened(reader) for _ in range(8)]) == 8


def test_anonymous_clients_share_all_places() -> None:
    connections = Connections("hms", 16, connection_records(), 0)
    for _ in range(16):
        place = connections.open("a")
        assert place is not None
        place.prove()
        place.rest()


def test_limits_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_DOOR_CONNECTIONS", "10")
    monkeypatch.setenv("CALVE_DOOR_RATE", "10")
    monkeypatch.setenv("CALVE_DOOR_BODY_BYTES", "1000")
    limits = Limits.from_settings()
    assert (limits.connections, limits.requests_per_second, limits.body_bytes) == (10, 10, 1000)
    monkeypatch.setenv("CALVE_DOOR_BODY_BYTES", "0")
    with pytest.raises(InvalidConfigurationError, match="CALVE_DOOR_BODY_BYTES is 0, expected 1 or more"):
        Limits.from_settings()


def test_a_body_that_does_not_arrive_in_time_is_refused_as_slow() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    body = Body({}, {}, receive, Limits(proof_seconds=0.01), UnknownBodies(1_000))
    with pytest.raises(SlowRequestError, match=r"did not arrive within 0\.01 seconds; send it again"):
        asyncio.run(body())
