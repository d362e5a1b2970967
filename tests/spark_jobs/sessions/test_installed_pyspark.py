"""Jobs import the installed PySpark, whose modules are compiled, rather than the zip file of spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

PACKAGE = Path(pyspark.__file__).parent


def imported_from(*zip_files: Path) -> str:
    """Return where a job imports PySpark from, if these files are on its path as spark-submit puts them there."""
    program = "import spark_jobs, pyspark, py4j; print(pyspark.__file__, py4j.__file__)"
    path = os.pathsep.join(map(str, [*zip_files, *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_installed_package_is_preferred_to_its_own_zip_files() -> None:
    zip_files = sorted((PACKAGE / "python" / "lib").glob("py*.zip"))
    assert len(zip_files) == 2
    assert ".zip" not in imported_from(*zip_files)


@pytest.mark.parametrize("folder", ["pyspark/python/lib", "spark/python/lib", "pyspark/lib"])
def test_the_zip_file_of_another_spark_is_kept(tmp_path: Path, folder: str) -> None:
    other = tmp_path / folder / "pyspark.zip"
    other.parent.mkdir(parents=True)
    with ZipFile(other, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
    assert str(other) in imported_from(other)
