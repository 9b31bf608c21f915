"""A tree of real processes for the measurements beside this file: a store over the sample corpus, one process a node, a
steady load, and what the nodes say of themselves. Needs target/release/canopy, or CANOPY=...
"""
import json, os, signal, socket, subprocess, time, urllib.request

here = os.path.dirname(os.path.abspath(__file__))
canopy = os.environ.get(
    "CANOPY", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(here, "../target")), "release/canopy"))


def quietly(*arguments):
    subprocess.run([canopy, *arguments], check=True, stdout=subprocess.DEVNULL)


def build(store, corpus="web", shards=4, documents=None):
    """One version of a corpus: the sample, or a file of documents."""
    quietly("corpus", "create", corpus, "--store", store)
    quietly("index", "build", "--corpus", corpus, "--store", store, "--shards", str(shards), "--input",
            documents or os.path.join(here, "../cli/sample/web.jsonl.gz"), "--json")


def ports(count):
    held = []
    for _ in range(count):
        held.append(socket.socket())
        held[-1].bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


def cpu(pid):
    """CPU seconds that a process has used, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)


class Tree:
    """Nodes are named ROLE-NUMBER. `placements`: (corpus, shard, [nodes]); `sets`: settings of single nodes; `spaces`: network
    namespace and address of nodes that run in one of their own; `wait`: for whom, if not for all.
    """

    def __init__(self, folder, names, placements, text="", sets={}, spaces={}, wait=None):
        self.folder, self.processes, self.sets, self.spaces = folder, {}, sets, spaces
        free = iter(ports(2 * len(names)))
        self.web = {name: next(free) for name in names}
        self.grpc = {name: next(free) for name in names}
        for name, (_, address) in spaces.items():
            self.web[name], self.grpc[name] = f"{address}:7001", f"{address}:7002"
        nodes = [f'{{ id = "{n}", role = "{n.split("-")[0]}", address = "{self.grpc[n]}", admin = "{self.web[n]}" }},' for n in names]
        places = [f'{{ corpus = "{corpus}", shards = ["{shard}"], replicas = {json.dumps(on)} }},' for corpus, shard, on in placements]
        state = f'[topology]\nstore = "{folder}/topology.redb"\nstate_dir = "{folder}/state"'
        lines = [f'[store]\nurl = "{folder}/store"', text, state, "nodes = [", *nodes, "]\nplacements = [", *places, "]\n"]
        with open(f"{folder}/tree.toml", "w") as file:
            file.write("\n".join(lines))
        for name in names:
            self.start(name)
        for name in names if wait is None else wait:
            self.wait(name)

    def start(self, name):
        with open(f"{self.folder}/{name}.log", "a") as log:
            inside = ["ip", "netns", "exec", self.spaces[name][0]] if name in self.spaces else []
            arguments = inside + [canopy, name.split("-")[0], "-c", f"{self.folder}/tree.toml", "--node", name]
            for value in self.sets.get(name, []):
                arguments += ["--set", value]
            self.processes[name] = subprocess.Popen(arguments, stdout=log, stderr=log)

    def wait(self, name):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://{self.web[name]}/healthz/ready", timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise SystemExit(f"{name} is not ready; its log: {self.folder}/{name}.log")

    def cpu(self, name):
        return cpu(self.processes[name].pid)

    def metrics(self, name):
        return urllib.request.urlopen(f"http://{self.web[name]}/metrics", timeout=5).read().decode().splitlines()

    def leaves(self):
        return [name for name in self.web if name.startswith("leaf") and self.processes[name].poll() is None]

    def count(self, metric):
        """The sum of a metric over the leaves."""
        lines = [line for name in self.leaves() for line in self.metrics(name)]
        return sum(float(line.split()[-1]) for line in lines if line.split(" ")[0].split("{")[0] == metric)

    def begun(self):
        """Searches of shards that leaves have begun."""
        return self.count("canopy_leaf_service_seconds_count")

    def buckets(self, metric):
        """A histogram summed over the leaves, as {upper bound: how many are at most that}."""
        found = {}
        for name in self.leaves():
            for line in self.metrics(name):
                if line.startswith(metric + "_bucket"):
                    bound = float(line.split('le="')[1].split('"')[0])
                    found[bound] = found.get(bound, 0) + float(line.split()[-1])
        return found

    def start_load(self, seconds, rate, queries="queries", root="root-0", corpus="web", timeout="1s", **params):
        extra = [f"--param={name}={value}" for name, value in ({"total": "none", "snippet": "false", "completion": "all"} | params).items()]
        return subprocess.Popen([canopy, "load", "--root", self.web[root], "--corpus", corpus, "--queries", f"{self.folder}/{queries}",
                                 "--duration", f"{seconds}s", "--timeout", timeout, "--allow-failures", "--json", *rate] + extra,
                                stdout=subprocess.PIPE)

    def load(self, seconds, rate, **more):
        return json.loads(self.start_load(seconds, rate, **more).communicate()[0])

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
