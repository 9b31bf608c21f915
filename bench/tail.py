#!/usr/bin/env python3
"""The tail over real sockets: a root and eight leaf processes (4 shards x 2 replicas, one shard a leaf) on the sample corpus.

    bench/tail.py [QPS] [SECONDS] [ROUNDS]        needs target/release/canopy, or CANOPY=...

Every search of a shard hiccups with probability 1 % for 180 to 220 ms ([leaf.fault]). Open loop, one query for one word a
time; arms `hedge=off` and `hedge=auto` alternate on the same tree. Prints p50, p99 and p99.9 of each arm, the ratio of the
p99s by round, and the extra work as the leaves counted it: searches of shards begun, against four for each query.
Then, without hiccups: one leaf is frozen, and goes on; one leaf is killed. Prints latencies before, at and after, and how
many answers were partial.
"""
import json, signal, statistics, sys, tempfile, time

import live

QPS, SECONDS, ROUNDS = (int(value) for value in (sys.argv[1:] + ["100", "20", "5"][len(sys.argv) - 1:]))
NODES = ["root-0"] + [f"leaf-{n}" for n in range(8)]
PLACES = [("web", f"main/{n}", [f"leaf-{n}", f"leaf-{n + 4}"]) for n in range(4)]
RATE = ["--qps", str(QPS)]


def start(folder, faults):
    return live.Tree(folder, NODES, PLACES, f"[leaf]\nthreads = 1\nallow_faults = true\n{faults}")


def shown(name, report):
    ms = report["latency_ms"]
    print(f"{name:26} p50 {ms['p50']:7.1f}  p99 {ms['p99']:7.1f}  p99.9 {ms['p99.9']:7.1f} ms  "
          f"{report['queries']} queries, {report['partial']} partial, answers {report['answers']}", flush=True)


def hiccups(folder):
    tree = start(folder, '[leaf.fault]\nhiccup_probability = 0.01\nhiccup_min = "180ms"\nhiccup_max = "220ms"')
    try:
        tree.load(20, RATE, hedge="auto")  # learns how long a search takes
        ratios, extras = [], []
        for number in range(ROUNDS):
            arms = {}
            for arm in (("off", "auto"), ("auto", "off"))[number % 2]:
                before = tree.begun()
                arms[arm] = tree.load(SECONDS, RATE, hedge=arm)
                work = (tree.begun() - before) / (4 * arms[arm]["queries"])
                if arm == "auto":
                    extras.append(work - 1)
                shown(f"hiccups, hedge={arm}", arms[arm])
            ratios.append(arms["auto"]["latency_ms"]["p99"] / arms["off"]["latency_ms"]["p99"])
        print(f"p99 hedged / unhedged: median {statistics.median(ratios):.3f} of {[round(r, 3) for r in ratios]}; "
              f"searches of shards begun beyond four a query: {statistics.mean(extras):.2%}")
    finally:
        tree.stop()


def lost(folder):
    tree = start(folder, "")
    try:
        tree.load(10, RATE)
        shown("healthy", tree.load(SECONDS, RATE))
        tree.processes["leaf-2"].send_signal(signal.SIGSTOP)
        shown("one leaf frozen, first 5 s", tree.load(5, RATE))
        shown("then", tree.load(SECONDS, RATE))
        tree.processes["leaf-2"].send_signal(signal.SIGCONT)
        shown("it goes on", tree.load(SECONDS, RATE))
        load = tree.start_load(SECONDS, RATE)
        time.sleep(SECONDS / 2)
        tree.processes["leaf-5"].kill()
        shown("one leaf killed meanwhile", json.loads(load.communicate()[0]))
    finally:
        tree.stop()


with tempfile.TemporaryDirectory() as folder:
    live.build(f"{folder}/store")
    open(f"{folder}/queries", "w").write("replication\nvacuum\nindex\nownership\n")
    hiccups(folder)
    lost(folder)
