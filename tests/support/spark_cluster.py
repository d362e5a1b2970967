"""A real standalone cluster of Spark with two workers, whose processes belong to another user than the driver's."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

from standalone.spark_cluster import RunningSparkCluster

SECRET = "planted-cluster-secret"


class ClusterOfTests(RunningSparkCluster):
    """A running cluster, with what its processes can see."""

    def run_as_worker(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command like an executor: as the cluster's user, with its environment."""
        return subprocess.run(
            [*self.prefix, *command], env=self.environment, cwd="/", capture_output=True, text=True, check=False
        )

    def places_with(self, text: str) -> list[str]:
        """Return where a text is: files of the cluster and of ended applications, and the workers' pages."""
        found = []
        # Executors of an ended application may still remove their files and folders, which `os.walk` skips then.
        files = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        for path in files:
            with suppress(FileNotFoundError):
                if path.name != "spark-defaults.conf" and text.encode() in path.read_bytes():
                    found.append(str(path))
        for url in self.pages:
            with urllib.request.urlopen(url) as page:
                if text in page.read().decode():
                    found.append(url)
        return found
