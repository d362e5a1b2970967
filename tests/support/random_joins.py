"""Random joins of the tables of tests/spark_jobs/queries/test_query.py."""

from __future__ import annotations

from hypothesis import strategies as st


def comparisons(side: str, keys: dict[str, list[str]]) -> st.SearchStrategy[str]:
    """Conditions on one key of one side of a join, and on its rows."""
    key = st.sampled_from(sorted(keys)).flatmap(
        lambda name: st.tuples(
            st.just(f"{side}.{name}"),
            st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]),
            st.sampled_from(keys[name]),
            st.sampled_from(keys[name]),
        )
    )
    return st.one_of(
        key.map(lambda drawn: f"{drawn[0]} {drawn[1]} {drawn[2]}"),
        key.map(lambda drawn: f"{drawn[2]} {drawn[1]} {drawn[0]}"),
        key.map(lambda drawn: f"{drawn[0]} IN ({drawn[2]}, {drawn[3]})"),
        key.map(lambda drawn: f"{drawn[0]} BETWEEN {drawn[2]} AND {drawn[3]}"),
        key.map(lambda drawn: f"{drawn[0]} IS NULL"),
        st.sampled_from(
            [f"{side}.id > 9", f"{side}.customer IS NULL", "l.country = r.country", "l.country < r.country"]
        ),
    )


ORDERS_KEYS = {
    "country": ["'US'", "'DE'", "'E'", "NULL", "upper('us')"],
    "n": ["1", "2", "'2'", "2.5", "3L", "NULL"],
    "day": ["'2024-01-02'", "DATE'2024-01-01' + INTERVAL 1 DAY", "TIMESTAMP'2024-01-02 12:00:00'"],
}
CUSTOMERS_KEYS = {"country": ORDERS_KEYS["country"], "tier": ["'a'", "'a '", "'b'", "NULL", "concat('b', '')"]}


def either_side() -> st.SearchStrategy[str]:
    leaf = comparisons("l", ORDERS_KEYS) | comparisons("r", CUSTOMERS_KEYS)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda both: f"({both[0]} AND {both[1]})"),
            st.tuples(inner, inner).map(lambda both: f"({both[0]} OR {both[1]})"),
            inner.map(lambda one: f"NOT ({one})"),
        ),
        max_leaves=4,
    )


JOINED = st.builds(
    "FROM shop.orders l {} JOIN shop.customers r ON l.customer = r.customer AND {} WHERE {}".format,
    st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
    either_side(),
    either_side(),
)
