# The image of all services of docker-compose.yaml except PostgreSQL: Airflow, Spark, SeaweedFS and Calve with the same
# locked requirements. Nothing is downloaded when a container runs.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS requirements

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/jvm/java-17-openjdk-* /usr/lib/jvm/java-17

WORKDIR /opt/calve
COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes --compile --requirement requirements.txt

ENV JAVA_HOME=/usr/lib/jvm/java-17 \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark \
    PYTHONPATH=/opt/calve:/opt/calve/plugins

FROM requirements AS jars

COPY catalog catalog
COPY standalone standalone
RUN python -m standalone.spark_jars /jars

FROM requirements

COPY --from=jars /jars/*.jar ${SPARK_HOME}/jars/
COPY tables.yaml .
COPY pyproject.toml .
COPY README.md .
COPY LICENSE .
COPY catalog catalog
COPY dags dags
COPY plugins plugins
COPY spark_jobs spark_jobs
COPY standalone/store_server.py standalone/
# The command `calve`, and the entry points by which it finds Spark and Airflow finds the provider. The wheel is built by
# what requirements.txt has locked, not by what the index has today.
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

ENV CALVE_TABLES=/opt/calve/tables.yaml \
    PYSPARK_PYTHON=/usr/local/bin/python \
    AIRFLOW_HOME=/var/lib/calve/airflow \
    CALVE_HOME=/var/lib/calve/home \
    CALVE_SPARK_PACKAGES=none \
    GX_ANALYTICS_ENABLED=false

# A new volume gets the owner of the image's folder at its mount point.
RUN useradd --uid 10001 --create-home calve \
    && mkdir --parents /var/lib/calve/airflow/logs /var/lib/calve/home /var/lib/calve/s3 /var/lib/calve/work \
    && chown --recursive calve:calve /var/lib/calve
USER calve
ENTRYPOINT ["tini", "-g", "--"]
CMD ["calve", "--help"]
