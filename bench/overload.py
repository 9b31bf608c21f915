#!/usr/bin/env python3
"""More than a tree can do, over real sockets: a root and four leaf processes (2 shards x 2 replicas, two threads a leaf) on
the sample corpus; every search of a shard takes 50 ms ([leaf.fault] delay), so that the tree can do 80 queries a second.

    bench/overload.py [SECONDS] [ROUNDS]        needs target/release/canopy, or CANOPY=...

First, ROUNDS times: three times that many, open loop, by `canopy load`, with 350 ms of patience. Good is what was answered by
all shards in time; prints goodput over capacity, how long refusals took as the client saw it, and searches of shards that
leaves began for each that a good answer needs. Then clients that ask up to three times, 50 to 100 ms after they were refused
or given nothing: 0.7 x, ten seconds of 1.5 x, 0.7 x again; prints each second, and what holds from five seconds after the burst.
"""
import asyncio, random, statistics, sys, tempfile, time

import live

SECONDS, ROUNDS = (int(value) for value in (sys.argv[1:] + ["10", "3"][len(sys.argv) - 1:]))
NODES = ["root-0"] + [f"leaf-{n}" for n in range(4)]
PLACES = [("web", f"main/{n}", [f"leaf-{n}", f"leaf-{n + 2}"]) for n in range(2)]
SETTINGS = '[leaf]\nthreads = 2\nallow_faults = true\n[leaf.fault]\ndelay = "50ms"'
CAPACITY = 2 * 2 / 0.050
PATIENCE, TIMES = 0.350, ((5, 0.7), (10, 1.5), (12, 0.7))


def rate(share):
    return ["--qps", str(round(CAPACITY * share))]


def steady(tree):
    shares = []
    for _ in range(ROUNDS):
        tree.load(3, rate(0.7), timeout="350ms")
        tree.load(2, rate(3), timeout="350ms")  # the limit learns
        before = tree.begun()
        report = tree.load(SECONDS, rate(3), timeout="350ms")
        good = report["answers"].get("200", 0) - report["partial"]
        shares.append(good / SECONDS / CAPACITY)
        refusals = report["refusals_ms"]
        print(f"three times the load: good {shares[-1]:.3f} of capacity, partial {report['partial']}, answers {report['answers']}, "
              f"refusals p50 {refusals['p50']:.1f} p99 {refusals['p99']:.1f} max {refusals['max']:.1f} ms, "
              f"searches begun over needed {(tree.begun() - before) / max(1, 2 * good):.3f}", flush=True)
    print(f"goodput over capacity: median {statistics.median(shares):.3f}, worst {min(shares):.3f}")


async def ask(address, lines):
    """Whether one query was answered whole, and how often it was asked."""
    host, port = address.split(":")
    for attempt in range(1, 4):
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            path = f"/v1/web/search?q=index&timeout_ms={int(PATIENCE * 1000)}&completion=all&total=none&snippet=false"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), PATIENCE + 1)
            writer.close()
            head = answer.split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
            coverage = [line.split(":")[1].strip() for line in head if line.startswith("x-canopy-coverage")]
            if head[0].split()[1] == "200":
                searched, total = coverage[0].split("/")
                lines[0] += searched == total
                lines[1] += attempt
                return
        except (OSError, asyncio.TimeoutError, IndexError):
            pass
        await asyncio.sleep(random.uniform(0.05, 0.1))
    lines[1] += 3


async def burst(tree):
    dice, start, at, second, running = random.Random(1), time.monotonic(), 0.0, [], set()
    for length, share in TIMES:
        until = at + length
        second += [[0, 0, 0] for _ in range(length)]
        while (at := at + dice.expovariate(CAPACITY * share)) < until:
            await asyncio.sleep(max(0, start + at - time.monotonic()))
            lines = second[int(at)]
            lines[2] += 1
            running.add(task := asyncio.create_task(ask(tree.web["root-0"], lines)))
            task.add_done_callback(running.discard)
        at = until
    await asyncio.gather(*running)
    print("clients that ask three times; good, asked, offered by second:", *(f"{g}/{a}/{o}" for g, a, o in second))
    good, asked, offered = (sum(line[i] for line in second[20:]) for i in range(3))
    print(f"from five seconds after the burst: good {good / offered:.3f}, asked {asked / offered:.2f} of offered")


with tempfile.TemporaryDirectory() as folder:
    live.build(f"{folder}/store", shards=2)
    with open(f"{folder}/queries", "w") as file:
        file.write("replication\nvacuum\nindex\nownership\n")
    tree = live.Tree(folder, NODES, PLACES, SETTINGS)
    try:
        steady(tree)
        asyncio.run(burst(tree))
    finally:
        tree.stop()
