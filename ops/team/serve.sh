#!/usr/bin/env bash
# MLflow for a team, the plain way: PostgreSQL, files behind the server's proxy, basic auth, ExplainBench's pages.
#   MLFLOW_AUTH_ADMIN_PASSWORD=... ops/team/serve.sh FOLDER [PORT]
# FOLDER keeps database, files and secrets. DATABASE_URL=postgresql+psycopg2://.../mlflow uses a PostgreSQL of yours instead, with
# a second database beside it named mlflow_auth. HOST=0.0.0.0 opens it beyond the loopback: then put TLS before it and
# name the server in MLFLOW_SERVER_ALLOWED_HOSTS. Then, on each machine that publishes:
#   export MLFLOW_TRACKING_URI=http://HOST:PORT MLFLOW_TRACKING_USERNAME=... MLFLOW_TRACKING_PASSWORD=...
#   explainbench publish
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="$(realpath -m "${1:?a folder}")" port="${2:-5000}"
: "${MLFLOW_AUTH_ADMIN_PASSWORD:?set it: the administrator is called admin, MLflow has no default password}"
umask 077
mkdir -p "$folder"
if [ -z "${DATABASE_URL:-}" ]; then
  DATABASE_URL="$("$here/postgres.sh" start "$folder/postgres" "${POSTGRES_PORT:-5433}")"
  trap '"$here/postgres.sh" stop "$folder/postgres"' EXIT
fi
[ -s "$folder/secret" ] || head -c 32 /dev/urandom | base64 | tr -d '\n' > "$folder/secret"
# everybody logged in may look; only those granted EDIT on an experiment may publish to it
printf '[mlflow]\ndefault_permission = %s\ndatabase_uri = %s\nadmin_username = admin\n' \
  "${DEFAULT_PERMISSION:-READ}" "${DATABASE_URL%/*}/mlflow_auth" > "$folder/auth.ini"
export MLFLOW_AUTH_CONFIG_PATH="$folder/auth.ini" MLFLOW_AUTH_ADMIN_PASSWORD
MLFLOW_FLASK_SERVER_SECRET_KEY="$(cat "$folder/secret")"
export MLFLOW_FLASK_SERVER_SECRET_KEY
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
mlflow server --app-name "${APP:-explainbench-auth}" --host "${HOST:-127.0.0.1}" --port "$port" --workers "${WORKERS:-2}" \
  --backend-store-uri "$DATABASE_URL" --artifacts-destination "file://$folder/artifacts" --serve-artifacts
