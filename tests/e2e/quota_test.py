#!/usr/bin/env python3
"""A 4 GiB quota holds for every allocating call by both look-up routes, seen from a client that shares no code with mete:
a quota is kept and not only written down (reported fault 52)."""
import json

from harness import World, main, require, until

QUOTA = 4 << 30
GRANULE = 2 << 20
APIS = ("alloc", "pitch", "managed", "async", "async-ptsz", "pool", "vmm", "export", "module", "library", "array", "small-arrays", "array3d", "mipmap", "graph", "capture")


def every_allocating_call_stops_at_the_quota(program="stranger", options=(), routes=("dlsym", "proc-address"), environment=None):
    with World() as world:
        for api in APIS:
            for route in routes:
                child = world.start("mete", "run", *options, "--memory", "4GiB", "--", program, api, route, "wait", stdin=-1, environment=environment)
                line = child.stdout.readline()
                require(line, f"{api} by {route}: no answer", child.stderr.read() if child.poll() is not None else "")
                said = json.loads(line)
                used = world.node_memory_used()
                child.stdin.close()
                status, errors = child.wait(), child.stderr.read()
                case = f"{program} {api} by {route}: {said}, node says {used}"
                require(status == 0 and "Sanitizer" not in errors, "it did not end well", case, status, errors)
                require(said["error"] == 2, "not refused with CUDA_ERROR_OUT_OF_MEMORY", case)
                require(used <= QUOTA, "more than the quota is held", case)
                require(used + GRANULE > QUOTA, "refused although a granule still fitted", case)
                require(said["total"] == QUOTA, "cuMemGetInfo does not say 4 GiB", case)
                require(said["devices"] == 1, "more devices than the share has", case)
                until(lambda: world.node_memory_used() == 0, f"memory of {api} is back")
    return f"{len(APIS)} calls, {len(routes)} routes"


def a_program_built_with_sanitizers_is_held_as_well():
    # GCC's runtime refuses whatever is preloaded before it, unless it is told not to look.
    for options, environment in (((), None), (("--preload",), {"ASAN_OPTIONS": "verify_asan_link_order=0"})):
        every_allocating_call_stops_at_the_quota("stranger_sanitized", options, ("dlsym",), environment)


def a_pool_full_of_holes_does_not_outgrow_the_quota():
    with World() as world:
        child = world.start("mete", "run", "--memory", "4GiB", "--", "stranger", "fragments", "dlsym", "wait", stdin=-1)
        line = child.stdout.readline()
        require(line, "no answer", child.stderr.read() if child.poll() is not None else "")
        said, used = json.loads(line), world.node_memory_used()
        child.stdin.close()
        child.wait()
        require(said["error"] == 2 and said["got"] > 1 << 30, "what was freed could not be taken again", said)
        require(used <= QUOTA, "more than the quota is held", said, used)


def nvml_and_nvidia_smi_inside_say_the_quota():
    with World("A100-SXM4-40GB,T4") as world:
        done = world.ok("run", "--gpu", "0", "--memory", "4GiB", "--", "nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
        require(done.stdout.split() == ["0,", "4096"], "nvidia-smi inside does not show one GPU of 4096 MiB", done.stdout)
        table = world.ok("run", "--gpu", "0", "--memory", "4GiB", "--", "nvidia-smi").stdout
        require("4096MiB" in table and "T4" not in table, "the table inside shows more than the share", table)


def control_without_mete_takes_the_whole_gpu():
    with World() as world:
        done = world.run("stranger", "alloc", "dlsym", environment=world.without_mete())
        got = json.loads(done.stdout)["got"]
        require(got > 8 * QUOTA, "the control was limited although mete was not there", done.stdout)


if __name__ == "__main__":
    main([every_allocating_call_stops_at_the_quota, a_program_built_with_sanitizers_is_held_as_well, a_pool_full_of_holes_does_not_outgrow_the_quota, nvml_and_nvidia_smi_inside_say_the_quota, control_without_mete_takes_the_whole_gpu])
