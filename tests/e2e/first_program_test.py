#!/usr/bin/env python3
"""The README's first program: built with mete/cuda.h and the link library, it runs under a quota and does not notice more than that."""
import subprocess

from harness import BUILD, ROOT, World, main, require


def first_program_under_a_quota():
    with World() as world:
        program = world.folder / "first"
        subprocess.run(["cc", "-I", BUILD / "include", ROOT / "docs/examples/first-program/first.c", "-L", BUILD / "lib", "-lcuda", "-o", program],
                       check=True)
        done = world.ok("run", "--memory", "4GiB", "--", program)
        require("of 4.00 GiB" in done.stdout, "it does not see its quota", done.stdout)
        require("100000 sums, 0 wrong" in done.stdout, "the kernel's result is wrong", done.stdout)
        require("MiB more before the driver refused" in done.stdout, "it was never refused", done.stdout)
        bare = world.run(program, environment=world.without_mete())
        require("of 40.00 GiB" in bare.stdout and bare.returncode == 0, "without mete it does not see the whole GPU", bare.stdout, bare.stderr)


if __name__ == "__main__":
    main([first_program_under_a_quota])
