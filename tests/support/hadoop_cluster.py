"""A real YARN with one node manager, and the HDFS that it needs, in one JVM: Hadoop's own mini cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.java_gateway import JavaGateway, JavaObject

from standalone.class_archive import spark_home
from standalone.java import require_java
from standalone.spark_jars import fetch_jars

_PACKAGES = (
    # The version of Spark's own Hadoop jars, which the mini cluster uses.
    "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
    # What its jar does not have.
    "junit:junit:4.13.2",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "javax.xml.bind:jaxb-api:2.3.1",
)
_OF_SPARK = (
    *("py4j", "hadoop-client-api", "hadoop-client-runtime"),
    *("slf4j-api", "log4j", "jcl-over-slf4j", "commons-lang3", "snappy"),
)
_SETTINGS = {
    "dfs.replication": "1",
    "yarn.nodemanager.hostname": "127.0.0.1",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
}
_FOR_TESTS_OF_HADOOP = "net.topology.node.switch.mapping.impl"
_OPENED = ("lang", "util", "nio")


@contextmanager
def running_hadoop(folder: Path) -> Iterator[Path]:
    """Run YARN and HDFS with their files in a folder; yield the folder of their configuration (HADOOP_CONF_DIR)."""
    jars = [path for name in _OF_SPARK for path in (spark_home() / "jars").glob(f"{name}*.jar")]
    jars += fetch_jars(folder / "jars", _PACKAGES)
    options = [f"-Dtest.build.data={folder / 'data'}", "-Xmx512m"]
    options += [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    with (folder / "log").open("ab") as log:
        gateway = JavaGateway.launch_gateway(
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=options,
            java_path=str(require_java() / "bin" / "java"),
            cwd=str(folder),
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
        )
        try:
            yield _started(gateway, folder)
        finally:
            gateway.shutdown()
            gateway.java_process.terminate()
            gateway.java_process.wait()


def _started(gateway: JavaGateway, folder: Path) -> Path:
    settings = gateway.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in _SETTINGS.items():
        settings.set(name, value)
    files = gateway.jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build()
    settings.set("fs.defaultFS", files.getFileSystem().getUri().toString())
    yarn = gateway.jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("calve", 1, 1, 1)
    yarn.init(settings)
    yarn.start()
    conf_dir = folder / "conf"
    conf_dir.mkdir()
    _write(gateway, yarn.getConfig(), conf_dir)
    return conf_dir


def _write(gateway: JavaGateway, settings: JavaObject, conf_dir: Path) -> None:
    # Clients do not have the class.
    settings.unset(_FOR_TESTS_OF_HADOOP)
    for name in ("core-site.xml", "yarn-site.xml"):
        stream = gateway.jvm.java.io.FileOutputStream(str(conf_dir / name))
        settings.writeXml(stream)
        stream.close()
