#!/usr/bin/env python3
"""Random kill -9 of tenants and of the broker under load: survivors go on, usage returns to what is alive, nothing is left."""
import json
import os
import pathlib
import random
import signal
import threading
import time

from compute_test import Timer
from harness import World, main, require, until

KILLS = 300
PARALLEL = 4


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


def waits(kills, seed):
    """Kills of tenants at work, several of them at once, by turns with as many that end by themselves: what the longest
    calls of a survivor took (ms, one for each 100 ms) while they are killed and while they end, and how late a timer was."""
    found = {True: [], False: []}
    with World() as world:
        world.ok("share", "create", "--name", "a", "--memory", "8GiB", "--compute", "100%")
        survivor = world.start("mete", "run", "--share", "a", "--", "kill_victims", "survive", stdin=-1)
        require("longest_us" in survivor.stdout.readline(), "the survivor has begun")
        victims = world.start("mete", "run", "--share", "a", "--", "kill_victims", "kill", kills, PARALLEL, seed)
        phase, ended = [None], []

        def listen():
            for line in victims.stdout:
                said = json.loads(line)
                phase[0] = said.get("kills")
                if phase[0] is None:
                    ended.append(said)

        listener = threading.Thread(target=listen, daemon=True)
        with Timer() as timer:
            listener.start()
            while listener.is_alive():
                before, line = phase[0], survivor.stdout.readline()
                require(line and "longest_us" in line, f"the survivor ended {survivor.poll()}", line)
                if before is not None and before == phase[0]:  # all of these 100 ms
                    found[before].append(json.loads(line)["longest_us"] / 1000)
        require(victims.wait(30) == 0 and ended and ended[0].get("done", 0) >= kills, f"the victims ended {victims.returncode}", *ended)
        survivor.stdin.close()
        require(survivor.wait(30) == 0, f"the survivor ended {survivor.returncode}")
        until(lambda: used(world, "a") == 0, "the share holds nothing once its processes are gone", 30)
        until(lambda: world.node_memory_used() == 0, "the node holds nothing", 30)
        world.ok("share", "release", "a")
    require(found[True] and found[False], "there were too few kills to measure anything", found)
    return found[True], found[False], timer.p99_ms()


def nobody_waits_for_the_dead():
    seed = int(os.environ.get("METE_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}", flush=True)
    killed, ended, _ = waits(KILLS, seed)
    return f"{KILLS} kills, longest call {max(killed):.1f} ms with kills, {max(ended):.1f} ms without (compared by waits_test.py), seed {seed}"


def a_broker_begun_by_a_command_that_died_is_found():
    with World() as world:
        first, lock, holder = world.start("mete", "share", "list"), None, None
        while holder is None:  # busily: it is to be stopped between its lock and its socket
            try:
                lock = lock or open(next((world.folder / "run").glob("mete/*/broker.lock")))
                lock.seek(0)
                holder = int(lock.read().split("pid ")[1].split(",")[0])
            except (StopIteration, IndexError, ValueError):
                require(first.poll() is None, "the broker was not seen to begin")
        os.kill(holder, signal.SIGSTOP)
        first.kill()
        first.wait()
        second = world.start("mete", "share", "list")
        time.sleep(1.5)  # longer than a broker waits for the lock of another
        os.kill(holder, signal.SIGCONT)
        out, err = second.communicate(timeout=60)
        require(second.returncode == 0, "the broker that was there first was not waited for", out, err)


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
    main([random_kills_of_tenants_and_broker, nobody_waits_for_the_dead, a_broker_begun_by_a_command_that_died_is_found])
