#!/usr/bin/env python3
"""How late an answer is that had to be given up waiting, and how long leaves go on working for a client that left.

    bench/deadline.py [SECONDS] [QPS]        needs target/release/canopy, or CANOPY=...

Deadlines: four leaf processes, one shard each; every search of one leaf takes longer than the deadline of 200 ms, so every
query ends at it, in part. Overrun: from the intended arrival at the client to the last byte of the answer there, less the
deadline. The root keeps back 1 ms for merging and fetching instead of 40, which would hide all of it. Once straight, once
through an aggregator. The rate has to leave half of the processors idle; how much was used is
printed.
Cancel: 64 copies of the sample corpus on two leaves, costly queries by clients that hang up after 5 to 40 ms. The leaves
count how long a search went on after it was stopped (`canopy_leaf_work_after_cancel_us`, upper bounds of its buckets), and
the time until all leaves are idle is watched from outside.
"""
import gzip, json, os, random, socket, sys, tempfile, time, urllib.parse

import live

SECONDS, QPS = (int(value) for value in (sys.argv[1:] + ["60", "50"][len(sys.argv) - 1:]))
DEADLINE = 200
COPIES, CLIENTS = 64, 400


def busy():
    """Processor seconds used by everything on this machine, and seconds there were."""
    with open("/proc/stat") as file:
        ticks = [int(value) for value in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def overrun(folder, aggregators):
    names = ["root-0"] + [f"aggregator-{n}" for n in range(aggregators)] + [f"leaf-{n}" for n in range(4)]
    places = [("web", f"main/{n}", [f"leaf-{n}"]) for n in range(4)]
    text = '[leaf]\nthreads = 32\nallow_faults = true\n[gather]\nreserve = "1ms"\n'
    if aggregators:
        text += "fanout_max = 2\nbranch_shards = 1\n"
    tree = live.Tree(folder, names, places, text)
    try:
        # Slow from here on: a leaf that is slow at its start is not ready.
        tree.processes["leaf-3"].kill()
        tree.processes["leaf-3"].wait()
        tree.sets["leaf-3"] = ["leaf.fault.delay=2s"]
        tree.start("leaf-3")
        time.sleep(3)
        tree.load(3, ["--qps", str(QPS)], timeout=f"{DEADLINE}ms")
        before = busy()
        report = tree.load(SECONDS, ["--qps", str(QPS)], timeout=f"{DEADLINE}ms")
        used = [after - then for after, then in zip(busy(), before)]
        late = {name: report["latency_ms"][name] - DEADLINE for name in ("p50", "p99", "p99.9", "max")}
        print(f"{'through an aggregator' if aggregators else 'straight':22} overrun, ms: " +
              ", ".join(f"{name} {value:.1f}" for name, value in late.items()) +
              f"; {report['queries']} queries, {report['partial']} partial, {report['failed']} failed; "
              f"{used[0] / used[1]:.0%} of the processors", flush=True)
    finally:
        tree.stop()


def copies(folder):
    with gzip.open(os.path.join(live.here, "../cli/sample/web.jsonl.gz"), "rt") as sample:
        documents = [json.loads(line) for line in sample]
    name = f"{folder}/many.jsonl.gz"
    with gzip.open(name, "wt", compresslevel=1) as out:
        for copy in range(COPIES):
            for document in documents:
                out.write(json.dumps(document | {"url": f"{document['url']}?copy={copy}"}) + "\n")
    return name


def quantile(counts, share):
    """The smallest upper bound of a bucket below which that share lies."""
    total = max(counts.values())
    return next((bound for bound, count in sorted(counts.items()) if count >= share * total), None)


def cancelled(folder):
    live.build(f"{folder}/store", "many", 2, copies(folder))
    tree = live.Tree(folder, ["root-0", "leaf-0", "leaf-1"], [("many", f"main/{n}", [f"leaf-{n}"]) for n in range(2)],
                     "[leaf]\nthreads = 1")
    try:
        words = ["the", "of", "and", "to", "in", "is", "for", "package", "file", "system", "debian", "version"]
        parameters = {"q": " OR ".join(f'"{a} {b}"~30' for a in words for b in words if a != b), "sort": "-published,host",
                      "facets": "host,lang,topic", "total": "exact", "k": "100", "timeout_ms": "10000"}
        path = f"/v1/many/search?{urllib.parse.urlencode(parameters)}"
        host, port = tree.web["root-0"].split(":")
        request = f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        since, idle = time.monotonic(), []
        with socket.create_connection((host, int(port))) as whole:
            whole.sendall(request)
            first = whole.recv(64)
        print(f"a whole one: {first.split()[1].decode()} after {time.monotonic() - since:.2f} s", flush=True)
        dice = random.Random(1)
        before, used = tree.count("canopy_leaf_cancelled_total"), busy()
        for _ in range(CLIENTS):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(request)
                time.sleep(dice.uniform(0.005, 0.04))
            left = time.monotonic()
            while tree.count("canopy_leaf_in_flight_shards") > 0:
                pass
            idle.append((time.monotonic() - left) * 1e3)
            time.sleep(0.02)
        used = [after - then for after, then in zip(busy(), used)]
        counts = tree.buckets("canopy_leaf_work_after_cancel_us")
        idle.sort()
        print(f"{CLIENTS} clients left, {tree.count('canopy_leaf_cancelled_total') - before:.0f} shards cancelled, "
              f"{max(counts.values()):.0f} of them at work: work after cancel at most "
              f"{quantile(counts, 0.5):.0f} us p50, {quantile(counts, 0.99):.0f} us p99, {quantile(counts, 1):.0f} us all; leaves idle "
              f"{idle[len(idle) // 2]:.1f} ms p50, {idle[len(idle) * 99 // 100]:.1f} ms p99 after the client hung up; "
              f"{used[0] / used[1]:.0%} of the processors", flush=True)
    finally:
        tree.stop()


for aggregators in (0, 2):
    with tempfile.TemporaryDirectory() as folder:
        live.build(f"{folder}/store")
        with open(f"{folder}/queries", "w") as queries:
            queries.write("replication\nvacuum\nindex\nownership\n")
        overrun(folder, aggregators)
with tempfile.TemporaryDirectory() as folder:
    cancelled(folder)
