"""Exactly the forbidden reads and calls of statements are refused, on a real session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

from catalog import Catalog
from catalog.errors import CatalogError, LocationNotAllowedError, RefusedStatementError, TableNotFoundError
from catalog.statements.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.statement_engine import SparkEngine

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

SECRET = "planted-73110-secret"

# `{file}` is a file of the worker that belongs to no table.
ATTEMPTS = {
    "reflect": "SELECT reflect('java.lang.System', 'getenv', 'PLANTED')",
    "java_method": "SELECT JAVA_METHOD('java.lang.System', 'getenv', 'PLANTED')",
    "try_reflect": "SELECT `try_reflect`('java.lang.System', 'getenv', 'PLANTED')",
    "a name that is computed": "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'PLANTED')",
    "a qualified function": "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'PLANTED')",
    "a script": "SELECT TRANSFORM (id) USING 'printenv PLANTED' AS (secret string) FROM t",
    "a script of a subquery": "SELECT * FROM (FROM t MAP id USING 'cat {file}' AS secret)",
    "a path": "SELECT * FROM text.`{file}`",
    "a path in capital letters": "SELECT * FROM `TEXT`.`file://{file}`",
    "a path as binary": "SELECT cast(content AS string) FROM `binaryFile`.`{file}`",
    "a computed path": "SELECT * FROM IDENTIFIER('text.`{file}`')",
    "a path below a common table expression": "WITH x AS (SELECT * FROM csv.`{file}`) SELECT * FROM x",
    "a path in EXISTS": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM text.`{file}` WHERE value LIKE 'p%')",
    "a path in a lateral subquery": "SELECT s.* FROM t, LATERAL (SELECT * FROM text.`{file}`) AS s",
    "a path behind UNION": "SELECT '' UNION ALL (SELECT value FROM text.`{file}`)",
    "a path with TABLE": "SELECT (SELECT max(value) FROM (TABLE text.`{file}`))",
    "reflect in a named window": """SELECT sum(id) OVER w FROM t
        WINDOW w AS (ORDER BY reflect('java.lang.System', 'getenv', 'PLANTED'))""",
    "reflect in VALUES": "SELECT * FROM VALUES (reflect('java.lang.System', 'getenv', 'PLANTED')) AS v (secret)",
    "reflect in a lambda": "SELECT transform(array('PLANTED'), x -> reflect('java.lang.System', 'getenv', x))",
    "reflect in FILTER": "SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getenv', 'PLANTED') > 'a') FROM t",
    "reflect in ORDER BY": "SELECT id FROM t ORDER BY reflect('java.lang.System', 'getenv', 'PLANTED')",
    "reflect in a table function": """SELECT * FROM
        explode(array(reflect('java.lang.System', 'getenv', 'PLANTED')))""",
    "reflect in LATERAL VIEW": """SELECT secret FROM t LATERAL VIEW
        explode(array(reflect('java.lang.System', 'getenv', 'PLANTED'))) x AS secret""",
    "reflect in PIVOT": """SELECT * FROM t PIVOT
        (max(reflect('java.lang.System', 'getenv', 'PLANTED')) FOR id IN (1, 2))""",
    "reflect in a view": "SELECT * FROM bad_view",
    "a path in a view": "SELECT * FROM path_view",
    "a schema file": "SELECT from_xml('<a>1</a>', 'a int', map('rowValidationXSDPath', '{file}'))",
    "a descriptor file": "SELECT from_protobuf(X'00', 'A', '{file}')",
    "an external entity": "SELECT xpath_string('<!DOCTYPE a [<!ENTITY b SYSTEM \"file://{file}\">]><a>&b;</a>', 'a')",
    "logs of workers": "SELECT * FROM python_worker_logs()",
    "INSERT": "INSERT INTO t SELECT 1, reflect('java.lang.System', 'getenv', 'PLANTED')",
    "INSERT of a path": "INSERT INTO t SELECT 1, value FROM text.`{file}`",
    "INSERT of a common table expression": "INSERT INTO t WITH x AS (SELECT * FROM csv.`{file}`) SELECT 1, _c0 FROM x",
    "a path behind a hint": "SELECT /*+ BROADCAST(x) */ * FROM t JOIN csv.`file:{file}` AS x ON true",
    "a path of a pattern": "SELECT * FROM csv.`{file}*`",
    "a path of another format": "SELECT * FROM parquet.`{file}`, orc.`{file}`, json.`{file}`",
    "a path with a schema": "SELECT * FROM csv.`{file}` WITH (header 'false')",
    "reflect in reflect": """SELECT reflect('java.lang.String', 'valueOf',
        reflect('java.lang.System', 'getenv', 'PLANTED'))""",
    "reflect in a common table expression of a subquery": """SELECT (WITH x AS (SELECT
        reflect('java.lang.System', 'getenv', 'PLANTED') AS s) SELECT s FROM x)""",
    "reflect in an argument of a table function": """SELECT * FROM
        range(length(reflect('java.lang.System', 'getenv', 'PLANTED')))""",
    "reflect behind a variable": "SELECT IDENTIFIER(:name)('java.lang.System', 'getenv', 'PLANTED')",
    "a second statement": "SELECT 1; SELECT reflect('java.lang.System', 'getenv', 'PLANTED')",
    "a second statement in a comment's shadow": "SELECT 1 /* ; */; DROP TABLE t PURGE",
}

HARMLESS = [
    "SELECT count(*), sum(id) OVER w FROM t GROUP BY id WINDOW w AS (ORDER BY id)",
    "WITH a AS (SELECT id, name FROM t) SELECT id, upper(a.name) FROM a JOIN shop.t AS b USING (id) WHERE id IN (1, 2)",
    "SELECT * FROM t WHERE id = (SELECT max(id) FROM t) OR EXISTS (SELECT 1 FROM t AS o WHERE o.id = t.id)",
    "SELECT id FROM t UNION SELECT 1 EXCEPT SELECT 2 INTERSECT SELECT 3 ORDER BY 1 LIMIT 3 OFFSET 0",
    "SELECT explode(sequence(1, 3)), current_date, CURRENT_TIMESTAMP, extract(YEAR FROM DATE '2020-01-01')",
    "SELECT * FROM range(3) AS r (n), LATERAL (SELECT n + 1 AS m) WHERE n BETWEEN 0 AND 2 AND NOT n <=> 1",
    "SELECT * FROM t LATERAL VIEW explode(array(1, 2)) x AS y",
    "SELECT * FROM t PIVOT (count(name) FOR id IN (1, 2))",
    "SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR n IN (a, b))",
    "SELECT transform(array(1), x -> x * 2), CASE WHEN id > 0 THEN 'a' END, name || 'x', -id, id % 2 FROM t",
    "SELECT id, count(*) FILTER (WHERE id > 0) FROM t GROUP BY GROUPING SETS ((id), ()) HAVING count(*) >= 0",
    "SELECT /*+ BROADCAST(t) */ DISTINCT * FROM t TABLESAMPLE (100 PERCENT) CLUSTER BY id",
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v (x, y)",
    "SELECT * FROM good_view",
    """SELECT from_csv('1,a', 'id int, name string'), from_json('{}', 'a int'), to_csv(struct(1)),
        schema_of_json('{}')""",
    """WITH a AS (SELECT id FROM t), b AS (WITH a AS (SELECT id + 1 AS id FROM A) SELECT id FROM a)
        SELECT * FROM b WHERE EXISTS (SELECT * FROM a WHERE a.id IN (SELECT id FROM `B`))""",
    "WITH t AS (SELECT name FROM shop.t) SELECT name FROM t",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
    "INSERT INTO t WITH a AS (SELECT * FROM t) SELECT * FROM a",
]

# `leak` is a Spark table, or a temporary view, that is not in the catalog.
FOREIGN_READS = [
    "SELECT * FROM leak",
    "SELECT * FROM `LEAK`",
    "SELECT * FROM (TABLE leak)",
    "SELECT * FROM (FROM leak)",
    "SELECT (SELECT max(secret) FROM leak) FROM t",
    "SELECT 1 UNION ALL SELECT secret FROM leak",
    "SELECT * FROM t, LATERAL (SELECT secret FROM leak)",
    "WITH x AS (SELECT * FROM leak) SELECT * FROM x",
    "WITH leak AS (SELECT * FROM leak) SELECT * FROM leak",
    "WITH RECURSIVE x AS (SELECT secret FROM leak UNION ALL SELECT secret FROM x WHERE false) SELECT * FROM x",
    "WITH x AS (SELECT * FROM leak), leak AS (SELECT 1 AS secret) SELECT * FROM x",
    "SELECT * FROM (WITH leak AS (SELECT 1 AS secret) SELECT * FROM leak) JOIN leak",
    "SELECT secret FROM leak WHERE EXISTS (WITH leak AS (SELECT 1) SELECT * FROM leak)",
    "WITH x AS (WITH leak AS (SELECT 1 AS secret) SELECT * FROM leak) SELECT * FROM leak",
    "SELECT * FROM foreign_view",
    "INSERT INTO t SELECT 1, secret FROM leak",
]


@pytest.fixture
def session(start: Callable[[Catalog], SparkEngine], catalog: Catalog) -> Iterator[Session]:
    catalog.create_database("shop")
    with Session(catalog, database="shop", start=start) as opened:
        for statement in (
            "CREATE TABLE t (id int, name string) STORED AS PARQUET",
            "CREATE VIEW good_view AS SELECT id FROM t",
            "CREATE VIEW bad_view AS SELECT reflect('java.lang.System', 'getenv', 'PLANTED') AS secret",
            "CREATE VIEW path_view AS SELECT * FROM text.`/etc/passwd`",
            "CREATE VIEW foreign_view AS SELECT * FROM leak",
        ):
            opened.execute(statement)
        yield opened


@on_sqlite
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_statement_reads_neither_the_environment_nor_a_file(session: Session, tmp_path: Path, attempt: str) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(SECRET)
    with pytest.raises(CatalogError) as caught:
        session.execute(attempt.replace("{file}", str(secrets)))
    assert type(caught.value).__name__ in _REFUSALS, caught.value
    assert SECRET not in str(caught.value)


@pytest.fixture(params=["table", "temporary view"])
def leak(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """A table, or a temporary view, of the session that is not in the catalog."""
    if request.param == "table":
        spark.sql(f"CREATE TABLE leak USING parquet LOCATION '{tmp_path}/leak' AS SELECT '{SECRET}' AS secret")
    else:
        spark.createDataFrame([(SECRET,)], ["secret"]).createOrReplaceTempView("leak")
    yield
    spark.sql(f"DROP {'TABLE' if request.param == 'table' else 'VIEW'} leak")


@on_sqlite
def test_a_statement_reads_no_table_that_is_not_the_catalogs(session: Session, leak: None) -> None:
    for query in FOREIGN_READS:
        with pytest.raises(TableNotFoundError, match=r"(?i)table leak does not exist"):
            session.execute(query)
    assert session.execute("SELECT count(*) FROM t").rows[0][0] == 0


_REFUSALS = (
    "RefusedStatementError",
    "InvalidQueryError",
    "TableNotFoundError",
    "UnsupportedExpressionError",
    "ExpressionSyntaxError",
)


@on_sqlite
def test_references_to_variables_are_text(session: Session) -> None:
    references = ["${env:HOME}", "${system:user.home}", "${spark.app.id}", "${hiveconf:spark.master}"]
    answer = session.execute(f"SELECT {', '.join(map(repr, references))}")
    assert list(answer.rows[0]) == references
    session.execute(f"INSERT INTO t SELECT 1, '{references[0]}'")
    assert session.execute("SELECT name FROM t").rows[0][0] == references[0]
    with pytest.raises(CatalogError) as caught:
        session.execute("SELECT * FROM text.`${env:HOME}`")
    assert str(Path.home()) not in str(caught.value)


@on_sqlite
@pytest.mark.parametrize(
    "query",
    [
        "SELECT current_user",
        "SELECT session_user FROM t",
        "SELECT `user`",
        "SELECT id FROM t WHERE name < User",
        "SELECT (SELECT max(x) FROM (SELECT CURRENT_USER AS x) GROUP BY ALL)",
        "WITH a AS (SELECT user AS x) SELECT count(*) FROM a JOIN t ON x = name",
        "INSERT INTO t SELECT 1, user",
    ],
)
def test_names_that_mean_the_user_of_the_worker_are_refused(session: Session, query: str) -> None:
    with pytest.raises(RefusedStatementError, match="the function current_user cannot be used"):
        session.execute(query)


@on_sqlite
def test_a_column_may_be_called_user(session: Session) -> None:
    answer = session.execute("SELECT user, CURRENT_USER FROM VALUES ('a', 'b') AS v (user, current_user)")
    assert [list(row) for row in answer.rows] == [["a", "b"]]


@on_sqlite
def test_the_error_points_at_what_is_refused(session: Session) -> None:
    statement = "SELECT id, reflect('java.lang.System', 'getenv', 'HOME') FROM t"
    with pytest.raises(RefusedStatementError, match="the function reflect cannot be used") as caught:
        session.execute(statement)
    assert caught.value.position == statement.index("reflect")


@on_sqlite
@pytest.mark.parametrize(
    "query", ["SELECT 1", "SELECT id FROM t", "INSERT INTO t SELECT 1, 'a'", "SELECT * FROM good_view"]
)
def test_nothing_runs_unchecked_on_an_unknown_spark(
    session: Session, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    from spark_jobs.queries import catalyst

    monkeypatch.setattr(catalyst, "KNOWN_RELEASES", ("3.5",))
    with pytest.raises(RefusedStatementError, match=r"cannot be checked, so it is not run: .* this is Spark 4\.1"):
        session.execute(query)


@on_sqlite
@pytest.mark.parametrize("patterns", ["_PATTERNS", "_CLOCK_OR_USER"])
def test_nothing_runs_that_cannot_be_checked_to_the_end(
    session: Session, monkeypatch: pytest.MonkeyPatch, patterns: str
) -> None:
    from spark_jobs.queries import checked_plans

    monkeypatch.setattr(checked_plans, patterns, ("NO_SUCH_PATTERN",))
    with pytest.raises(RefusedStatementError, match="cannot be checked, so it is not run"):
        session.execute("SELECT id FROM t")


@on_sqlite
def test_checked_statement_runs_if_its_partitions_cannot_be_found(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.queries import query

    def fail(*_: object) -> list[str | None]:
        raise error

    monkeypatch.setattr(query, "_conditions", fail)
    error: Exception = Py4JError("Method condition([]) does not exist")
    assert session.execute("SELECT count(*) FROM t WHERE id = 1").rows[0][0] == 0
    with pytest.raises(RefusedStatementError, match="the function current_user cannot be used"):
        session.execute("SELECT user FROM t WHERE id = 1")
    error = AttributeError("a defect of Calve")
    with pytest.raises(AttributeError, match="a defect of Calve"):
        session.execute("SELECT count(*) FROM t WHERE id = 1")


@on_sqlite
@pytest.mark.parametrize("query", HARMLESS)
def test_everything_else_of_a_select_is_allowed(session: Session, query: str) -> None:
    session.execute(query)


@on_sqlite
def test_load_data_reads_no_foreign_file(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets.csv"
    secrets.write_text(f"id,name\n1,{SECRET}\n")
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "warehouse"))
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    (tmp_path / "warehouse" / "link.csv").symlink_to(secrets)
    spellings = (secrets, f"file://{secrets}", f"file:{secrets}", f"{tmp_path}/warehouse/../secre*.csv")
    for path in (*spellings, f"{tmp_path}/warehouse/link.csv", f"{tmp_path}/warehouse/*.csv", "/proc/self/environ"):
        with pytest.raises(LocationNotAllowedError):
            session.execute(f"LOAD DATA INPATH '{path}' INTO TABLE t")
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path))
    session.execute(f"LOAD DATA INPATH '{secrets}' INTO TABLE t")


@on_sqlite
def test_a_setting_allows_more_functions(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SQL_FUNCTIONS", "current_user, version")
    session.execute("SELECT version()")


def test_every_function_of_this_spark_is_either_allowed_or_known_to_be_refused(spark: SparkSession) -> None:
    from spark_jobs.queries.allowed_functions import FUNCTIONS, TABLE_FUNCTIONS

    state = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
    refused = []
    for registry, allowed in ((state.functionRegistry(), FUNCTIONS), (state.tableFunctionRegistry(), TABLE_FUNCTIONS)):
        known = registry.listFunction()
        names = {str(known.apply(number).funcName()) for number in range(known.size())}
        assert allowed <= names
        refused += sorted(names - allowed)
    assert refused == _REFUSED


_REFUSED = """
    current_user from_avro from_protobuf from_xml input_file_block_length input_file_block_start input_file_name
    java_method reflect schema_of_avro schema_of_xml session_user to_avro to_protobuf to_xml try_reflect user
    version xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string collations python_worker_logs sql_keywords
""".split()  # noqa: SIM905 - one word after the other reads better


@pytest.mark.parametrize("expression", ["reflect('java.lang.System', 'getenv', 'HOME')", "(SELECT 1 FROM text.`/x`)"])
def test_an_expression_of_quality_rules_is_checked(spark: SparkSession, expression: str) -> None:
    from spark_jobs.queries.checked_plans import check_expression

    check_expression(spark, "month(departure)")
    with pytest.raises(CatalogError, match=r"cannot be used|does not exist"):
        check_expression(spark, expression)


def test_expression_of_quality_rules_is_refused_on_an_unknown_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.queries import catalyst
    from spark_jobs.queries.checked_plans import check_expression

    monkeypatch.setattr(catalyst, "KNOWN_RELEASES", ())
    with pytest.raises(RefusedStatementError, match="cannot be checked"):
        check_expression(spark, "month(departure)")
