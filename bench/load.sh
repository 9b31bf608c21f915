#!/usr/bin/env bash
# Is the load tool honest? Two checks on a tree over the sample corpus:
#   closed loop: `canopy load --closed 2` and wrk with 2 connections, alternating, the same endpoint: their rates must agree;
#   open loop:   200 arrivals a second while the server is frozen for one second: about 200 queries must show latencies
#                spread evenly over 0 to 1 s, because they are counted from their intended arrival.
# Needs wrk (apt-get install wrk).
#
#   bench/load.sh [SECONDS] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5} rounds=${2:-5}
canopy=${CANOPY:-${CARGO_TARGET_DIR:-target}/release/canopy}
[ -x "$canopy" ] || cargo build --quiet --release -p canopy-cli
command -v wrk >/dev/null || { echo "wrk is missing: apt-get install wrk" >&2; exit 1; }
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill -CONT $server; kill $server; wait $server || true; } 2>/dev/null; rm -rf "$dir"' EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$canopy" quickstart --dir "$dir/data" --port "$port" >"$dir/log" 2>&1 &
server=$!
for ((i = 0; i < 300; i++)); do
    curl -fs "http://127.0.0.1:$port/healthz/ready" >/dev/null && break
    sleep 0.1
done
echo "replication" >"$dir/queries"

echo "== closed loop, 2 connections, $seconds s, $rounds rounds: queries/s"
for ((round = 0; round < rounds; round++)); do
    mine=$("$canopy" load --root "127.0.0.1:$port" --queries "$dir/queries" --closed 2 --duration "${seconds}s" --json)
    theirs=$(wrk -t1 -c2 -d"${seconds}s" "http://127.0.0.1:$port/v1/web/search?q=replication&timeout_ms=350")
    python3 - "$mine" "$theirs" <<'PYTHON' | tee -a "$dir/closed"
import json, re, sys
mine, theirs = json.loads(sys.argv[1])["qps"], float(re.search(r"Requests/sec:\s*([\d.]+)", sys.argv[2])[1])
print(f"canopy load {mine:.0f}  wrk {theirs:.0f}  ratio {mine / theirs:.3f}")
PYTHON
done
python3 -c 'import statistics, sys; print("median ratio", statistics.median(float(l.split()[-1]) for l in open(sys.argv[1])))' "$dir/closed"

echo "== open loop, 200/s for 10 s, frozen for 1 s; a word that finds nothing, so that the queue is worked off at once"
echo "zzzzqx" >"$dir/nothing"
"$canopy" load --root "127.0.0.1:$port" --queries "$dir/nothing" --qps 200 --duration 10s --timeout 5s --allow-failures --json >"$dir/open" &
load=$!
sleep 4
kill -STOP $server
sleep 1
kill -CONT $server
wait $load
python3 - "$dir/open" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
print("queries", report["queries"], "answers", report["answers"])
print("latency, ms:", {name: round(value, 1) for name, value in report["latency_ms"].items()})
late = [value for value in report["percentiles_ms"] if value > 50]
print(f"{len(late)} % of {report['queries']} queries took more than 50 ms:", [round(value) for value in late])
PYTHON
