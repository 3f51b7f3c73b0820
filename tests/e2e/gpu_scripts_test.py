#!/usr/bin/env python3
"""The scripts for machines with a GPU: without one they say so and pass nothing; on an emulated node each check runs."""
import pathlib

from harness import BUILD, ROOT, World, main, require

SCRIPT = ROOT / "tests/gpu/interception.sh"


def without_a_gpu_it_is_skipped_with_its_reason():
    if pathlib.Path("/dev/nvidiactl").exists():
        return "skipped: there is a GPU here"
    with World(up=False) as world:
        done = world.run(SCRIPT, environment={"METE_BUILD": str(BUILD)})
        require(done.returncode == 77 and "no NVIDIA GPU here" in done.stdout, "not skipped", done.returncode, done.stdout, done.stderr)


def on_an_emulated_node_every_check_runs():
    with World() as world:
        done = world.run(SCRIPT, "--driver-root", world.node, "--seconds", 3, environment={"METE_BUILD": str(BUILD)}, timeout=600)
        lines = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[1:] if len(line.split()) > 1}
        for check in ("look-ups", "granule", "context"):
            require(lines.get(check) == "held", f"{check} was not held", done.stdout, done.stderr)
        # By the wall clock of a busy machine, and with a runtime that the emulated driver does not serve: seen, not judged.
        require(lines.get("shares") in ("held", "BROKEN") and lines.get("runtime") in ("skipped", "held"), "a check did not run", done.stdout, done.stderr)
        require(done.returncode == (1 if "BROKEN" in lines.values() else 0), "the status does not tell", done.returncode, done.stdout)
    return " ".join(f"{check}: {word}" for check, word in lines.items())


if __name__ == "__main__":
    main([without_a_gpu_it_is_skipped_with_its_reason, on_an_emulated_node_every_check_runs])
