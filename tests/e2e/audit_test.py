#!/usr/bin/env python3
"""Memory that changes hands, and programs that get past the library: the driver's own count never exceeds the quota where the library
can keep it, the audit charges what nobody charged, and does about a bypass what the share asks for."""
import json
import os
import signal

from harness import World, main, require, until

GIB = 1 << 30


def line_of(child, what):
    line = child.stdout.readline()
    require(line, f"{what}: no answer", child.stderr.read() if child.poll() is not None else "")
    return json.loads(line)


def share(world, name):
    return world.json("share", "show", name)


def tell(child, word):
    child.stdin.write(word + "\n")
    child.stdin.flush()


def exported_memory_is_charged_to_whoever_holds_it():
    """3 GiB of 4 pass from their maker to an heir, who is another process of the share; then the maker frees, or dies."""
    for end in ("release", "die"):
        with World() as world:
            world.ok("share", "create", "--name", "a", "--memory", "4GiB")
            maker = world.start("mete", "run", "--share", "a", "--", "tenant", "give", str(3 * GIB), world.folder / "handover", stdin=-1)
            given = line_of(maker, "maker")
            heir = world.start("mete", "run", "--share", "a", "--", "tenant", "take", world.folder / "handover", stdin=-1)
            taken = line_of(heir, "heir")
            line_of(maker, "maker")
            require(taken["error"] == 0, "the memory could not be taken over", taken)
            held = share(world, "a")["gpus"][0]["used_bytes"]
            require(3 * GIB <= held < 4 * GIB, "what was handed over is charged twice", held)
            if end == "release":
                tell(maker, "release")
                line_of(maker, "maker")
            else:
                os.kill(given["pid"], signal.SIGKILL)
                maker.wait()
            # Nobody can use the room twice, at once or later.
            hog = json.loads(world.ok("run", "--share", "a", "--", "stranger", "alloc", "dlsym").stdout)
            require(hog["error"] == 2 and hog["got"] < GIB, "the quota could be used a second time", hog)
            require(world.node_memory_used() <= 4 * GIB, "the driver holds more than the quota")
            tell(heir, "release")
            line_of(heir, "heir")
            hog = json.loads(world.ok("run", "--share", "a", "--", "stranger", "alloc", "dlsym").stdout)
            require(hog["got"] > 3 * GIB - (600 << 20), f"what was released at the end ({end}) is not to be had", hog)
            for child in (maker, heir):
                child.stdin.close()
                child.wait()
            world.ok("share", "release", "--force", "a")
    return "by release and by death"


def bypass(answer):
    world = World().__enter__()
    driver = world.node / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    child = world.start("mete", "run", "--name", "a", "--memory", "1GiB", "--on-bypass", answer, "--", "env", f"TENANT_DRIVER={driver}", "tenant", "hold", str(3 * GIB), stdin=-1)
    return world, child, line_of(child, "bypass")


def events(world):
    return [event for event in share(world, "a")["events"] if event["kind"] == "bypass"]


def a_program_that_opens_the_driver_by_its_path_is_reported():
    world, child, said = bypass("report")
    try:
        require(said["got"] == 3 * GIB, "the bypass did not work, so that this shows nothing", said)
        until(lambda: events(world), "the bypass is an event")
        require(str(said["pid"]) in events(world)[0]["text"] and "only reported" in events(world)[0]["text"], "the event does not name it", events(world))
        require(child.poll() is None, "it was ended although it was only to be reported")
        promise = [p for p in share(world, "a")["gpus"][0]["promises"] if p["promise"] == "memory-quota"][0]
        require(not promise["kept"], "the quota is called kept", promise)
        child.stdin.close()
        child.wait()
    finally:
        world.__exit__(None, None, None)


def or_stopped():
    world, child, said = bypass("freeze")
    state = lambda: open(f"/proc/{said['pid']}/stat").read().rsplit(")", 1)[1].split()[0]  # noqa: E731
    try:
        until(lambda: state() == "T", "the bypass is stopped")
        require("stopped" in events(world)[0]["text"], "the event does not say so", events(world))
        world.ok("share", "set", "a", "--on-bypass", "report")
        until(lambda: state() != "T", "it goes on")
        child.stdin.close()
        child.wait()
    finally:
        world.__exit__(None, None, None)


def or_killed():
    world, child, said = bypass("kill")
    try:
        child.wait(60)
        require(child.returncode == 128 + signal.SIGKILL, "mete run does not say that its command was killed", child.returncode, child.stderr.read())
        until(lambda: world.node_memory_used() == 0, "its memory is back")
    finally:
        world.__exit__(None, None, None)


if __name__ == "__main__":
    main([exported_memory_is_charged_to_whoever_holds_it, a_program_that_opens_the_driver_by_its_path_is_reported, or_stopped, or_killed])
