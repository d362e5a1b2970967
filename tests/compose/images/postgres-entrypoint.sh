#!/bin/sh
# Does what docker-compose.yaml needs of the official image's entry point: creates the server's files once, runs the
# scripts of /docker-entrypoint-initdb.d on a server that listens only on its Unix socket, then runs the command.
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    umask 077
    mkdir -p "$PGDATA"
    printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata "$PGDATA" --username postgres --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    pg_ctl --pgdata "$PGDATA" --options "-c listen_addresses=''" --wait start
    for script in /docker-entrypoint-initdb.d/*.sh; do
        [ ! -e "$script" ] || . "$script"
    done
    pg_ctl --pgdata "$PGDATA" --mode fast --wait stop
fi
exec "$@"
