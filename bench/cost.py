#!/usr/bin/env python3
"""What hedging, adaptive picking and retries cost a root that has no fault to mend: CPU time of its process per query.

    bench/cost.py [SECONDS] [ROUNDS]        needs target/release/canopy, or CANOPY=...

Two roots over the same eight leaf processes (two replicas of each shard): `on` as it is by default, `off` with `hedge=off`,
`pick=random`, `max_attempts=1`, `degrade=false`. One query at a time, arms alternate, for a corpus of one, four and eight
shards on as many leaves. Prints microseconds per query of each arm (median over the rounds), the median of the rounds'
ratios, and for the arm `on` the straight line through the three: so much for one leaf, so much for each further one.
Once for keys alone, once for a page with fields and snippets.
"""
import statistics, sys, tempfile

import live

SECONDS, ROUNDS = (int(value) for value in (sys.argv[1:] + ["2", "7"][len(sys.argv) - 1:]))
SIZES = (1, 4, 8)
OFF = ["gather.hedge=off", "gather.pick=random", "gather.max_attempts=1", "root.degrade=false"]
KINDS = {"keys": {"fields": "url"}, "page": {"snippet": "true"}}


def spent(tree, root, corpus, params):
    before = tree.cpu(root)
    report = tree.load(SECONDS, ["--closed", "1"], root=root, corpus=corpus, **params)
    assert report["failed"] == 0 and report["partial"] == 0, report
    return (tree.cpu(root) - before) * 1e6 / report["queries"]


def line(costs):
    """Cost with one leaf and of each further one, by least squares."""
    further = [size - 1 for size in SIZES]
    slope, first = statistics.linear_regression(further, costs)
    return first, slope


with tempfile.TemporaryDirectory() as folder:
    places = []
    for size in SIZES:
        live.build(f"{folder}/store", f"web{size}", size)
        places += [(f"web{size}", f"main/{n}", [f"leaf-{n}", f"leaf-{(n + 1) % 8}"]) for n in range(size)]
    with open(f"{folder}/queries", "w") as queries:
        queries.write("replication\nvacuum\nindex\nownership\n")
    tree = live.Tree(folder, ["root-0", "root-1"] + [f"leaf-{n}" for n in range(8)], places, "[leaf]\nthreads = 1", {"root-1": OFF})
    try:
        roots = {"on": "root-0", "off": "root-1"}
        for kind, params in KINDS.items():
            found = {size: {"on": [], "off": []} for size in SIZES}
            for number in range(-1, ROUNDS):
                for size in SIZES:
                    for arm in (("on", "off"), ("off", "on"))[number % 2]:
                        cost = spent(tree, roots[arm], f"web{size}", params)
                        if number >= 0:  # the first round warms up
                            found[size][arm].append(cost)
            for size in SIZES:
                arms = found[size]
                ratios = [on / off for on, off in zip(arms["on"], arms["off"])]
                print(f"{kind}, {size} leaves: on {statistics.median(arms['on']):6.0f} us, off {statistics.median(arms['off']):6.0f} us, "
                      f"ratio {statistics.median(ratios):.3f} of {[round(ratio, 3) for ratio in sorted(ratios)]}", flush=True)
            first, slope = line([statistics.median(found[size]["on"]) for size in SIZES])
            print(f"{kind}: {first:.0f} us with one leaf and {slope:.0f} us for each further one", flush=True)
    finally:
        tree.stop()
