#!/usr/bin/env python3
"""Every way to a driver function ends at mete's wrapper of exactly the function that the driver itself would have given, and at the driver
where mete wraps nothing. Each route is gone once without mete and once with it, by a program that shares no code with mete, and the two
answers are compared: on the emulated node through `mete run`, and on null drivers of several ages through a stand-in broker.

Deliveries: `path` (the proxy first in LD_LIBRARY_PATH), `preload` (libmete-preload.so alone; the program's own path leads to the real
driver, or it opens that by its absolute path), `both`."""
import os
import pathlib
import shlex

from harness import LONG, BUILD, ROOT, World, main, require

TESTS = BUILD / "tests"
LIBRARY = TESTS / "libresolver_needs_driver.so"
WRAPPED = {line.split()[0] for line in (ROOT / "src/interceptor/wrapped.txt").read_text().splitlines()
           if line and line[0] != "#" and not line.endswith(" use")}
PROXY = BUILD / "lib/mete/interceptor/libcuda.so.1"

# route: (program, what is opened, deliveries). "driver" stands for the absolute path of the real driver.
ROUTES = {
    "linked": ("resolver_probe_linked", None, ("path", "preload", "both")),
    "needs": ("resolver_probe", LIBRARY, ("path", "preload", "both")),
    "needs-deepbind": ("resolver_probe", LIBRARY, ("path", "preload", "both")),
    "needs-dlmopen": ("resolver_probe", LIBRARY, ("path", "preload", "both")),
    "dlsym": ("resolver_probe", None, ("path", "preload", "both")),
    "dlsym-global": ("resolver_probe", None, ("path", "preload", "both")),
    "deepbind": ("resolver_probe", None, ("path", "preload", "both")),
    "dlvsym": ("resolver_probe", None, ("path", "preload", "both")),
    "dlmopen": ("resolver_probe", None, ("path", "preload", "both")),
    "program": ("resolver_probe_linked", None, ("path", "preload", "both")),
    "default": ("resolver_probe_linked", None, ("path", "preload", "both")),
    "next": ("resolver_probe_linked", None, ("path", "preload", "both")),
    "past-dlsym": ("resolver_probe", None, ("path", "preload", "both")),
    "proc-1": ("resolver_probe", None, ("path", "preload", "both")),
    "proc-2": ("resolver_probe", None, ("path", "preload", "both")),
    "dlsym by absolute path": ("resolver_probe", "driver", ("preload", "both")),
    "dlsym-global by absolute path": ("resolver_probe", "driver", ("preload", "both")),
    "deepbind by absolute path": ("resolver_probe", "driver", ("preload", "both")),
    "dlmopen by absolute path": ("resolver_probe", "driver", ("preload", "both")),
    "past-dlsym by absolute path": ("resolver_probe", "driver", ("preload", "both")),
    "proc-2 by absolute path": ("resolver_probe", "driver", ("preload", "both")),
}


class EmulatedNode:
    """Without mete: the node's own driver. With it: `mete run` with a quota of 4 GiB."""

    def __init__(self, world):
        self.world = world
        self.driver = world.node / "usr/lib/x86_64-linux-gnu/libcuda.so.1"

    def bare(self, words):
        return self.world.run(*words, environment=self.world.without_mete())

    def shared(self, words, delivery):
        options = ["--memory", "4GiB"] + (["--preload"] if delivery != "path" else [])
        if delivery == "preload":  # as where the linker's path cannot be changed
            words = ["env", f"LD_LIBRARY_PATH={self.driver.parent}", *words]
        return self.world.mete("run", *options, "--", *words)


class NullDriver:
    """Without mete: a driver that does nothing. With it: a stand-in for the broker, with a quota of 32 GiB."""

    def __init__(self, world, folder):
        self.world = world
        self.driver = BUILD / "lib/mete" / folder / "libcuda.so.1"

    def bare(self, words):
        return self.world.run(*words, environment={"LD_LIBRARY_PATH": str(self.driver.parent)})

    def shared(self, words, delivery):
        path = "${0%/*}" if delivery != "preload" else shlex.quote(str(self.driver.parent))
        preload = "LD_PRELOAD=${0%/*}/libmete-preload.so" if delivery != "path" else ""
        command = f"exec env LD_LIBRARY_PATH={path} {preload} {shlex.join(map(str, words))}"
        return self.world.run(BUILD / "bench/with_share", PROXY, self.driver, "untracked", "1", "--", "/bin/sh", "-c", command, "{}")


