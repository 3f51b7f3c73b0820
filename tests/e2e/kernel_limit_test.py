#!/usr/bin/env python3
"""Memory limits that the kernel holds (driver 615, cgroups): a program that goes past the interceptor is refused at its quota all the
same. The control is the driver before, where it is not, and only the audit sees it."""
import json
import os
import signal

from harness import World, main, require, until

GIB = 1 << 30
QUOTA = 2 * GIB


def bypass(world):
    return {"STRANGER_DRIVER": str(world.node / "usr/lib/x86_64-linux-gnu/libcuda.so.1")}


def groups(world):
    root = world.node / "sys/fs/cgroup/mete"
    return [folder for folder in root.glob("*/*") if folder.is_dir()]


def held(world, *arguments, environment=None):
    """A stranger under `mete run` that has allocated all it could and holds it; what it said, and the process."""
    child = world.start("mete", "run", *arguments, "--", "stranger", "alloc", "dlsym", "wait", environment=environment, stdin=-1)
    line = child.stdout.readline()
    require(line, "the stranger said nothing", child.stderr.read() if child.poll() is not None else "")
    return json.loads(line), child


def let_go(child):
    child.stdin.close()
    child.wait(timeout=60)


def evidence(world, name):
    share = world.json("share", "show", name)
    return [item for item in share["evidence"] if "kernel" in item["what"]], share


