#!/usr/bin/env python3
"""A full disk under standard output is said on standard error and in the exit status, by every program."""
import subprocess

from harness import ROOT, World, main, require, until

SCENARIO = ROOT / "tests/scenarios/compute/live-change.yaml"


def onto_full(world, *command, environment=None):
    with open("/dev/full", "w") as full:
        return subprocess.run([str(c) for c in command], env={**world.environment, **(environment or {})}, stdout=full, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=120)


def refused(world, lines, status, environment=None):
    faults = []
    for line in lines:
        done = onto_full(world, *line, environment=environment)
        if done.returncode not in status or "could not be written" not in done.stderr or "No space left" not in done.stderr:
            faults.append(f"{' '.join(map(str, line))}: ended {done.returncode}, stderr: {done.stderr.strip()[:300]}")
    require(not faults, f"{len(faults)} of {len(lines)} lines", *faults)
    return f"{len(lines)} lines"


def mete_says_so():
    with World() as world:
        return refused(world, [("mete", *words.split()) for words in (
            "version", "--help", "explain A100-SXM4-40GB", "explain A100-SXM4-40GB --json", "inventory", "inventory --json", "share list", "share list --json",
            "share create --help", "emulate status", "emulate status --json", "emulate env", "emulate fault --list", "emulate --help",
            "emulate up --help")], [4])


def a_node_is_up_or_down_even_if_nobody_can_read_it():
    with World(up=False) as world:
        other = world.folder / "unseen"
        refused(world, [("mete", "emulate", "up", "--gpus", "T4", "--dir", other)], [4])
        require(other.exists(), "the node did not come up")
        refused(world, [("mete", "emulate", "down", "--dir", other)], [4])
        until(lambda: not other.exists(), "the node has gone")


def nvidia_smi_says_so():
    with World() as world:
        return refused(world, [("nvidia-smi", *words) for words in (
            [], ["-L"], ["-q"], ["-q", "-x"], ["--query-gpu=name", "--format=csv"], ["-l", "1"], ["dmon", "-c", "1"], ["dmon"], ["pmon"],
            ["pmon", "-c", "2"], ["topo", "-m"], ["nvlink", "-s"], ["compute-policy", "-l"], ["--help"], ["--help-query-gpu"], ["-pm", "1"],
            ["-f", "/dev/full"])], [255], environment=world.without_mete())


def simulations_say_so():
    with World(up=False) as world:
        return refused(world, [("mete-simulate", SCENARIO), ("mete-simulate", "--json", SCENARIO), ("mete-simulate", "--help")], [4])


def loads_say_so():
    short = ("--seconds", "0.2", "--warmup", "0", "--cooldown", "0", "--kernel-ms", "1")
    with World() as world:
        return refused(world, [("mete-load", "compute", *short, "--json"), ("mete-load", "compute", *short),
                               ("mete-load", "compute", *short, "--processes", "2", "--json"), ("mete-load", "idle", "--seconds", "0"),
                               ("mete-load", "compute", "--help")], [4], environment=world.without_mete())


def a_simulation_without_a_file_is_a_wrong_line():
    with World(up=False) as world:
        for line in ([], ["--seed", "x", SCENARIO], ["/no/such/file"]):
            done = world.run("mete-simulate", *line)
            require(done.returncode == 2 and done.stderr.startswith("mete-simulate: usage: "), f"{line}: ended {done.returncode}", done.stderr)


if __name__ == "__main__":
    main([mete_says_so, a_node_is_up_or_down_even_if_nobody_can_read_it, nvidia_smi_says_so, simulations_say_so, loads_say_so,
          a_simulation_without_a_file_is_a_wrong_line])
