#!/usr/bin/env python3
"""Faults on real processes: programs that share no code with the emulator see the documented CUDA error, their neighbours do not, NVML's
and the engine's numbers follow, and --clear or a reset brings the GPU back."""
import json

from harness import World, main, require, until


def emulate(world, *words, code=0):
    done = world.mete("emulate", *words)
    require(done.returncode == code, f"mete emulate {' '.join(map(str, words))} ended {done.returncode}, not {code}", done.stdout, done.stderr)
    return done


def start(world, *words, gpu=0):
    child = world.start("tenant", *words, stdin=-1, environment={**world.without_mete(), "TENANT_GPU": str(gpu)})
    line = child.stdout.readline()
    require(line and "error" not in json.loads(line), f"tenant {words} did not begin", line, child.stderr.read() if child.poll() is not None else "")
    return child


def ended(child):
    out, err = child.communicate(timeout=60)
    require(out, "the tenant said nothing at its end", err)
    return json.loads(out)


def node(world):
    return json.loads(emulate(world, "fault", "--list", "--json").stdout)


def page_fault_kills_one_process_with_700():
    with World("2xA100-SXM4-40GB") as world:
        hit, spared = start(world, "work"), start(world, "work")
        emulate(world, "fault", "xid", "31", "--pid", hit.pid)
        said = ended(hit)
        require(said["error"] == 700 and said["again"] == 700, "not the sticky CUDA_ERROR_ILLEGAL_ADDRESS", said)
        require(spared.poll() is None, "the neighbour died too")
        events = node(world)["events"]
        require([(e["xid"], e["pid"]) for e in events] == [(31, hit.pid)], "not one Xid 31 of that process", events)
        spared.kill()


def off_the_bus_takes_everybody_on_that_gpu_only():
    with World("2xA100-SXM4-40GB") as world:
        here, also, there = start(world, "work"), start(world, "hold", 1 << 20), start(world, "work", gpu=1)
        emulate(world, "fault", "off-bus", "--gpu", "0")
        require(ended(here)["error"] == 999, "not CUDA_ERROR_UNKNOWN")
        require(there.poll() is None, "the other GPU's tenant died")
        fresh = world.run("tenant", "hold", 1, environment=world.without_mete(), input="")
        require(fresh.returncode == 4, "a new context on a GPU that is off the bus", fresh.stdout)
        require(node(world)["gpus"][0]["lost"], "the node does not say that the GPU is lost")
        emulate(world, "fault", "xid", "31", code=3)
        also.stdin.close()
        emulate(world, "fault", "--clear", "--gpu", "0")
        fresh = world.run("tenant", "hold", 1, environment=world.without_mete(), input="")
        require(fresh.returncode == 0, "no new context after --clear", fresh.stdout, fresh.stderr)
        there.kill()


def a_lost_gpu_does_not_stop_grants_on_the_others():
    with World("2xA100-SXM4-40GB") as world:
        emulate(world, "fault", "lost", "--gpu", "0")
        done = world.mete("run", "--memory", "1GiB", "--", "nvidia-smi", "-L")
        require(done.returncode == 0 and done.stdout.count("GPU-") == 1, "nothing was granted on the GPU that is sound", done.stdout, done.stderr)
        require(world.mete("run", "--gpu", "0", "--memory", "1GiB", "--", "true").returncode != 0, "something was granted on the lost GPU")


