"""Spark jobs: each is a function of a SparkSession and a script for spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path


def _prefer_installed_pyspark() -> None:
    """Import PySpark and Py4J from where they are installed, if spark-submit of the same Spark adds them as zip files.

    Python keeps no compiled modules of zip files: it would compile those of PySpark in each process, for a second.
    """
    if "pyspark" in sys.modules:
        return
    for path in [path for path in sys.path if path.endswith(".zip")]:
        folder = Path(path).parent
        package = folder.parent.parent
        if package / "python" / "lib" == folder and package.name == "pyspark" and str(package.parent) in sys.path:
            sys.path.remove(path)
            sys.path.append(path)


_prefer_installed_pyspark()
