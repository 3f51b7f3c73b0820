#!/usr/bin/env python3
"""Random kill -9 of tenants and of the broker under load: survivors go on, usage returns to what is alive, nothing is left."""
import json
import os
import pathlib
import random
import signal
import time

from harness import LONG, World, main, require, until

KILLS = 300


def broker_of(world):
    for pid in world.processes():
        try:
            if b"_broker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            continue
    return None


def tenant_processes(world, program):
    found = []
    for pid in world.processes():
        try:
            if pathlib.Path(f"/proc/{pid}/exe").resolve().name == program:
                found.append(pid)
        except OSError:
            continue
    return found


def random_kills_of_tenants_and_broker():
    seed = int(os.environ.get("METE_SEED", random.randrange(1 << 30)))
    dice = random.Random(seed)
    print(f"seed {seed}", flush=True)
    with World() as world:
        for name, memory, compute in (("a", "8GiB", "30%"), ("b", "20GiB", "70%")):
            world.ok("share", "create", "--name", name, "--memory", memory, "--compute", compute)
        survivor = world.start("mete", "run", "--share", "b", "--", "mete-load", "compute", "--kernel-ms", "1", "--seconds", "100000", "--progress")
        until(lambda: survivor.stdout.readline(), "the survivor has begun")
        progress = lambda: json.loads(survivor.stdout.readline())["kernels"]
        victims = []

        def replenish():
            victims[:] = [v for v in victims if v.poll() is None]
            while len(victims) < 4:
                command = dice.choice([["compute", "--kernel-ms", "1", "--seconds", "100000"], ["hog", "--api", "alloc", "--hold", "100000"],
                                       ["hog", "--api", "vmm", "--hold", "100000"], ["idle", "--memory", "1GiB", "--seconds", "100000"]])
                victims.append(world.start("mete", "run", "--share", "a", "--", "mete-load", *command, stdout=-3, stderr=-3))

        brokers = 0
        before = progress()
        for kill in range(KILLS):
            replenish()
            time.sleep(dice.random() * 0.1)
            if dice.random() < 0.1:
                pid, brokers = broker_of(world), brokers + 1
            else:
                targets = [p for p in tenant_processes(world, "mete-load") if p != survivor_pid(world, survivor)]
                pid = dice.choice(targets) if targets else None
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            require(survivor.poll() is None, f"the survivor ended {survivor.poll()} after {kill + 1} kills", survivor.stderr.read() if survivor.poll() is not None else "")
        after = progress()
        require(after > before, "the survivor did not go on", before, after)
        for victim in victims:
            victim.kill()
        for pid in tenant_processes(world, "mete-load"):
            if pid != survivor_pid(world, survivor):
                os.kill(pid, signal.SIGKILL)
        until(lambda: used(world, "a") == 0, "share a holds nothing once its processes are gone", 30)
        alive = used(world, "b")
        until(lambda: abs(world.node_memory_used() - alive) <= (4 << 20), f"the node holds what is alive ({alive})", 30)
        survivor.send_signal(signal.SIGTERM)
        survivor.wait(30)
        until(lambda: world.node_memory_used() == 0, "the node holds nothing", 30)
        for name in ("a", "b"):
            world.ok("share", "release", name)
    return f"{KILLS} kills, {brokers} of them of the broker, seed {seed}"


def used(world, name):
    share = world.json("share", "show", name)
    return sum(gpu["used_bytes"] for gpu in share["gpus"])


def survivor_pid(world, survivor):
    """The pid of the survivor's mete-load, a child of its mete run."""
    try:
        children = pathlib.Path(f"/proc/{survivor.pid}/task/{survivor.pid}/children").read_text().split()
        return int(children[0]) if children else None
    except OSError:
        return None


if __name__ == "__main__":
    main([random_kills_of_tenants_and_broker])
