#!/usr/bin/env bash
# A million documents on one machine: builds them within 1 GiB of working memory (peak anonymous memory is watched and must
# stay within 1.5 GiB), serves them as a root and four leaves in processes of their own, and puts load on the root.
#
#   bench/million.sh PASSAGES.jsonl.gz [QPS] [SECONDS]      the corpus is made by bench/corpus/passages.py
#
# Prints build time, index size, peak memory, latency at the rate, and the memory of each role. DIR=... keeps the index.
set -euo pipefail
cd "$(dirname "$0")/.."
input=${1:?the corpus, made by bench/corpus/passages.py} qps=${2:-50} seconds=${3:-30}
canopy=${CANOPY:-${CARGO_TARGET_DIR:-target}/release/canopy}
[ -x "$canopy" ] || cargo build --quiet --release -p canopy-cli
keep=${DIR:-} dir=${DIR:-$(mktemp -d)}
mkdir -p "$dir"
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    [ -n "$keep" ] || rm -rf "$dir"
}
trap stop EXIT
memory() { awk -v field="$2:" '$1 == field { printf "%.0f", $2 / 1024 }' "/proc/$1/status" 2>/dev/null; }

if [ ! -d "$dir/store" ]; then
    mkdir "$dir/store"
    "$canopy" corpus create web --store "$dir/store" >/dev/null
    "$canopy" index build --store "$dir/store" --input "$input" --shards 4 --memory 1GiB --max-rejects 1% --json >"$dir/report" &
    build=$!
    peak=0
    while kill -0 $build 2>/dev/null; do
        now=$(memory $build RssAnon || true)
        [ -n "$now" ] && ((now > peak)) && peak=$now
        sleep 0.05
    done
    wait $build
    python3 - "$dir/report" "$peak" "$dir/store" <<'PYTHON'
import json, os, sys
report, peak = json.load(open(sys.argv[1])), int(sys.argv[2])
size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(sys.argv[3]) for name in names)
seconds = report["total_seconds"]
print(f"build: {report['documents']} documents, {seconds:.0f} s, "
      f"{report['documents'] / seconds:.0f} documents/s; store {size / 2**20:.0f} MiB; peak anonymous memory {peak} MiB")
assert peak <= 1536, "more than 1.5 GiB"
PYTHON
fi

python3 - "$dir" "$input" <<'PYTHON'
import gzip, json, re, socket, sys
folder, corpus = sys.argv[1:]
held = []
def port():
    held.append(socket.socket())
    held[-1].bind(("127.0.0.1", 0))
    return f"127.0.0.1:{held[-1].getsockname()[1]}"
nodes = ["root"] + [f"leaf-{n}" for n in range(4)]
web = {node: port() for node in nodes}
lines = [f'{{ id = "{n}", role = "{n.split("-")[0]}", address = "{port()}", admin = "{web[n]}" }},' for n in nodes]
places = [f'{{ corpus = "web", shards = ["main/{n}"], replicas = ["leaf-{n}"] }},' for n in range(4)]
text = [f'[store]\nurl = "{folder}/store"\n[topology]\nnodes = ['] + lines + ["]\nplacements = ["] + places + ["]\n"]
open(f"{folder}/tree.toml", "w").write("\n".join(text))
open(f"{folder}/root", "w").write(web["root"])
# Two or three words that stand side by side in a page, spread over the corpus.
with gzip.open(corpus, "rt", encoding="utf-8") as pages, open(f"{folder}/queries", "w", encoding="utf-8") as out:
    for number, line in enumerate(pages):
        if number % 200 == 0:
            words = re.findall(r"[^\W\d_]{3,}", json.loads(line)["body"])
            at = number // 200 % max(1, len(words) - 3)
            out.write(" ".join(words[at:at + 2 + number // 200 % 2]) + "\n")
PYTHON
root=$(cat "$dir/root")
names=()
for node in root leaf-0 leaf-1 leaf-2 leaf-3; do
    "$canopy" "${node%%-*}" -c "$dir/tree.toml" --node "$node" >"$dir/$node.log" 2>&1 &
    pids+=($!)
    names+=("$node")
done
started=$(date +%s.%N)
until curl -fs "http://$root/healthz/ready" >/dev/null; do sleep 0.1; done
echo "ready after $(python3 -c "import time; print(f'{time.time() - $started:.1f}')") s"
echo "first pass, cold: $("$canopy" load --root "$root" --queries "$dir/queries" --closed 2 --duration 10s --allow-failures | tr '\n' ' ')"
"$canopy" load --root "$root" --queries "$dir/queries" --qps "$qps" --duration "${seconds}s"
"$canopy" load --root "$root" --queries "$dir/queries" --closed 4 --duration 10s
for index in "${!pids[@]}"; do
    pid=${pids[$index]}
    echo "${names[$index]}: anonymous $(memory "$pid" RssAnon) MiB, mapped files $(memory "$pid" RssFile) MiB"
done
