#!/usr/bin/env python3
"""A quota on a MIG device: the proxies find the device by its UUID, two shares divide one device, and a tenant's nvidia-smi shows the GPU
and, on it, its own device only. The broker is a stand-in, so that this is about the proxies alone."""
import json
import re

from harness import BUILD, World, main, require

BOARD = "A100-SXM4-40GB"
QUOTA = 6 << 30


def smi(world, *words):
    done = world.run("nvidia-smi", *words, environment=world.without_mete())
    require(done.returncode == 0, f"nvidia-smi {words} ended {done.returncode}", done.stdout)
    return done.stdout


def cut(world):
    """A 3g.20gb and two 1g.5gb; their names and UUIDs."""
    smi(world, "-i", 0, "-mig", 1)
    smi(world, "mig", "-cgi", "3g.20gb,1g.5gb,1g.5gb", "-C")
    return re.findall(r"^  MIG (\S+) +Device +\d+: \(UUID: (MIG-[0-9a-f-]+)\)$", smi(world, "-L"), re.M)


def in_share(world, uuid, *command, visible=True, **extra):
    """The words and the environment of a command in a share of the device; `visible`: as a grant has it."""
    library = world.node / "usr/lib/x86_64-linux-gnu"
    words = [BUILD / "tests/in_share", BUILD / "lib/mete/interceptor", library, uuid, QUOTA, "--", *command]
    environment = {"PATH": world.without_mete()["PATH"], **({"CUDA_VISIBLE_DEVICES": uuid} if visible else {}), **extra}
    return words, environment


def run(world, uuid, *command, code=0, **options):
    words, environment = in_share(world, uuid, *command, **options)
    done = world.run(*words, environment=environment, input="")
    require(done.returncode == code, f"{command} in a share ended {done.returncode}, not {code}", done.stdout, done.stderr)
    return done.stdout


def two_shares_divide_a_mig_device():
    with World(BOARD) as world:
        large = dict(cut(world))["3g.20gb"]
        held = []
        for _ in range(2):
            words, environment = in_share(world, large, "tenant", "hold", 5 << 30)
            child = world.start(*words, environment=environment, stdin=-1)
            require(json.loads(child.stdout.readline())["got"] == 5 << 30, "less than the quota was refused")
            held.append(child)
        # The device has room for a third tenant's 7 GiB; its quota has not.
        refused = json.loads(run(world, large, "tenant", "hold", 7 << 30, code=4))
        require(refused["error"] == 2, "not CUDA_ERROR_OUT_OF_MEMORY", refused)
        memory = json.loads(run(world, large, "tenant", "free"))
        require(memory["total"] == QUOTA and memory["free"] <= QUOTA and memory["devices"] == 1, "cuMemGetInfo does not show the quota", memory)
        for child in held:
            child.stdin.close()
            require(child.wait(30) == 0, "the tenant did not end well")


def a_tenant_sees_its_gpu_and_on_it_its_device_only():
    with World(f"{BOARD},T4") as world:
        devices = cut(world)
        name, uuid = devices[-1]
        shown = run(world, uuid, "nvidia-smi", "-L").splitlines()
        require(len(shown) == 2 and shown[0].startswith("GPU 0: NVIDIA A100") and shown[1].startswith(f"  MIG {name} ") and uuid in shown[1],
                "not its device alone", *shown)
        table = run(world, uuid, "nvidia-smi")
        rows = re.findall(r"^\|  0 +\d+ +\d+ +(\d+) +\| +\d+MiB / +(\d+)MiB ", table, re.M)
        require(rows == [("0", "4864")], "the table", table)
        require("Tesla T4" not in table, "another GPU", table)
        for words in (("-lgi",), ("-lci",), ("-cgi", "19"), ("-dgi",)):
            require("Insufficient Permissions" in run(world, uuid, "nvidia-smi", "mig", *words, code=4), f"mig {words}")
        require("Insufficient Permissions" in run(world, uuid, "nvidia-smi", "-mig", 0, code=4), "-mig 0")


def devices_outside_the_share_are_refused():
    with World(f"{BOARD},T4") as world:
        uuid = cut(world)[-1][1]
        seen = json.loads(run(world, uuid, "tenant", "see", visible=False))["devices"]
        require(len(seen) == 4, "the driver's own list", seen)
        for ordinal, device in enumerate(seen):
            ours = "MIG-" + device["uuid"] == uuid
            said = json.loads(run(world, uuid, "tenant", "hold", 1 << 20, visible=False, code=0 if ours else 4, TENANT_GPU=str(ordinal)))
            require(ours or said["error"] == 46, "not CUDA_ERROR_DEVICE_UNAVAILABLE", device, said)


if __name__ == "__main__":
    main([two_shares_divide_a_mig_device, a_tenant_sees_its_gpu_and_on_it_its_device_only, devices_outside_the_share_are_refused])
