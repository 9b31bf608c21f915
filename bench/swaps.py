#!/usr/bin/env python3
"""Swaps of versions under load, over real sockets: a root, two leaf processes that both hold both shards, and a topology service;
three versions of generated documents take turns, each rolled out at once to all queries.

    bench/swaps.py [SWAPS] [DOCUMENTS] [SECONDS]        needs target/release/canopy, or CANOPY=...

First what the tree can do (closed loop), then open loop at 60 % of it. Stretches of SECONDS with no swap, and stretches in which one
swap follows the other without a pause, take turns; a query of the second kind is always in the window of some swap. The operator, who
would sit at another machine, takes of this one only what the tree and its load leave. Three arms,
with 30, 50 and 20 % of the swaps: warming held to 10 % of a core, warming as fast as it goes, and held to 10 % with the files of the
next version dropped from the page cache before each swap. Prints p50, p99 and p99.9 of both kinds, the ratio of the p99s, how many
queries failed or were partial in each, what share of a core each process took, and of the leaves: memory that is no file's (the
median of the first and of the second half of the arm), handles and mapped files that were deleted, at the first and at the last swap,
and the most resident memory while two versions are held, over the sum of what each takes alone.
"""
import concurrent.futures, json, os, random, statistics, subprocess, sys, tempfile, threading, time, urllib.request

import live

SWAPS, DOCUMENTS, SECONDS = (int(value) for value in (sys.argv[1:] + ["100", "20000", "12"][len(sys.argv) - 1:]))
LEAVES = ["leaf-0", "leaf-1"]
NODES = ["topology-0", "root-0", *LEAVES]
PLACES = [("web", f"main/{n}", LEAVES) for n in range(2)]
SETTINGS = '[leaf]\nthreads = 1\nretain = "300ms"\nlease_grace = "100ms"\nwarm_limit = "20s"\n'
PLAN = 'retain = "300ms"\ngrace = "300ms"\nsteps = [{ percent = 100, bake = "0ms", sample = 0 }]\n'
# Name, percent of a core, files dropped before, share of the swaps.
ARMS = (("warming 10 %", 10, False, 0.3), ("as fast as it goes", 100, False, 0.5), ("10 %, cold files", 10, True, 0.2))


def documents():
    dice = random.Random(1)
    words = ["".join(dice.choices("aeioubcdfglmnprst", k=dice.randint(3, 9))) for _ in range(30000)]
    weights = [1 / (rank + 2) for rank in range(len(words))]
    texts = [dice.choices(words, weights, k=dice.randint(60, 220)) for _ in range(DOCUMENTS)]
    return words, texts


def prepare(folder):
    words, texts = documents()
    live.quietly("corpus", "create", "web", "--store", f"{folder}/store")
    for version in (1, 2, 3):
        with open(f"{folder}/in.jsonl", "w") as out:
            for number, text in enumerate(texts[100 * version:]):
                out.write(json.dumps({"url": f"https://{number % 977}.example/{version}/{number}", "title": " ".join(text[:6]),
                                      "body": " ".join(text), "lang": "en"}) + "\n")
        live.quietly("index", "build", "--corpus", "web", "--store", f"{folder}/store", "--shards", "2", "--input",
                     f"{folder}/in.jsonl", "--json")
    dice = random.Random(7)
    with open(f"{folder}/queries", "w") as out:
        for _ in range(2000):
            picked = [words[min(int(dice.paretovariate(0.6)), len(words)) - 1] for _ in range(dice.randint(1, 3))]
            out.write(" ".join(picked) + "\n")
    open(f"{folder}/plan.toml", "w").write(PLAN)
    held = os.listdir(f"{folder}/store/corpora/web/versions")
    size = [sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(f"{folder}/store/corpora/web/versions/{one}")
                for name in names) >> 20 for one in held]
    print(f"{DOCUMENTS} documents a version, {max(size)} MiB", flush=True)


