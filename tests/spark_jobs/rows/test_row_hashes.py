from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIFFERENT = [
    ("(1, cast(null as int))", "(cast(null as int), 1)"),
    ("array(1, null)", "array(null, 1)"),
    ("array()", "cast(null as array<int>)"),
    ("array(array(1), array())", "array(array(), array(1))"),
    ("array(named_struct('a', 1, 'b', null))", "array(named_struct('a', null, 'b', 1))"),
    ("map('a', array())", "map('a', null)"),
    ("map()", "cast(null as map<string,int>)"),
    # The same numbers and flags in the same order.
    ("(array(0), array(0, 0))", "(array(0, 0), array(0))"),
    ("(array(0, 0, 0), array(0))", "(array(0), array(0, 0, 0))"),
    ("array(array(0), array(0, 0))", "array(array(0, 0), array(0))"),
    ("(map(0, 0), map(0, 0, 1, 0))", "(map(0, 0, 1, 0), map(0, 0))"),
    ("map(0, array(0), 1, array(0, 0))", "map(0, array(0, 0), 1, array(0))"),
    # Keys of a char(n), as the file has them.
    ("map('a', 1)", "map('a ', 1)"),
    ("map('a', 1, 'a ', 2)", "map('a', 2, 'a ', 1)"),
]
SAME = [
    ("0D", "-0D"),
    ("array(0F)", "array(-0F)"),
    ("double('nan')", "sqrt(-1D)"),
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
]


def test_values_have_one_hash_only_if_they_are_equal(spark: SparkSession) -> None:
    """Spark's hash ignores nulls and the ends of arrays."""
    from spark_jobs.rows.row_hashes import row_hash

    values = {value for pair in (*DIFFERENT, *SAME) for value in pair}
    names = {value: f"c{number}" for number, value in enumerate(sorted(values))}
    rows = spark.sql(f"SELECT {', '.join(f'{value} AS {name}' for value, name in names.items())}")
    types = {field.name: field.dataType for field in rows.schema}
    selected = rows.select(*[row_hash([(rows[name], types[name])]).alias(name) for name in names.values()])
    (hashes,) = selected.collect()
    assert [pair for pair in DIFFERENT if hashes[names[pair[0]]] == hashes[names[pair[1]]]] == []
    assert [pair for pair in SAME if hashes[names[pair[0]]] != hashes[names[pair[1]]]] == []
