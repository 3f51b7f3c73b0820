#!/usr/bin/env python3
"""Many kills of tenants: no call of a survivor waits longer than twice what is usual on this machine. METE_KILLS says how
many."""
import os
import random

from harness import main, require
from kill_test import waits

KILLS = int(os.environ.get("METE_KILLS", 10_000))


def the_longest_wait_is_at_most_twice_the_usual():
    seed = int(os.environ.get("METE_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}", flush=True)
    killed, ended, late = waits(KILLS, seed)
    note = f"{KILLS} kills, longest call {max(killed):.1f} ms with kills, {max(ended):.1f} ms without, timer late by {late:.1f} ms (p99), seed {seed}"
    if late > 3.0:
        return f"{note}; the comparison is VOID: this machine was too busy to make it"
    require(max(killed) <= 2 * max(ended), "a call waited longer than twice what is usual", note)
    return note


if __name__ == "__main__":
    main([the_longest_wait_is_at_most_twice_the_usual])