def proc(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


def vitals(tree, name):
    """Anonymous memory and resident memory (MiB), handles, mapped files that were deleted."""
    pid = tree.processes[name].pid
    status = dict(line.split(":", 1) for line in proc(pid, "status").splitlines())
    mib = [int(status[key].split()[0]) / 1024 for key in ("RssAnon", "VmRSS")]
    deleted = sum("(deleted)" in line and "canopy" not in line.split("/")[-1] for line in proc(pid, "maps").splitlines())
    return (*mib, len(os.listdir(f"/proc/{pid}/fd")), deleted)


def stand_aside():
    """The calling thread, and what it starts, take only what nobody else wants."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Swapper:
    def __init__(self, tree):
        self.tree, self.version, self.done = tree, 0, 0

    def status(self):
        with urllib.request.urlopen(f"http://{self.tree.web['topology-0']}/status", timeout=5) as page:
            return json.load(page)["corpora"].get("web") or {}

    def to(self, version, cold=False):
        folder = self.tree.folder
        if cold:
            for at, _, names in os.walk(f"{folder}/store/corpora/web/versions/{version:010}"):
                for name in names:
                    with open(os.path.join(at, name)) as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        subprocess.run([live.canopy, "rollout", "start", "-c", f"{folder}/tree.toml", "--corpus", "web", "--version", str(version),
                        "--plan", f"{folder}/plan.toml"], check=True, stdout=subprocess.DEVNULL)
        while (now := self.status()).get("rollout") or now.get("live") != version:
            time.sleep(0.1)
        # Until nothing of the old one is held, so that there are never more than two.
        while any(self.views(leaf) > len(PLACES) for leaf in LEAVES):
            time.sleep(0.1)
        self.version, self.done = version, self.done + 1

    def views(self, leaf):
        with urllib.request.urlopen(f"http://{self.tree.web[leaf]}/status", timeout=5) as page:
            return json.load(page)["views"]

    def swap(self, cold):
        self.to(self.version % 3 + 1, cold)


def stretch(tree, rate, work=None):
    """One stretch of load; `work` is done again and again while it runs."""
    before = {name: tree.cpu(name) for name in NODES}
    load = tree.start_load(SECONDS, ["--qps", f"{rate:.0f}"], timeout="500ms")
    if work:
        end = time.monotonic() + SECONDS - 0.5

        def operate():
            while time.monotonic() < end:
                work()

        with concurrent.futures.ThreadPoolExecutor(1, initializer=stand_aside) as operator:
            operator.submit(operate).result()
    report = json.loads(load.communicate()[0])
    report["cores"] = {name: (tree.cpu(name) - before[name]) / SECONDS for name in NODES}
    return report


class Watch(threading.Thread):
    """The most that a leaf takes, looked at ten times a second."""

    def __init__(self, tree):
        super().__init__(daemon=True)
        self.tree, self.most, self.over = tree, [0.0, 0.0], False

    def run(self):
        stand_aside()
        while not self.over:
            for name in LEAVES:
                anon, resident, *_ = vitals(self.tree, name)
                self.most = [max(self.most[0], anon), max(self.most[1], resident)]
            time.sleep(0.1)


def arm(folder, name, percent, cold, swaps):
    tree = live.Tree(folder, NODES, PLACES, SETTINGS + f"warm_percent = {percent}\n", wait=["topology-0"])
    try:
        swapper = Swapper(tree)
        swapper.to(1)
        for node in NODES:
            tree.wait(node)
        tree.load(5, ["--closed", "8"], timeout="2s")
        can = tree.load(8, ["--closed", "8"], timeout="2s")
        rate = 0.6 * can["queries"] / 8
        tree.load(5, ["--qps", f"{rate:.0f}"], timeout="2s")
        for _ in range(3):
            swapper.swap(cold)
        tree.load(5, ["--qps", f"{rate:.0f}"], timeout="500ms")
        alone = max(vitals(tree, leaf)[1] for leaf in LEAVES)
        early, swapper.done = [vitals(tree, leaf) for leaf in LEAVES], 0
        watch = Watch(tree)
        watch.start()
        rounds, failed, partial, queries, own, why = [], {}, 0, 0, [], {}
        while swapper.done < swaps:
            pair = {}
            for kind in ("steady", "swapping") if len(rounds) % 2 == 0 else ("swapping", "steady"):
                pair[kind] = stretch(tree, rate, (lambda: swapper.swap(cold)) if kind == "swapping" else None)
                report = pair[kind]
                queries, partial = queries + report["queries"], partial + report["partial"]
                failed[kind] = failed.get(kind, 0) + report["queries"] - report["answers"].get("200", 0)
                why.setdefault(kind, []).extend(f"{count} {cause}" for cause, count in report["failures"].items())
            rounds.append(pair)
            own.append(max(vitals(tree, leaf)[0] for leaf in LEAVES))
        watch.over = True
        time.sleep(3)
        late = [vitals(tree, leaf) for leaf in LEAVES]
        of = lambda kind, what: statistics.median(pair[kind]["latency_ms"][what] for pair in rounds)
        ratios = [pair["swapping"]["latency_ms"]["p99"] / pair["steady"]["latency_ms"]["p99"] for pair in rounds]
        print(f"{name}: {swapper.done} swaps at {rate:.0f} queries/s; {queries} queries, {partial} partial")
        for kind in ("steady", "swapping"):
            print(f"  {kind:9} p50 {of(kind, 'p50'):6.2f}  p99 {of(kind, 'p99'):6.2f}  p99.9 {of(kind, 'p99.9'):6.2f} ms; {failed[kind]} failed",
                  ", ".join(why[kind]))
            cores = {name: statistics.median(pair[kind]["cores"][name] for pair in rounds) for name in NODES}
            print("           cores:", ", ".join(f"{name} {share:.3f}" for name, share in cores.items()))
        print(f"  p99 swapping / steady: median {statistics.median(ratios):.3f} of {[round(ratio, 2) for ratio in ratios]}")
        half = len(own) // 2
        first, second = (statistics.median(part or own) for part in (own[:half], own[half:]))
        print(f"  anonymous memory of a leaf, first half {first:.1f}, second {second:.1f} MiB")
        for leaf, first, last in zip(LEAVES, early, late):
            print(f"  {leaf}: handles {first[2]} -> {last[2]}, deleted files mapped {last[3]}")
        print(f"  most resident with two versions {watch.most[1]:.0f} MiB, over twice one alone ({alone:.0f} MiB): "
              f"{watch.most[1] / (2 * alone):.2f}; most anonymous {watch.most[0]:.1f} MiB", flush=True)
    finally:
        tree.stop()


with tempfile.TemporaryDirectory() as folder:
    print(f"{os.cpu_count()} cores for the tree and its load", flush=True)
    prepare(folder)
    for name, percent, cold, share in ARMS:
        for left in ("topology.redb", "state"):
            subprocess.run(["rm", "-rf", f"{folder}/{left}"], check=True)
        arm(folder, name, percent, cold, round(SWAPS * share))
