#!/usr/bin/env bash
# Tests the running service against its OpenAPI document: schemathesis generates valid and invalid requests and checks every
# response. It fails on a 5xx, on an undocumented status, header, body or media type, and on an invalid request that is accepted.
set -euo pipefail
cd "$(dirname "$0")/.."

# The one excluded check would require that every generated token is accepted.
check() { # <arguments of the service> <arguments of schemathesis...>
    local said address pid
    said=$(mktemp)
    target/debug/onceward --listen 127.0.0.1:0 --log json --rate-limit off --demo off $1 >"$said" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null || true; rm -f "$said"' EXIT
    for _ in $(seq 200); do
        address=$(sed -n 's/.*"message":"listening".*"address":"\([^"]*\)".*/\1/p; s/.*"address":"\([^"]*\)".*"message":"listening".*/\1/p' "$said")
        [ -n "$address" ] && break
        kill -0 $pid || { cat "$said" >&2; return 1; }
        sleep 0.05
    done
    target/schemathesis/bin/schemathesis run "http://$address/openapi.json" --checks all \
        --exclude-checks positive_data_acceptance --max-examples "${EXAMPLES:-100}" --max-failures 5 --no-color \
        --warnings off "${@:2}"
    kill $pid
    wait $pid || { echo "the service ended with an error" >&2; return 1; }
    trap - EXIT
    rm -f "$said"
}

check ""
check "--api-key a-key-for-this-run" --header "Authorization: Bearer a-key-for-this-run"
