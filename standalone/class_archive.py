"""An archive of JVM classes (AppCDS) that halves the start time of Spark: `python -m standalone.class_archive`.

The archive takes about 25 seconds to create, so a stack creates it once, in the background and at low priority. Without
the file, a JVM starts normally. The archive has the classes of a sample job that reads and writes as Calve's jobs do.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from catalog.settings.environment import SPARK_JVM_OPTIONS
from standalone.errors import SetUpError
from standalone.java import require_java

_JOB = Path(__file__).with_name("class_archive_job.py")


def spark_home() -> Path:
    """Return the folder of the installed pyspark package, a complete Spark distribution.

    Raises:
        SetUpError: The package is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetUpError("The package pyspark is not installed: run `make setup`.")
    return Path(spec.origin).parent


def archive_path(java_home: Path) -> Path:
    """Return the path of the archive for this Java and the installed Spark, in the virtual environment."""
    release = java_home / "release"
    parts = [str(java_home), release.read_text() if release.is_file() else "", importlib.metadata.version("pyspark")]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-{key}.jsa"


def jvm_options(java_home: Path) -> str:
    """Return the value of SPARK_SUBMIT_OPTS for a fast start, with the archive's path even if it does not exist yet."""
    return f"{SPARK_JVM_OPTIONS} -XX:SharedArchiveFile={shlex.quote(str(archive_path(java_home)))} -Xshare:auto"


def make_archive(java_home: Path) -> None:
    """Create the archive unless it exists or another process is creating it.

    Raises:
        subprocess.CalledProcessError: Spark failed; its output has the reason.
    """
    path = archive_path(java_home)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if path.exists():
            return
        for stale in path.parent.glob("spark-*.jsa*"):
            stale.unlink()
        # A JVM aborts on an incomplete archive: rename it when it is complete.
        unfinished = path.with_suffix(".jsa.new")
        with tempfile.TemporaryDirectory(prefix="calve-archive") as work_dir:
            _run_job(java_home, unfinished, work_dir)
        unfinished.rename(path)


def _run_job(java_home: Path, archive: Path, work_dir: str) -> None:
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f"{SPARK_JVM_OPTIONS} -XX:ArchiveClassesAtExit={shlex.quote(str(archive))}",
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", str(_JOB), work_dir]
    subprocess.run(command, env=environment, cwd=work_dir, check=True)


if __name__ == "__main__":
    make_archive(require_java())