def the_kernel_stops_who_goes_past_the_library():
    with World(driver="615") as world:
        got, child = held(world, "--name", "past", "--memory", "2GiB", environment=bypass(world))
        require(got["error"] == 2, "the refusal is not CUDA_ERROR_OUT_OF_MEMORY", got)
        require(QUOTA // 2 < got["got"] < QUOTA, "not stopped at its quota", got)
        require(world.node_memory_used() <= QUOTA, "the driver counts more than the quota", world.node_memory_used())
        require(got["total"] == QUOTA and got["free"] < 2 << 20, "cuMemGetInfo does not show the limit", got)
        items, share = evidence(world, "past")
        require(len(items) == 1 and items[0]["holds"], "no evidence that the kernel holds the limit", share["evidence"])
        require(share["kernel_limit"]["in_use"], "not said to be in use", share["kernel_limit"])
        quota = [p for p in share["gpus"][0]["promises"] if p["promise"] == "memory-quota"][0]
        require("kernel" in quota["because"], "the promise does not say who keeps it", quota)
        require(not [p for p in share["gpus"][0]["promises"] if p["promise"] == "enforced-outside" and p["kept"]],
                "more is claimed than memory", share["gpus"][0]["promises"])
        group, = groups(world)
        said = (group / "dmem.max").read_text().split()
        require(said[0] == "drm/0000:07:00.0/vram0" and said[1] == str(QUOTA), "dmem.max", said)
        shown = world.run("nvidia-smi", "memory-limits", "--get", "-n", group, "-i", 0, environment=world.without_mete())
        require("hard limit: 2048 MiB" in shown.stdout, "nvidia-smi memory-limits", shown.stdout)
        let_go(child)
        until(lambda: not groups(world), "the cgroup goes with its share")


def the_driver_before_lets_it_pass_and_the_audit_sees_it():
    with World() as world:
        got, child = held(world, "--name", "past", "--memory", "2GiB", environment=bypass(world))
        require(got["got"] > 2 * QUOTA, "the control was stopped, so the test above proves nothing", got)
        until(lambda: [f for f in world.json("share", "list")["foreign"] if f["pid"] == got["pid"]], "the audit sees the stranger")
        share = world.json("share", "show", "past")
        require(not share["kernel_limit"]["in_use"] and "615" in share["kernel_limit"]["because"], "no reason", share["kernel_limit"])
        let_go(child)


def managed_memory_is_the_librarys_alone():
    """As documented: the kernel counts it as the host's."""
    with World(driver="615") as world:
        inside = json.loads(world.ok("run", "--memory", "2GiB", "--", "stranger", "managed", "dlsym").stdout)
        require(inside["error"] == 2 and inside["got"] < QUOTA, "the library limits managed memory", inside)
        past = json.loads(world.ok("run", "--memory", "2GiB", "--", "stranger", "managed", "dlsym", environment=bypass(world)).stdout)
        require(past["got"] > QUOTA, "the emulated kernel limits more than the documented one", past)


def the_limit_changes_and_is_healed_by_the_next_broker():
    with World(driver="615") as world:
        got, child = held(world, "--name", "live", "--memory", "2GiB")
        require(got["error"] == 2 and got["got"] < QUOTA, "the interceptor's own limit", got)
        world.ok("share", "set", "live", "--memory", "3GiB")
        items, share = evidence(world, "live")
        require(items[0]["holds"] and "3 GiB" in items[0]["because"], "the new limit is not in the kernel", items)
        refused = world.mete("share", "set", "live", "--memory", "100GiB")
        require(refused.returncode == 3, "more than the GPU has", refused.returncode, refused.stderr)
        items, share = evidence(world, "live")
        require("3 GiB" in items[0]["because"], "a refused change left something", items)
        broker = [p for p in world.processes() if b"_broker" in open(f"/proc/{p}/cmdline", "rb").read()]
        require(len(broker) == 1, "one broker", broker)
        os.kill(broker[0], signal.SIGKILL)
        until(lambda: broker[0] not in world.processes(), "the broker has ended")
        until(lambda: world.mete("share", "list").returncode == 0, "a new broker")
        items, share = evidence(world, "live")
        require(items and items[0]["holds"] and "3 GiB" in items[0]["because"], "healed", share)
        # killed again, and its share ends while no broker lives: the next one removes the group
        broker = [p for p in world.processes() if b"_broker" in open(f"/proc/{p}/cmdline", "rb").read()]
        for process in broker + [child.pid, got["pid"]]:
            os.kill(process, signal.SIGKILL)
        child.wait()
        until(lambda: not {*broker, got["pid"]} & {*world.processes()}, "broker and tenant have ended")
        world.ok("share", "list")
        until(lambda: not groups(world), "the group of a dead share is gone")


def a_joined_share_is_one_group():
    with World(driver="615") as world:
        world.ok("share", "create", "--name", "team", "--memory", "2GiB")
        one, first = held(world, "--share", "team", environment=bypass(world))
        two, second = held(world, "--share", "team", environment=bypass(world))
        require(two.get("got", 0) == 0 and two.get("error") == 2, "the second got memory beyond the common quota", one, two)
        require(world.node_memory_used() <= QUOTA, "together more than the quota", world.node_memory_used())
        let_go(first)
        let_go(second)
        world.ok("share", "release", "team")
        until(lambda: not groups(world), "released")


def what_cannot_be_written_falls_back_and_says_so():
    with World(driver="615") as world:
        tree = world.node / "sys/fs/cgroup"
        (tree / "mete").write_text("in the way")
        got, child = held(world, "--name", "alone", "--memory", "2GiB")
        require(got["error"] == 2 and got["got"] < QUOTA, "the interceptor limits it still", got)
        share = world.json("share", "show", "alone")
        require(not share["kernel_limit"]["in_use"] and "cgroup" in share["kernel_limit"]["because"], "not said", share["kernel_limit"])
        require(not [e for e in share["evidence"] if "kernel" in e["what"]], "evidence of what is not so", share["evidence"])
        let_go(child)
        (tree / "mete").unlink()
        inventory = world.ok("inventory").stdout
        require("holds the memory limit" in " ".join(inventory.split()), "inventory is silent", inventory)
        (tree / "cgroup.controllers").unlink()
        inventory = world.ok("inventory").stdout
        require("no cgroup v2 tree" in " ".join(inventory.split()), "inventory gives no reason", inventory)


if __name__ == "__main__":
    main([the_kernel_stops_who_goes_past_the_library, the_driver_before_lets_it_pass_and_the_audit_sees_it,
          managed_memory_is_the_librarys_alone,
          the_limit_changes_and_is_healed_by_the_next_broker, a_joined_share_is_one_group, what_cannot_be_written_falls_back_and_says_so])
