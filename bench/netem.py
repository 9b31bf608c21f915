#!/usr/bin/env python3
"""One of four leaves behind a bad network of the kernel's own: 200 ms of delay, 5 % of the packets lost, all of them lost.

    bench/netem.py [QPS] [SECONDS]        needs root, ip and tc (iproute2), nft (nftables), target/release/canopy or CANOPY=...

The leaf runs in a network namespace of its own behind a pair of virtual devices. Losses are drawn by nftables in both
directions; the delay is tc's netem on the leaf's side, for which the kernel needs sch_netem: where it lacks that, the script
says so, measures the rest and ends with status 1. Every shard has two replicas. Prints latencies, failed and partial
answers, and how soon the leaf is asked again when its network is sound. `tests/chaos/wire.rs` does the same to bytes
instead of packets, everywhere.
"""
import json, subprocess, sys, tempfile, time

import live

QPS, SECONDS = (int(value) for value in (sys.argv[1:] + ["100", "20"][len(sys.argv) - 1:]))
SPACE, HERE, THERE = "canopy-leaf", "10.203.0.1", "10.203.0.2"
RATE = ["--qps", str(QPS)]


def sh(*arguments, check=True):
    return subprocess.run(arguments, check=check, capture_output=True, text=True)


def inside(*arguments, check=True):
    return sh("ip", "netns", "exec", SPACE, *arguments, check=check)


def make():
    sh("ip", "netns", "add", SPACE)
    sh("ip", "link", "add", "canopy0", "type", "veth", "peer", "name", "canopy1", "netns", SPACE)
    sh("ip", "address", "add", f"{HERE}/30", "dev", "canopy0")
    sh("ip", "link", "set", "canopy0", "up")
    inside("ip", "address", "add", f"{THERE}/30", "dev", "canopy1")
    inside("ip", "link", "set", "canopy1", "up")
    inside("ip", "link", "set", "lo", "up")


def lossy(share):
    """Loses packets of both directions within the namespace."""
    rule = "drop" if share >= 1 else f"numgen random mod 1000 < {round(share * 1000)} drop"
    rules = ["add table inet bad"]
    for hook in ("input", "output"):
        device = "iifname" if hook == "input" else "oifname"
        rules += [f"add chain inet bad {hook} {{ type filter hook {hook} priority 0; }}", f"add rule inet bad {hook} {device} canopy1 {rule}"]
    inside("nft", "; ".join(rules))


def slow():
    return inside("tc", "qdisc", "add", "dev", "canopy1", "root", "netem", "delay", "200ms", check=False)


def sound():
    inside("nft", "delete table inet bad", check=False)
    inside("tc", "qdisc", "del", "dev", "canopy1", "root", check=False)


def shown(name, report):
    ms = report["latency_ms"]
    print(f"{name:24} p50 {ms['p50']:7.1f}  p99 {ms['p99']:7.1f}  p99.9 {ms['p99.9']:7.1f} ms  "
          f"{report['queries']} queries, {report['failed']} failed, {report['partial']} partial", flush=True)


def asked(tree):
    lines = [line for line in tree.metrics("leaf-1") if line.startswith("canopy_leaf_outcomes_total")]
    return sum(float(line.split()[-1]) for line in lines)


def measure(tree):
    tree.load(10, RATE)
    shown("sound", tree.load(SECONDS, RATE))
    missing = False
    for name, spoil in (("200 ms of delay", slow), ("5 % lost", lambda: lossy(0.05)), ("all lost", lambda: lossy(1))):
        failed = spoil()
        if failed is not None and failed.returncode:
            missing = True
            print(f"{name:24} not measured: this kernel has no netem ({failed.stderr.strip()})", flush=True)
            continue
        shown(name + ", first 5 s", tree.load(5, RATE))
        shown(name + ", then", tree.load(SECONDS, RATE))
        sound()
        since, before = time.monotonic(), asked(tree)
        load = tree.start_load(SECONDS, RATE)
        while asked(tree) < before + 5 and time.monotonic() < since + SECONDS:
            time.sleep(0.05)
        again = time.monotonic() - since
        shown(f"sound again", json.loads(load.communicate()[0]))
        print(f"{'':24} asked again after {again:.1f} s", flush=True)
    return missing


with tempfile.TemporaryDirectory() as folder:
    live.build(f"{folder}/store")
    with open(f"{folder}/queries", "w") as queries:
        queries.write("replication\nvacuum\nindex\nownership\n")
    tree = None
    try:
        make()
        places = [("web", f"main/{n}", [f"leaf-{n}", f"leaf-{(n + 1) % 4}"]) for n in range(4)]
        tree = live.Tree(folder, ["root-0"] + [f"leaf-{n}" for n in range(4)], places, "[leaf]\nthreads = 1",
                         spaces={"leaf-1": (SPACE, THERE)})
        missing = measure(tree)
    finally:
        if tree:
            tree.stop()
        sh("ip", "netns", "del", SPACE, check=False)
sys.exit(1 if missing else 0)
