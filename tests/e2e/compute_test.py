#!/usr/bin/env python3
"""Compute shares in wall-clock time, as a confirmation of what tests/scenarios/compute decides in virtual time.

Median of five rounds, kernels of 1 ms, 8 in flight, ±5 points. A round counts only if this machine's own 5 ms timer was late by no
more than 3 ms at the 99th percentile while it ran; with fewer than three such rounds the result is void, which is said and not passed.
"""
import json
import threading
import time

from harness import LONG, World, main, median, require

ROUNDS, SECONDS, TOLERANCE = 5, 3, 5.0


class Timer:
    """Measures how late a 5 ms sleep ends, p99, while something else runs."""

    def __enter__(self):
        self.late, self.stop = [], False
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()
        return self

    def loop(self):
        while not self.stop:
            due = time.monotonic() + 0.005
            time.sleep(0.005)
            self.late.append((time.monotonic() - due) * 1000)

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()

    def p99_ms(self):
        ordered = sorted(self.late) or [0.0]
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def kernel(world):
    """The kernel that takes 1 ms alone, found where nobody disturbs it."""
    done = world.run("mete-load", "calibrate", "--kernel-ms", "1", "--json", environment=world.without_mete())
    require(done.returncode == 0, "calibration failed", done.stdout, done.stderr)
    said = json.loads(done.stdout)
    return ["--iterations", said["iterations"], "--kernel-ms", said["kernel_ms"]]


def loads(world, *groups):
    """Runs mete-load side by side and returns each group's share of the GPU in percent and the timer's lateness."""
    if not hasattr(world, "kernel"):
        world.kernel = kernel(world)
    with Timer() as timer:
        children = [world.start(*prefix, "mete-load", "compute", *world.kernel, "--depth", "8", "--seconds", SECONDS, "--processes", processes, "--json",
                                environment=environment) for prefix, processes, environment in groups]
        answers = [child.communicate(timeout=300) for child in children]
    shares = []
    for child, (out, err) in zip(children, answers):
        require(child.returncode == 0, f"mete-load ended {child.returncode}", out, err)
        said = json.loads(out)
        shares.append(100.0 * said["gpu_ms"] / (1000.0 * said["seconds"]))
    return shares, timer.p99_ms()


def confirm(world, groups, expected, control=False):
    rounds, void = [], 0
    for _ in range(ROUNDS):
        shares, late = loads(world, *groups)
        if late > 3.0:
            void += 1
        else:
            rounds.append(shares)
    if len(rounds) < 3:
        return f"VOID: {void} of {ROUNDS} rounds had a late timer; nothing was shown"
    got = [median(column) for column in zip(*rounds)]
    for share, wanted in zip(got, expected):
        require(abs(share - wanted) <= TOLERANCE, f"got {[round(s, 1) for s in got]} %, expected {expected} ± {TOLERANCE}", f"rounds: {rounds}")
    return f"{' / '.join(f'{s:.1f}' for s in got)} % (expected {' / '.join(map(str, expected))}), {void} rounds void"


def in_share(name):
    return ("mete", "run", "--share", name, "--")


def with_shares(world):
    world.ok("share", "create", "--name", "a", "--memory", "8GiB", "--compute", "30%")
    world.ok("share", "create", "--name", "b", "--memory", "20GiB", "--compute", "70%")


def two_tenants_30_70():
    with World() as world:
        with_shares(world)
        note = confirm(world, [(in_share("a"), 1, None), (in_share("b"), 1, None)], [30, 70])
        for name in "ab":
            world.ok("share", "release", name)
    return note


def ten_processes_gain_nothing():
    with World() as world:
        with_shares(world)
        note = confirm(world, [(in_share("a"), 10, None), (in_share("b"), 1, None)], [30, 70])
        for name in "ab":
            world.ok("share", "release", name)
    return note


def alone_under_a_hard_cap():
    with World() as world:
        with_shares(world)
        note = confirm(world, [(in_share("a"), 1, None)], [30])
        for name in "ab":
            world.ok("share", "release", name)
    return note


def control_without_mete_ten_take_ten_elevenths():
    with World() as world:
        bare = world.without_mete()
        return confirm(world, [((), 10, bare), ((), 1, bare)], [100 * 10 / 11, 100 / 11])


if __name__ == "__main__":
    main([two_tenants_30_70, ten_processes_gain_nothing, alone_under_a_hard_cap, control_without_mete_ten_take_ten_elevenths])
