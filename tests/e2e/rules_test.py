#!/usr/bin/env python3
"""Each rule of the engine is left out once, and the measurement that a verdict rests on must notice: with the rule it holds, without it it
does not. The rules are left out by test-only options of mete-emulator and mete-simulate that no command of mete's passes on."""
import json

from harness import BIN, ROOT, World, main, require, until

NUMBERS = ROOT / "tests/scenarios/numbers"


def emulator(world, *words):
    done = world.run(BIN / "mete-emulator", *words)
    require(done.returncode == 0, f"mete-emulator {words} ended {done.returncode}", done.stderr)


def on_node(rule, measure, gpus="A100-SXM4-40GB"):
    with World(up=False) as world:
        emulator(world, "up", "--gpus", gpus, "--dir", world.node, *(["--test-without", rule] if rule else []))
        try:
            return measure(world)
        finally:
            world.mete("emulate", "down", "--dir", world.node)


def tenant(world, *words, **options):
    done = world.run("tenant", *words, environment=world.without_mete(), **options)
    return json.loads(done.stdout)


def scrubbing():
    def found(world):
        tenant(world, "leave", "0x5ec4e7")
        return tenant(world, "find", "0x5ec4e7")["found"]
    require(on_node(None, found) == 0, "freed memory still holds what its last user wrote")
    require(on_node("scrubbing", found) > 0, "the measurement does not notice that nothing is scrubbed")


def memory_limit():
    def both(world):
        holder = world.start("tenant", "hold", 24 << 30, stdin=-1, environment=world.without_mete())
        json.loads(holder.stdout.readline())
        second = tenant(world, "hold", 24 << 30, input="")
        holder.stdin.close()
        holder.wait(timeout=30)
        return second
    require(on_node(None, both).get("error") == 2, "48 GiB fit into 40")
    require(on_node("memory-limit", both).get("got") == 24 << 30, "the measurement does not notice that nobody runs out of memory")


def fault_spread():
    def spared(world):
        both = [world.start("tenant", "work", environment=world.without_mete()) for _ in range(2)]
        for one in both:
            one.stdout.readline()
        emulated = world.mete("emulate", "fault", "xid", "95")
        require(emulated.returncode == 0, "no fault", emulated.stderr)
        # Whoever was hurt says so by itself; who was not goes on.
        work = lambda: json.loads(world.ok("emulate", "status", "--json").stdout)["submissions"]
        before = work()
        until(lambda: all(one.poll() is not None for one in both) or work() > before + 50, "both have ended or one goes on")
        until(lambda: any(one.poll() is not None for one in both), "whoever was hurt has ended")
        alive = sum(one.poll() is None for one in both)
        for one in both:
            one.kill()
            one.wait()
        return alive
    require(on_node(None, spared) == 0, "an uncontained error spared somebody")
    require(on_node("fault-spread", spared) == 1, "the measurement does not notice that a fault does not spread")


def check(scenario, rule=None):
    with World(up=False) as world:
        done = world.run("mete-simulate", "--check", "--json", *(["--test-without", rule] if rule else []), scenario)
        return done.returncode, json.loads(done.stdout)[0]["held"]


def slice_fairness():
    for name in ("slice-of-cuda", "yolos-3"):
        require(check(NUMBERS / f"{name}.yaml") == (0, True), f"{name} does not hold")
    require(check(NUMBERS / "slice-of-cuda.yaml", "slices") == (1, False), "the measurement does not notice that nobody's turn ends")


def bandwidth_sharing():
    scenario = ROOT / "tests/scenarios/node/copies-and-kernels.yaml"
    require(check(scenario) == (0, True), "the scenario does not hold")
    require(check(scenario, "bandwidth") == (1, False), "the measurement does not notice that bandwidth is not shared")


if __name__ == "__main__":
    main([scrubbing, memory_limit, fault_spread, slice_fairness, bandwidth_sharing])
