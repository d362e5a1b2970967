"""The jars that Calve's jobs need besides Spark's own, for a cluster that downloads nothing while it runs.

`python -m standalone.spark_jars FOLDER` puts them into a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from catalog.files.object_stores import EXCLUDED_PACKAGES, S3_PACKAGES
from catalog.settings.environment import AVRO_PACKAGE, DRIVERS, ICEBERG_PACKAGE
from standalone.class_archive import spark_home
from standalone.errors import SetUpError
from standalone.java import require_java

PACKAGES = (ICEBERG_PACKAGE, AVRO_PACKAGE, DRIVERS["postgresql"], *S3_PACKAGES)
"""The packages that jobs need on PostgreSQL and S3."""


def fetch_jars(folder: Path, packages: tuple[str, ...] = PACKAGES) -> list[Path]:
    """Return the jars of packages, the only ones in their folder; download them unless it has just these packages.

    Raises:
        SetUpError: They could not be downloaded from Maven Central; the folder is as before.
    """
    stamp = folder / "packages.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(packages):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="calve-jars") as work_dir:
            _resolve(packages, Path(work_dir))
            stamp.unlink(missing_ok=True)
            # Spark would load classes of both versions.
            for outdated in folder.glob("*.jar"):
                outdated.unlink()
            for jar in Path(work_dir, "ivy", "jars").iterdir():
                shutil.copyfile(jar, folder / jar.name)
        stamp.write_text("\n".join(packages))
    return sorted(folder.glob("*.jar"))


def _resolve(packages: tuple[str, ...], work_dir: Path) -> None:
    nothing = work_dir / "nothing.py"
    nothing.touch()
    conf = {
        "spark.jars.packages": ",".join(packages),
        "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
        "spark.jars.ivy": str(work_dir / "ivy"),
    }
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    environment = {**kept, "JAVA_HOME": str(require_java()), "SPARK_HOME": str(spark_home())}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", *options, str(nothing)]
    done = subprocess.run(command, env=environment, cwd=work_dir, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetUpError(
            f"Spark's packages could not be downloaded from Maven Central; check the network. The end of Spark's "
            f"output:\n{(done.stdout + done.stderr)[-2000:]}"
        )


if __name__ == "__main__":
    fetch_jars(Path(sys.argv[1]))
