"""Classes of the JVM, each looked up once.

By default, Py4J asks the JVM at each use of a name, and for one such as `_jvm.java.lang.System` once for each part. The
JVM takes a part for a class first, and searches all of Spark's jars for it.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext

_OF_PYSPARK = (
    *("PythonRDD", "PythonSQLUtils", "PythonUtils", "SerDeUtil", "SimplePythonFunction", "functions"),
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.types.Metadata",
)
"""Names that PySpark itself looks up for each function of a column or of a frame."""


def java_class(context: SparkContext, name: str) -> Any:
    """Return a class of the JVM by its full name; for an unknown name a package, as Py4J does, whose call fails."""
    view = context._jvm
    assert view is not None
    found = getattr(view, name)
    if isinstance(found, JavaClass):
        # Attributes of the view itself come before its look-up in the JVM.
        setattr(view, name, found)
    return found


def keep_classes(context: SparkContext) -> None:
    """Have PySpark look up the classes that it uses most once, too."""
    for name in _OF_PYSPARK:
        java_class(context, name)
    # `is_instance_of` of Py4J goes from package to package.
    view = context._jvm
    assert view is not None
    view.py4j = view.py4j
    view.py4j.reflection = view.py4j.reflection
    view.py4j.reflection.TypeUtil = java_class(context, "py4j.reflection.TypeUtil")
