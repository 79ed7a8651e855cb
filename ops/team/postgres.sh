#!/usr/bin/env bash
# A PostgreSQL of its own from Debian's packages, on the loopback, without touching the system's cluster.
#   ops/team/postgres.sh start FOLDER [PORT]   prints the address of an empty database named `mlflow`
#   ops/team/postgres.sh stop FOLDER
set -euo pipefail
action="${1:?start or stop}" folder="$(realpath -m "${2:?a folder}")" port="${3:-5433}"
bin="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)"
[ -x "$bin/initdb" ] || bin="$(dirname "$(readlink -f "$(command -v initdb || true)")")"
[ -x "$bin/initdb" ] || { echo "no PostgreSQL here: apt-get install postgresql" >&2; exit 3; }

as_owner() {  # PostgreSQL refuses to run as root
  if [ "$(id -u)" = 0 ]; then setpriv --reuid="$owner" --regid="$owner" --clear-groups "$@"; else "$@"; fi
}
owner="$(id -un)"
if [ "$owner" = 0 ] || [ "$(id -u)" = 0 ]; then owner=postgres; id -u postgres >/dev/null 2>&1 || owner=nobody; fi
cd /

case "$action" in
  start)
    mkdir -p "$folder"
    if [ ! -s "$folder/data/PG_VERSION" ]; then
      umask 077
      [ -s "$folder/password" ] || head -c 18 /dev/urandom | base64 | tr -d '/+=\n' > "$folder/password"
      mkdir -p "$folder/data" "$folder/run"
      [ "$(id -u)" != 0 ] || chown -R "$owner" "$folder"
      as_owner "$bin/initdb" --pgdata "$folder/data" --username mlflow --pwfile "$folder/password" \
        --auth-host scram-sha-256 --auth-local scram-sha-256 --encoding UTF8 --no-locale --no-sync >/dev/null
    fi
    as_owner "$bin/pg_ctl" --pgdata "$folder/data" --log "$folder/data/log" --wait --timeout 60 \
      --options "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories='$folder/run' -c max_connections=200" \
      start >/dev/null || { tail -5 "$folder/data/log" >&2; exit 1; }
    PGPASSWORD="$(cat "$folder/password")"
    export PGPASSWORD
    for database in mlflow mlflow_auth; do
      "$bin/createdb" --host 127.0.0.1 --port "$port" --username mlflow "$database" 2>/dev/null || true  # there already
    done
    echo "postgresql+psycopg2://mlflow:$PGPASSWORD@127.0.0.1:$port/mlflow"
    ;;
  stop) as_owner "$bin/pg_ctl" --pgdata "$folder/data" --mode fast --wait stop >/dev/null ;;
  *) echo "start or stop, not $action" >&2; exit 2 ;;
esac
