"""Schemes behave like a model: each value has one partition, ids are never reused, and reverses restore the start."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.datafiles.pruning import partitions_of
from catalog.expressions import parse_expression
from catalog.model import Column, FileFormat, Table
from catalog.rebalancing.changes import DropPartitions, change_from_json
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme
from catalog.tables.schemes import scheme_from_json, scheme_from_properties
from catalog.types.key_types import KeyValue
from tests.support.effort import effort
from tests.support.scheme_cases import COLUMN, Case, cases, interval_cases, same_partitions, steps, undone
from tests.support.scheme_model import HashModel, IntervalModel, Model
from tests.support.scheme_values import comparison, filters, membership, order, plain, values_of

EXAMPLES = effort(25, 300)
few = settings(max_examples=EXAMPLES)


def typed(scheme: Scheme, value: Any) -> KeyValue | None:
    return None if value is None else scheme.value_type.parse(plain(value))


def check_agreement(scheme: Scheme, model: Model, values: list[Any]) -> None:
    assert scheme.lines() == model.lines()
    assert list(scheme.ids) == model.ids
    for value in values:
        assert scheme.partition_of(typed(scheme, value)) == model.of(value), value


def values(case: Case) -> st.SearchStrategy[list[Any]]:
    return st.lists(values_of(case.kind), max_size=6).map(lambda drawn: [None, *case.pool, *drawn])


def parts(scheme: Scheme) -> Any:
    """Return the parts of a scheme without ids; the order of groups is ignored."""
    if isinstance(scheme, HashScheme):
        return scheme.count
    if isinstance(scheme, ListScheme):
        return {frozenset(scheme.value_type.encode(scheme.typed(each)) for each in texts) for _, texts in scheme.groups}
    return scheme.encoded_bounds  # type: ignore[attr-defined]


@few
@given(data=st.data())
def test_every_value_is_where_the_model_has_it_whatever_changes(data: st.DataObject) -> None:
    case = data.draw(cases() | cases() | interval_cases())
    scheme, model, sample = case.scheme, case.model, data.draw(values(case))
    check_agreement(scheme, model, sample)
    seen = set(scheme.ids)
    for _ in range(data.draw(st.integers(1, 5))):
        before, step = scheme, data.draw(steps(model, case.pool))
        assert change_from_json(step.change.as_json()) == step.change
        effect = step.change.of(before)
        scheme = effect.scheme
        # The model deletes no partition: later rows go to the partition that takes its values.
        check_agreement(scheme, step.model, sample)
        if not isinstance(model, HashModel):
            new = set(scheme.ids) - set(before.ids)
            assert not new & seen
            seen |= new
        for value in sample:
            old = model.of(value)
            if old in effect.deleted:
                assert isinstance(step.change, DropPartitions)
                assert step.change.with_data
            else:
                assert step.model.of(value) in effect.targets.get(old, (old,)), value
        assert set(effect.targets) | set(effect.deleted) <= set(before.ids)
        assert {each for targets in effect.targets.values() for each in targets} <= set(scheme.ids)
        model = step.model


@few
@given(data=st.data())
def test_the_reverse_gives_the_start_back(data: st.DataObject) -> None:
    case = data.draw(cases() | cases() | interval_cases())
    before, model = case.scheme, case.model
    for _ in range(data.draw(st.integers(0, 2))):
        step = data.draw(steps(model, case.pool))
        before, model = step.change.of(before).scheme, step.model
    step = data.draw(steps(model, case.pool))
    after = step.change.of(before).scheme
    reverse = step.change.reverse(before, after)
    if reverse is None:
        assert isinstance(step.change, DropPartitions)
        assert step.change.with_data or len(step.change.partition_ids) > 1
        return
    restored = reverse.of(after).scheme
    check_agreement(restored, undone(step.change, model, step.model), [])
    assert parts(restored) == parts(before)
    same = same_partitions(before, restored)
    for value in data.draw(values(case)):
        assert same[before.partition_of(typed(before, value))] == restored.partition_of(typed(before, value))


@few
@given(case=cases())
def test_a_scheme_is_kept_as_json_and_as_properties(case: Case) -> None:
    assert scheme_from_json(case.scheme.as_json()) == case.scheme
    again = scheme_from_properties(Column(COLUMN, case.kind), case.scheme.properties())
    assert again == case.scheme


@few
@given(data=st.data())
def test_properties_make_a_scheme_that_places_alike_whatever_has_changed(data: st.DataObject) -> None:
    case = data.draw(cases())
    scheme, model = case.scheme, case.model
    for _ in range(data.draw(st.integers(1, 3))):
        step = data.draw(steps(model, case.pool))
        scheme, model = step.change.of(scheme).scheme, step.model
    again = scheme_from_properties(Column(COLUMN, case.kind), scheme.properties())
    same = same_partitions(scheme, again)
    for value in data.draw(values(case)):
        assert same[scheme.partition_of(typed(scheme, value))] == again.partition_of(typed(scheme, value))


@few
@given(data=st.data())
def test_ranges_come_by_themselves_as_in_the_model_whatever_changes(data: st.DataObject) -> None:
    case = data.draw(interval_cases())
    scheme, model = case.scheme, case.model
    assert isinstance(model, IntervalModel)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            step = data.draw(steps(model, case.pool))
            scheme, model = step.change.of(scheme).scheme, step.model  # type: ignore[assignment]
        else:
            value = data.draw(st.sampled_from(case.pool))
            extended = scheme.extended_to(typed(scheme, value))  # type: ignore[attr-defined]
            assert extended.ids[: len(scheme.ids)] == scheme.ids
            scheme, model = scheme_from_json(extended.as_json()), model.extended(value)
        check_agreement(scheme, model, [None, *case.pool])


@few
@given(data=st.data())
def test_properties_make_an_equal_scheme_but_for_the_ids(data: st.DataObject) -> None:
    case = data.draw(interval_cases() if data.draw(st.booleans()) else cases())
    scheme, model = case.scheme, case.model
    for _ in range(data.draw(st.integers(1, 5))):
        if isinstance(model, IntervalModel) and data.draw(st.booleans()):
            value = data.draw(st.sampled_from(case.pool))
            scheme, model = scheme.extended_to(typed(scheme, value)), model.extended(value)  # type: ignore[attr-defined]
        else:
            step = data.draw(steps(model, case.pool))
            scheme, model = step.change.of(scheme).scheme, step.model
    again = scheme_from_properties(Column(COLUMN, case.kind), scheme.properties())
    assert again.properties() == scheme.properties()
    assert renumbered(again) == renumbered(scheme)


def renumbered(scheme: Scheme) -> dict[str, Any]:
    """Return a scheme as JSON with the ids of a new scheme."""
    known = scheme.as_json()
    known.pop("next_id", None)
    for name in ("bounds", "groups"):
        if name in known:
            known[name] = [(number, part) for number, (_, part) in enumerate(known[name], 1)]
    return known


def filtered(case: Case, scheme: Scheme, text: str) -> set[int]:
    table = Table("demo", "t", (Column(COLUMN, case.kind),), (), FileFormat.PARQUET, "/t", scheme=scheme)
    found = partitions_of(parse_expression(text, table.filter_view), table)
    assert list(found) == [each for each in scheme.ids if each in found]
    return set(found)


@few
@given(data=st.data())
def test_no_partition_of_a_matching_value_is_pruned(data: st.DataObject) -> None:
    case = data.draw(cases())
    scheme, model = case.scheme, case.model
    for _ in range(data.draw(st.integers(0, 2))):
        step = data.draw(steps(model, case.pool))
        scheme, model = step.change.of(scheme).scheme, step.model
    sample = data.draw(values(case))
    for _ in range(4):
        where = data.draw(filters([(COLUMN, case.kind, case.pool)]))
        found = filtered(case, scheme, where.text)
        assert {model.of(value) for value in sample if where.test({COLUMN: value})} <= found, where.text


@few
@given(data=st.data())
def test_single_values_need_just_their_partitions(data: st.DataObject) -> None:
    case = data.draw(cases())
    members = data.draw(st.lists(st.sampled_from(case.pool) | values_of(case.kind), min_size=1, max_size=4))
    expected = {case.model.of(value) for value in members}
    assert filtered(case, case.scheme, membership(COLUMN, case.kind, "", members).text) == expected
    one = comparison(COLUMN, case.kind, "=", members[0])
    assert filtered(case, case.scheme, one.text) == {case.model.of(members[0])}
    null = {case.model.of(None)}
    assert filtered(case, case.scheme, f"{COLUMN} is null") == null
    assert filtered(case, case.scheme, f"{one.text} or {COLUMN} is null") == null | {case.model.of(members[0])}
    assert filtered(case, case.scheme, f"{one.text} and {COLUMN} is null") == set()


@few
@given(case=cases(methods=["RANGE"]))
def test_a_range_between_two_bounds_needs_just_what_is_between(case: Case) -> None:
    """Also `c >= a and c <= LAST_BOUND`, which needs partition 0 for rows equal to the last bound."""
    bounds = [value for _, _, value in case.model.bounds]  # type: ignore[attr-defined]
    ids = case.model.ids
    for number, value in enumerate(bounds, 1):
        below = comparison(COLUMN, case.kind, "<", value).text
        upto = comparison(COLUMN, case.kind, "<=", value).text
        onwards = comparison(COLUMN, case.kind, ">=", value).text
        assert filtered(case, case.scheme, below) == set(ids[1 : number + 1])
        assert filtered(case, case.scheme, upto) == {*ids[1 : number + 1], (*ids, 0)[number + 1]}
        assert filtered(case, case.scheme, onwards) == {*ids[number + 1 :], 0}
    for low, high in _pairs(bounds):
        text = f"{comparison(COLUMN, case.kind, '>=', low).text} and {comparison(COLUMN, case.kind, '<', high).text}"
        assert filtered(case, case.scheme, text) == {case.model.of(low)}


def _pairs(bounds: list[Any]) -> Iterator[tuple[Any, Any]]:
    assert bounds == sorted(bounds, key=order)
    return pairwise(bounds)
