#!/usr/bin/env python3
"""The published figures of time-slicing on real processes, by the wall clock: the scenarios of tests/scenarios/numbers that virtual time
decides, run by `mete-simulate --wall` on an emulated node. Wall clock and virtual time must agree within 10 %. A run during which the
machine's own timer was late is void: that is said, and nothing is passed by it."""
import json

from harness import ROOT, World, main, require

NUMBERS = ROOT / "tests/scenarios/numbers"
TRIES = 3


def latency(world, name):
    """Virtual milliseconds of the first share."""
    report = json.loads(world.run("mete-simulate", "--json", NUMBERS / f"{name}.yaml").stdout)[0]
    return report["cases"][0]["shares"][0]["latency_ms"]["mean"]


def agree(board, *names):
    notes = []
    with World(board) as world:
        for name in names:
            virtual = latency(world, name)
            for _ in range(TRIES):
                done = world.run("mete-simulate", "--wall", world.node, "--wall-seconds", 12, "--json", NUMBERS / f"{name}.yaml")
                require(done.returncode == 0, f"{name} failed on the node", done.stdout, done.stderr)
                report = json.loads(done.stdout)[0]
                if not report["void"]:
                    break
            share = report["shares"][0]
            if report["void"]:
                notes.append(f"{name}: VOID, the timer was {report['timer_late_p99_ms']:.1f} ms late")
                continue
            require(share["held"], f"{name}: not the published figure", share)
            require(abs(share["latency_ms"] - virtual) <= 0.1 * virtual, f"{name}: wall clock {share['latency_ms']:.1f} ms, virtual time {virtual:.1f} ms", share)
            notes.append(f"{name}: {share['latency_ms']:.1f} ms wall, {virtual:.1f} virtual")
    return "; ".join(notes)


def yolos_by_time_slicing():
    return agree("A100-PCIe-80GB", "yolos-1", "yolos-3", "yolos-5", "yolos-7")


def two_equal_tasks():
    return agree("V100-SXM2-32GB", "xsched-alone", "xsched-two")


if __name__ == "__main__":
    main([yolos_by_time_slicing, two_equal_tasks])
