#!/usr/bin/env python3
"""Several GPUs: what programs do among them is left to the driver. Devices outside the share are refused whatever CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say, and the share's own keeps its quota at
whatever number it is seen: everything goes by UUID. What the program sees is the driver's own list, told apart by a run without mete."""
import itertools

from harness import World, main, require

QUOTA = 2 << 30
UNAVAILABLE, OUT_OF_MEMORY = 46, 2


def seen(done):
    require(done.returncode == 0, f"ended {done.returncode}", done.stdout, done.stderr)
    first, *rows = done.stdout.splitlines()
    return int(first), [(row.split()[0], tuple(map(int, row.split()[1:]))) for row in rows]


def values(uuids):
    """What people and tools put into the variable."""
    yield None
    yield from ("", "0", "1", "2", "-1", "3", "7", "0,7,1", "1,-1,0", "0,0", "1,1", "abc", "1abc", " 1", "0x1", "GPU-", "MIG-", "all", "NoDevFiles")
    for count in (2, 3):
        for order in itertools.permutations(range(len(uuids)), count):
            yield ",".join(map(str, order))
    for uuid in uuids:
        yield uuid
        yield uuid[:12]            # a prefix that is unique is enough
        yield uuid.upper()
        yield "MIG-" + uuid        # the old form of a MIG device's name
        yield f"MIG-{uuid}/1/0"
        yield "MIG-" + uuid[4:]
    yield ",".join(reversed(uuids))
    yield f"{uuids[1]},0"
    yield "GPU-00000000-0000-0000-0000-000000000000"


def check(world, shared, uuids, value, order):
    words = ["devices"]
    settings = [f"CUDA_VISIBLE_DEVICES={value}"] if value is not None else []
    settings += [f"CUDA_DEVICE_ORDER={order}"] if order else []
    case = f"share of {shared}, CUDA_VISIBLE_DEVICES={value!r}, CUDA_DEVICE_ORDER={order}"
    bare_init, bare = seen(world.run("env", *settings, *words, environment=world.without_mete()))
    # `mete run` itself sets CUDA_VISIBLE_DEVICES to the share's device; a tenant does as it likes.
    unset = ["-u", "CUDA_VISIBLE_DEVICES"] if value is None else []
    init, inside = seen(world.mete("run", "--share", "s", "--", "env", *unset, *settings, *words))
    require(init == bare_init, f"{case}: cuInit gives {init}, the driver {bare_init}")
    require([uuid for uuid, _ in inside] == [uuid for uuid, _ in bare], f"{case}: another list of devices", inside, bare)
    for uuid, (created, retained, known, total, allocated, info, info_total) in inside:
        line = f"{case}: {uuid}: {created} {retained} {known} {total} {allocated} {info} {info_total}"
        require(uuid in uuids, "an unknown device", line)
        if uuid != shared:
            require((created, retained) == (UNAVAILABLE, UNAVAILABLE), "a device outside the share was given", line)
            continue
        require((created, retained, known) == (0, 0, 0), "the share's own device was refused", line)
        require((total, info_total, info) == (QUOTA, QUOTA, 0), "the share's size is not what is seen", line)
        require(allocated == OUT_OF_MEMORY, "3 GiB were had of 2 GiB", line)
    return any(uuid == shared for uuid, _ in inside)


def fault_11_12_41_no_value_of_the_variables_leads_to_a_device_outside_the_share():
    count = reached = 0
    with World("A100-SXM4-40GB,T4,A100-SXM4-80GB") as world:
        listed = world.run("devices", environment=world.without_mete())
        uuids = [uuid for uuid, _ in seen(listed)[1]]
        require(len(uuids) == 3, "the node has three devices", listed.stdout)
        for gpu, shared in enumerate(uuids):
            world.ok("share", "create", "--name", "s", "--gpu", shared, "--memory", "2GiB")
            for value in values(uuids):
                orders = (None, "PCI_BUS_ID", "FASTEST_FIRST") if gpu == 1 else (None,)
                for order in orders:
                    reached += check(world, shared, uuids, value, order)
                    count += 1
            world.ok("share", "release", "s")
    require(reached > count // 4, f"the share's own device was hardly ever reached: {reached} of {count}")
    return f"{count} settings, the share's own device seen in {reached}"


def fault_56_peers_ipc_and_exports_work_as_without_mete():
    with World("2xA100-SXM4-40GB") as world:
        bare = world.run("across_gpus", environment=world.without_mete())
        require(bare.returncode == 0 and bare.stdout.count("value 5eed") == 2 and "can 1 1" in bare.stdout, "the test itself is wrong", bare.stdout, bare.stderr)
        for options in ((), ("--preload",), ("--compute", "50%")):
            inside = world.mete("run", *options, "--gpus", "2", "--memory", "4GiB", "--", "across_gpus")
            require(inside.stdout == bare.stdout and inside.returncode == 0, f"other answers with {options}", inside.stdout, inside.stderr)
    return f"{len(bare.stdout.splitlines())} answers"


if __name__ == "__main__":
    main([fault_56_peers_ipc_and_exports_work_as_without_mete, fault_11_12_41_no_value_of_the_variables_leads_to_a_device_outside_the_share])
