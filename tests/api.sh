#!/usr/bin/env bash
# Holds the running service to its specification: schemathesis makes up requests, good and bad, and looks at every answer.
# No 5xx, no status, header, body or media type that is not described, and nothing bad that is taken for good.
set -euo pipefail
cd "$(dirname "$0")/.."

# The only check that is left out would have it that every made-up token is accepted.
check() { # with these arguments of the service, and these of schemathesis
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
    wait $pid || { echo "the service has not ended well" >&2; return 1; }
    trap - EXIT
    rm -f "$said"
}

check ""
check "--api-key a-key-for-this-run" --header "Authorization: Bearer a-key-for-this-run"
