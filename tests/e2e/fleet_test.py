#!/usr/bin/env python3
"""A node of many: 8 GPUs and 100 client processes, thousands of clients one after another, two nodes side by side, other users.

METE_CYCLES sets how many clients are born and die (default 10000)."""
import json
import os
import pathlib
import subprocess
import tempfile
import time

from harness import BIN, World, main, require, until

CYCLES = int(os.environ.get("METE_CYCLES", "10000"))
TICKS = os.sysconf("SC_CLK_TCK")
OTHER_UID = 65534


def status(world):
    return json.loads(world.ok("emulate", "status", "--dir", world.node, "--json").stdout)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def footprint(pid):
    """Open files, resident KiB and mappings of a process."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(next(line for line in text.splitlines() if line.startswith("RssAnon")).split()[1])
    return len(os.listdir(f"/proc/{pid}/fd")), resident, pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n")


def hundred_processes_on_eight_gpus():
    with World("8xA100-SXM4-40GB") as world:
        engine = status(world)["pid"]
        crowd = [world.start("tenant", "hold", 64 << 20, stdin=-1, environment={**world.without_mete(), "TENANT_GPU": str(i % 8)}) for i in range(100)]
        for child in crowd:
            require("got" in child.stdout.readline(), "a tenant of the crowd got nothing")
        said = status(world)
        require([gpu["contexts"] for gpu in said["gpus"]] == [13] * 4 + [12] * 4, "contexts are not where they should be")
        require(said["backing_used_bytes"] <= said["backing_bytes"], "more real memory than --backing allows", said["backing_used_bytes"])
        # Processor time, not wall time: a busy machine does not change it.
        before, begin = cpu_seconds(engine), time.monotonic()
        time.sleep(5)
        idle = (cpu_seconds(engine) - before) / (time.monotonic() - begin)
        require(idle <= 0.20, f"idle, the engine uses {100 * idle:.1f} % of a core")
        for child in crowd:
            child.stdin.close()
        for child in crowd:
            require(child.wait(timeout=60) == 0, "a tenant of the crowd failed")
        until(lambda: all(gpu["contexts"] == 0 and gpu["memory_used_bytes"] == 0 for gpu in status(world)["gpus"]), "everything is given back")
        return f"idle engine {100 * idle:.1f} % of a core"


def clients_that_come_and_go_leave_nothing():
    with World() as world:
        engine = status(world)["pid"]
        ways = ("exit", "leave", "kill")

        def cycle(count):
            children = [world.start("tenant", "cycle", count // len(ways), how, environment=world.without_mete()) for how in ways]
            for child in children:
                said = json.loads(child.communicate(timeout=1800)[0])
                require(said["failed"] == 0, "clients failed", said)
            until(lambda: status(world)["gpus"][0]["contexts"] == 0, "the last contexts are gone")

        cycle(300)  # what is kept for good is there by then
        fds, resident, maps = footprint(engine)
        cycle(CYCLES)
        after = footprint(engine)
        said = status(world)
        require(said["gpus"][0]["memory_used_bytes"] == 0 and said["outstanding"] == 0 and said["backing_used_bytes"] == 0, "engine records are left", said)
        require(after[0] <= fds, f"{after[0]} open files, {fds} before")
        require(after[2] <= maps + 8, f"{after[2]} mappings, {maps} before")
        # A page for each client would be 40 MB; fragmentation of the heap is less than one.
        require(after[1] <= resident + 2048, f"{after[1]} KiB resident, {resident} before")
        return f"{CYCLES} clients, files {fds} → {after[0]}, KiB {resident} → {after[1]}"


def backing_bounds_real_memory():
    with World(up=False) as world:
        world.ok("emulate", "up", "--gpus", "A100-SXM4-40GB", "--backing", "64MiB", "--dir", world.node)
        try:
            held = world.start("tenant", "hold", 8 << 30, stdin=-1, environment=world.without_mete())
            require("got" in held.stdout.readline(), "8 GiB of emulated memory need real memory")
            require(status(world)["backing_used_bytes"] <= 64 << 20, "more than --backing")
            resident = next(line for line in pathlib.Path(f"/proc/{held.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
            require(int(resident.split()[1]) < 512 << 10, "the client holds real memory for all of it", resident)
            held.stdin.close()
            held.wait(timeout=30)
        finally:
            world.mete("emulate", "down", "--dir", world.node)


def two_nodes_side_by_side():
    with World("A100-SXM4-40GB") as one, World("T4") as two:
        a = one.start("tenant", "hold", 1 << 30, stdin=-1, environment=one.without_mete())
        require("got" in a.stdout.readline(), "the first node serves nobody")
        b = json.loads(two.run("tenant", "free", environment=two.without_mete()).stdout)
        require(b["total"] == 15360 << 20, "the second node shows another board", b)
        require(status(two)["gpus"][0]["memory_used_bytes"] == 0, "memory of one node is counted on the other")
        fault = two.mete("emulate", "fault", "lost", "--dir", two.node)
        require(fault.returncode == 0, "no fault on the second node", fault.stderr)
        still = one.run("tenant", "free", environment=one.without_mete())
        require(still.returncode == 0, "a fault of one node reached the other", still.stdout)
        a.stdin.close()
        a.wait(timeout=30)


def other_users_use_but_do_not_rule():
    if os.geteuid() != 0:
        return "SKIPPED: needs root, to become another user"
    # Others must be able to reach the node: a folder of its own, open to all, and the programs in it.
    with tempfile.TemporaryDirectory(prefix="mete-users-") as folder:
        os.chmod(folder, 0o755)
        with World(up=False) as world:
            node = pathlib.Path(folder) / "node"
            world.node = node
            tenant = pathlib.Path(folder) / "tenant"
            tenant.write_bytes((BIN.parent / "tests/tenant").read_bytes())
            tenant.chmod(0o755)
            emulator = pathlib.Path(folder) / "mete-emulator"
            emulator.write_bytes((BIN / "mete-emulator").read_bytes())
            emulator.chmod(0o755)
            world.ok("emulate", "up", "--gpus", "A100-SXM4-40GB", "--dir", node)
            try:
                environment = {"LD_LIBRARY_PATH": str(node / "usr/lib/x86_64-linux-gnu"), "PATH": f"{node}/usr/bin:/usr/bin:/bin"}

                def other(*words, **options):
                    return subprocess.Popen([str(w) for w in words], env=environment, user=OTHER_UID, group=OTHER_UID, extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, **options)

                mine = world.start("tenant", "hold", 1 << 30, stdin=-1, environment=world.without_mete())
                mine.stdout.readline()
                theirs = other(tenant, "hold", 1 << 30)
                require("got" in theirs.stdout.readline(), "another user cannot use the GPU", theirs.stderr.read() if theirs.poll() is not None else "")
                seen = other("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader").communicate(timeout=60)[0].split()
                require({str(mine.pid), str(theirs.pid)} <= set(seen), "another user does not see the processes", seen)
                for words in (("nvidia-smi", "-c", "PROHIBITED"), (emulator, "fault", "lost", "--dir", node), (emulator, "fault", "--clear", "--dir", node), (emulator, "down", "--dir", node)):
                    forbidden = other(*words)
                    forbidden.communicate(timeout=60)
                    require(forbidden.returncode != 0, "another user may do what only the owner may", *words)
                require(status(world)["gpus"][0]["compute_mode"] == 0, "the compute mode changed")
                for one in (mine, theirs):
                    one.stdin.close()
                    one.wait(timeout=30)
            finally:
                world.ok("emulate", "down", "--dir", node)
    return f"uid {OTHER_UID} beside the owner"


if __name__ == "__main__":
    main([hundred_processes_on_eight_gpus, clients_that_come_and_go_leave_nothing, backing_bounds_real_memory, two_nodes_side_by_side, other_users_use_but_do_not_rule])