def contained_error_spares_the_neighbour_uncontained_waits_for_a_reset():
    with World() as world:
        a, b = start(world, "work"), start(world, "work")
        emulate(world, "fault", "ecc-uncorrectable", "--pid", a.pid)
        require(ended(a)["error"] == 214, "not CUDA_ERROR_ECC_UNCORRECTABLE")
        require(b.poll() is None, "a contained error killed the neighbour")
        emulate(world, "fault", "ecc-uncorrectable", "--uncontained")
        require(ended(b)["error"] == 214, "not CUDA_ERROR_ECC_UNCORRECTABLE")
        fresh = world.run("tenant", "hold", 1, environment=world.without_mete(), input="")
        require(fresh.returncode == 4 and json.loads(fresh.stdout)["error"] == 46, "a new context before the reset", fresh.stdout)
        state = node(world)["gpus"][0]
        require(state["ecc_volatile"]["uncorrected"] == 2 and state["remap_pending"], "the counters do not tell", state)
        emulate(world, "fault", "--clear")
        fresh = world.run("tenant", "hold", 1, environment=world.without_mete(), input="")
        require(fresh.returncode == 0, "no new context after --clear", fresh.stdout, fresh.stderr)


def hung_engine_holds_everybody_until_cleared():
    with World() as world:
        child = start(world, "hold", 1 << 20)
        emulate(world, "fault", "hang")
        late = world.start("tenant", "hold", 1, stdin=-1, environment=world.without_mete())
        until(lambda: json.loads(emulate(world, "status", "--json").stdout)["outstanding"] > 0, "work waits in the engine")
        require(late.poll() is None, "a kernel ended in a hung engine")
        emulate(world, "fault", "--clear")
        require(json.loads(late.stdout.readline()).get("got") == 1, "it does not go on after --clear")
        for one in (child, late):
            one.stdin.close()
            one.wait(timeout=30)


def driver_restart_ends_every_client_and_the_node_goes_on():
    with World() as world:
        a, b = start(world, "work"), start(world, "endless")
        emulate(world, "fault", "driver-restart")
        require(ended(a)["error"] != 0 and ended(b)["error"] != 0, "a client survived the driver")
        fresh = world.run("tenant", "hold", 1, environment=world.without_mete(), input="")
        require(fresh.returncode == 0, "no client after the restart", fresh.stdout, fresh.stderr)


def later_and_by_chance():
    with World() as world:
        emulate(world, "fault", "ecc-correctable", "--count", "2", "--after", "300ms")
        until(lambda: node(world)["gpus"][0]["ecc_volatile"]["corrected"] == 2, "the fault happened later")
        emulate(world, "fault", "--clear")
        emulate(world, "fault", "ecc-correctable", "--probability", "0.99", "--seed", "5")
        until(lambda: node(world)["faults"][0]["happened"] >= 2, "it happened again and again")
        number = node(world)["faults"][0]["id"]
        emulate(world, "fault", "--clear", number)
        require(node(world)["faults"] == [], "the fault is still armed")


def what_cannot_be_is_refused_with_a_reason():
    with World("T4") as world:
        for words, code, why in ((("xid", "31"), 3, "none uses GPU 0"), (("xid", "1"), 2, "119"), (("xid", "94", "--gpu", "0"), 3, "8.0"), (("explode",), 2, "off-bus"), (("hang", "--gpu", "4"), 2, "GPUs 0 to 0"),
                                 (("lost", "--pid", "1"), 2, "--pid"), (("row-remap-pending",), 3, "8.0"), (("throttle",), 2, "thermal"), (("slow-memory", "--factor", "2"), 2, "0.01"),
                                 (("lost", "--after", "soon"), 2, "500ms"), (("lost", "--probability", "3"), 2, "second"), (("--clear", "77"), 2, "--list"), (("xid", "79", "--pid", "2"), 2, "")):
            done = emulate(world, "fault", *words, code=code)
            require(why in done.stderr, f"fault {words}: the reason is missing", done.stderr)


if __name__ == "__main__":
    main([page_fault_kills_one_process_with_700, off_the_bus_takes_everybody_on_that_gpu_only, a_lost_gpu_does_not_stop_grants_on_the_others,
          contained_error_spares_the_neighbour_uncontained_waits_for_a_reset,
          hung_engine_holds_everybody_until_cleared, driver_restart_ends_every_client_and_the_node_goes_on, later_and_by_chance, what_cannot_be_is_refused_with_a_reason])
