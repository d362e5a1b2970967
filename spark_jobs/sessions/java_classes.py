"""Classes of the JVM, each looked up once.

By default, Py4J asks the JVM at each use of a name, and for one such as `_jvm.java.lang.System` once for each part. The
JVM takes a part for a class first, and searches all of Spark's jars for it.
"""

from __future__ import annotations

from typing import Any

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
    """Return a class of the JVM, or a package.

    Args:
        name: Its full name.

    Raises:
        Py4JError: There is no such name.
    """
    view = context._jvm
    assert view is not None
    if name not in vars(view):
        # Attributes of the view itself come before its look-up in the JVM.
        setattr(view, name, getattr(view, name))
    return vars(view)[name]


def keep_classes(context: SparkContext) -> None:
    """Have PySpark look up the classes that it uses most once, too."""
    for name in _OF_PYSPARK:
        java_class(context, name)
    # `is_instance_of` of Py4J goes from package to package.
    packages = java_class(context, "py4j")
    packages.reflection = packages.reflection
    packages.reflection.TypeUtil = java_class(context, "py4j.reflection.TypeUtil")
