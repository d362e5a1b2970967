# Where files of the building machine were mounted, the image has empty ones: Java's authorities are made again from
# those of Debian, and the others are removed.
ARG IMAGE
FROM ${IMAGE}
USER root
RUN rm --force /etc/pip.conf /etc/apt/sources.list.d/debian.sources /etc/ssl/certs/java/cacerts \
    && update-ca-certificates --fresh \
    && test -s /etc/ssl/certs/java/cacerts
USER calve