def answers(done, case):
    # 127: a program that is linked to what its driver lacks is not even started.
    lacks = done.returncode == 4 or (done.returncode == 127 and "undefined symbol: cu" in done.stderr)
    require(done.returncode == 0 or lacks, f"{case}: ended {done.returncode}", done.stdout[-300:], done.stderr)
    if lacks:
        return None
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    require(len(rows) > 600, f"{case}: {len(rows)} answers", done.stderr)
    return {row[0]: row[1:] for row in rows}


def compare(node, case, bare, shared, delivery):
    """The same answers but for whose function it is. Returns how many wrappers were met."""
    require(bare.keys() == shared.keys(), f"{case}: other questions", set(bare) ^ set(shared))
    wrappers = 0
    driver = node.driver.resolve()
    for question, (file, symbol, *more) in bare.items():
        got_file, got_symbol, *got_more = shared[question]
        answer = f"{case}: {question}: {bare[question]} without mete, {shared[question]} with it"
        if question == "call":
            if (file, symbol) == ("-", "-"):
                require(got_file == "-", "found, although the driver has it not", answer)
            else:
                require((file, symbol) == ("0", "0"), "without mete 36 GiB are not had", answer)
                require((got_file, got_symbol) == ("0", "2"), "the quota is not kept", answer)
            continue
        require((file, more) == ("-", got_more) if file == "-" else more == got_more, "another status", answer)
        require((file == "-") == (got_file == "-"), "offered what the driver lacks, or not what it has", answer)
        if file == "-":
            continue
        require(symbol != "?" and symbol == got_symbol, "another function", answer)
        at = pathlib.Path(got_file)
        if symbol in WRAPPED:
            require(at.name == "libmete-preload.so" or (at.name == "libcuda.so.1" and at.resolve() != driver), "not wrapped", answer)
            wrappers += 1
        else:
            # By the name it has in the grant, which has ended by now, or by its own.
            require(at.name == "libmete-driver-cuda.so.1" or at.resolve() == driver, "not the driver's own", answer)
    return wrappers


def walk(node, name, deliveries=("path", "preload", "both")):
    met = 0
    for route, (program, opened, where) in ROUTES.items():
        if not LONG:  # the plainest way in and the fullest
            where = dict.fromkeys((where[0], where[-1]))
        words = [TESTS / program, route.split()[0]]
        words += [node.driver if opened == "driver" else opened] if opened else []
        bare = answers(node.bare(words), f"{name}, {route}, without mete")
        for delivery in where:
            if delivery not in deliveries:
                continue
            case = f"{name}, {route}, {delivery}"
            shared = answers(node.shared(words, delivery), case)
            require((bare is None) == (shared is None), f"{case}: the route is there with mete and not without, or the other way round")
            if bare is None:
                continue
            wrappers = compare(node, case, bare, shared, delivery)
            require(wrappers > 30 or route == "dlvsym", f"{case}: only {wrappers} wrappers met")
            met += wrappers
    return met


def fault_28_29_30_34_36_every_route_reaches_the_wrapper_of_the_drivers_own_answer():
    with World() as world:
        met = walk(EmulatedNode(world), "emulated node")
    return f"{len(ROUTES)} routes, {met} wrappers met"


def fault_27_33_an_older_driver_is_offered_nothing_that_it_lacks():
    with World(up=False) as world:
        met = sum(walk(NullDriver(world, f"null-driver{age}"), f"driver{age or ' of today'}") for age in (("-11010", "-11050", "") if LONG else ("-11050",)))
    return f"{met} wrappers met"


if __name__ == "__main__":
    main([fault_28_29_30_34_36_every_route_reaches_the_wrapper_of_the_drivers_own_answer, fault_27_33_an_older_driver_is_offered_nothing_that_it_lacks])
