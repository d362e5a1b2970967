"""Iceberg's own classes for metadata, in a JVM without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from standalone.java import require_java

JSON = dict[str, Any]


class IcebergJava:
    """A JVM with Iceberg's runtime; a context manager."""

    def __init__(self, jar: Path) -> None:
        """Set the jar of Iceberg's runtime."""
        self._jar = jar

    def __enter__(self) -> Self:
        """Start the JVM."""
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars"
        port = launch_gateway(
            jarpath=str(next(jars.glob("py4j-*.jar"))),
            classpath=f"{self._jar}:{jars}/*",
            java_path=str(require_java() / "bin" / "java"),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the JVM."""
        self._gateway.shutdown()

    def changed(self, base: JSON | None, updates: Sequence[JSON], location: str) -> JSON | str:
        """Return metadata after updates, which Iceberg also reads again; a text with the reason if it refuses them.

        Args:
            base: As a metadata file has it; None for a new table.
            location: Of this file.
        """
        java = self._gateway.jvm.org.apache.iceberg
        try:
            if base is None:
                versions = [line["format-version"] for line in updates if line["action"] == "upgrade-format-version"]
                builder = java.TableMetadata.buildFromEmpty(*versions[:1])
            else:
                builder = java.TableMetadata.buildFrom(java.TableMetadataParser.fromJson(location, json.dumps(base)))
            for update in updates:
                java.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
            text = java.TableMetadataParser.toJson(builder.build())
            java.TableMetadataParser.fromJson(text)
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        document: JSON = json.loads(text)
        return document

    def requirement_error(self, base: JSON, requirements: Sequence[JSON]) -> str | None:
        """Return why requirements of a commit do not hold; None if they do."""
        java = self._gateway.jvm.org.apache.iceberg
        metadata = java.TableMetadataParser.fromJson(json.dumps(base))
        try:
            for requirement in requirements:
                java.UpdateRequirementParser.fromJson(json.dumps(requirement)).validate(metadata)
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        return None
