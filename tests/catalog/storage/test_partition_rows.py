"""The garbage collector rests while many objects are made, and is then as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from catalog.storage.partition_rows import collected_once


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_rests_within_the_block_only() -> None:
    with collected_once():
        assert not gc.isenabled()
        with collected_once():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collected_once():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_it_stays_off_where_a_program_has_turned_it_off() -> None:
    gc.disable()
    with collected_once():
        pass
    assert not gc.isenabled()
