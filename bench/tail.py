#!/usr/bin/env python3
"""The tail over real sockets: a root and eight leaf processes (4 shards x 2 replicas, one shard a leaf) on the sample corpus.

    bench/tail.py [QPS] [SECONDS] [ROUNDS]        needs target/release/canopy, or CANOPY=...

Every search of a shard hiccups with probability 1 % for 180 to 220 ms ([leaf.fault]). Open loop, one query for one word a
time; arms `hedge=off` and `hedge=auto` alternate on the same tree. Prints p50, p99 and p99.9 of each arm, the ratio of the
p99s by round, and the extra work as the leaves counted it: searches of shards begun, against four for each query.
Then, without hiccups: one leaf is frozen, and goes on; one leaf is killed. Prints latencies before, at and after, and how
many answers were partial.
"""
import json, os, signal, socket, statistics, subprocess, sys, tempfile, time, urllib.request

QPS, SECONDS, ROUNDS = (int(value) for value in (sys.argv[1:] + ["100", "20", "5"][len(sys.argv) - 1:]))
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
canopy = os.environ.get("CANOPY", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target")), "release/canopy"))
held = []


def port():
    held.append(socket.socket())
    held[-1].bind(("127.0.0.1", 0))
    return f"127.0.0.1:{held[-1].getsockname()[1]}"


class Tree:
    def __init__(self, folder, faults):
        self.folder, self.processes = folder, {}
        names = ["root"] + [f"leaf-{n}" for n in range(8)]
        self.web = {name: port() for name in names}
        nodes = [f'{{ id = "{n}", role = "{n.split("-")[0]}", address = "{port()}", admin = "{self.web[n]}" }},' for n in names]
        places = [f'{{ corpus = "web", shards = ["main/{n}"], replicas = ["leaf-{n}", "leaf-{n + 4}"] }},' for n in range(4)]
        text = [f'[store]\nurl = "{folder}/store"', "[leaf]\nthreads = 1\nallow_faults = true", faults,
                "[topology]\nnodes = ["] + nodes + ["]\nplacements = ["] + places + ["]\n"]
        open(f"{folder}/tree.toml", "w").write("\n".join(text))
        for socket_ in held:
            socket_.close()
        held.clear()
        for name in names:
            log = open(f"{folder}/{name}.log", "w")
            self.processes[name] = subprocess.Popen(
                [canopy, name.split("-")[0], "-c", f"{folder}/tree.toml", "--node", name], stdout=log, stderr=log)
        for name in names:
            self.wait(name)

    def wait(self, name):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://{self.web[name]}/healthz/ready", timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{name} is not ready; its log: {self.folder}/{name}.log")

    def begun(self):
        total = 0
        for name in self.web:
            if name.startswith("leaf") and self.processes[name].poll() is None:
                text = urllib.request.urlopen(f"http://{self.web[name]}/metrics", timeout=5).read().decode()
                total += sum(float(line.split()[-1]) for line in text.splitlines()
                             if line.startswith("canopy_leaf_service_seconds_count"))
        return total

    def start_load(self, seconds, **params):
        extra = [f"--param={name}={value}" for name, value in ({"total": "none", "snippet": "false", "completion": "all"} | params).items()]
        return subprocess.Popen([canopy, "load", "--root", self.web["root"], "--queries", f"{self.folder}/queries", "--qps", str(QPS),
                                 "--duration", f"{seconds}s", "--timeout", "1s", "--allow-failures", "--json"] + extra,
                                stdout=subprocess.PIPE)

    def load(self, seconds, **params):
        return json.loads(self.start_load(seconds, **params).communicate()[0])

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def shown(name, report):
    ms = report["latency_ms"]
    print(f"{name:26} p50 {ms['p50']:7.1f}  p99 {ms['p99']:7.1f}  p99.9 {ms['p99.9']:7.1f} ms  "
          f"{report['queries']} queries, {report['partial']} partial, answers {report['answers']}", flush=True)


def hiccups(folder):
    tree = Tree(folder, '[leaf.fault]\nhiccup_probability = 0.01\nhiccup_min = "180ms"\nhiccup_max = "220ms"')
    try:
        tree.load(20, hedge="auto")  # learns how long a search takes
        ratios, extras = [], []
        for number in range(ROUNDS):
            arms = {}
            for arm in (("off", "auto"), ("auto", "off"))[number % 2]:
                before = tree.begun()
                arms[arm] = tree.load(SECONDS, hedge=arm)
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
    tree = Tree(folder, "")
    try:
        tree.load(10)
        shown("healthy", tree.load(SECONDS))
        tree.processes["leaf-2"].send_signal(signal.SIGSTOP)
        shown("one leaf frozen, first 5 s", tree.load(5))
        shown("then", tree.load(SECONDS))
        tree.processes["leaf-2"].send_signal(signal.SIGCONT)
        shown("it goes on", tree.load(SECONDS))
        load = tree.start_load(SECONDS)
        time.sleep(SECONDS / 2)
        tree.processes["leaf-5"].kill()
        shown("one leaf killed meanwhile", json.loads(load.communicate()[0]))
    finally:
        tree.stop()


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([canopy, "corpus", "create", "web", "--store", f"{folder}/store"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([canopy, "index", "build", "--store", f"{folder}/store", "--shards", "4", "--input",
                    os.path.join(root, "cli/sample/web.jsonl.gz"), "--json"], check=True, stdout=subprocess.DEVNULL)
    open(f"{folder}/queries", "w").write("replication\nvacuum\nindex\nownership\n")
    hiccups(folder)
    lost(folder)
