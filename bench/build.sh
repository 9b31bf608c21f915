#!/usr/bin/env bash
# Index build rate beside the engine's alone: the same records, schema, analysis and threads. One arm a process (its memory
# is its own), arms alternating; prints each run and the median of the ratios of rates, by wall clock and per CPU second.
#
#   bench/build.sh [ROUNDS] [DOCUMENTS] [MEMORY_MIB] [THREADS] [SHARDS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
arguments=("${2:-200000}" "${3:-1024}" "${4:-2}" "${5:-4}")
cargo build --quiet --release -p canopy-indexer --example build_rate
rate=${CARGO_TARGET_DIR:-target}/release/examples/build_rate
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for ((round = 0; round < rounds; round++)); do
    arms=(build raw)
    ((round % 2)) && arms=(raw build)
    for arm in "${arms[@]}"; do
        "$rate" "$arm" "${arguments[@]}" | tee >(grep 'documents/s' | sed "s/^/$arm /" >>"$log")
    done
done
python3 - "$log" <<'PYTHON'
import re, statistics, sys
rates = {"build": [], "raw": []}
for line in open(sys.argv[1]):
    found = re.search(r": (\d+) documents/s wall, (\d+) per CPU second, peak (\d+)", line)
    rates[line.split()[0]].append([int(part) for part in found.groups()])
pairs = list(zip(rates["build"], rates["raw"]))
for name, at in (("wall clock", 0), ("CPU", 1)):
    ratio = statistics.median(a[at] / b[at] for a, b in pairs)
    print(f"rate of the build over the engine's, by {name}: {ratio:.2f} (median of {len(pairs)})")
print("peak anonymous memory of the build, MiB:", max(a[2] for a, _ in pairs))
PYTHON
