#!/usr/bin/env python3
"""Bad input gets a clear message, the right exit status, and leaves nothing behind."""
import json
import os
import pathlib
import signal
import sqlite3

from harness import ROOT, World, main, require, until


def shares(world):
    return [s["name"] for s in world.json("share", "list")["shares"]]


def every_bad_line_is_refused():
    cases = json.loads((ROOT / "tests/scenarios/bad_input.json").read_text())["cases"]
    with World("A100-SXM4-40GB,T4") as world:
        boards = world.folder / "boards"
        boards.mkdir()
        (boards / "boards.yaml").write_text("schema: mete/boards/1\nnonsense: [\n")
        fill = lambda text: text.replace("{FOLDER}", str(world.folder)).replace("{NODE}", str(world.node)).replace("{BOARDS}", str(boards))
        faults = []
        for case in cases:
            line = [fill(a) for a in case["line"]]
            done = world.mete(*line)
            last = (done.stderr.strip().splitlines() or [""])[-1]
            problem = []
            if done.returncode != case["status"]:
                problem.append(f"ended {done.returncode}, not {case['status']}")
            if case["word"] and not last.startswith(f"mete: {case['word']}: "):
                problem.append(f"last line does not start with 'mete: {case['word']}: '")
            problem += [f"does not name {fill(name)!r}" for name in case["names"] if fill(name) not in done.stderr]
            if problem:
                faults.append(f"mete {' '.join(line)}: {'; '.join(problem)}\n      stderr: {done.stderr.strip()}\n      stdout: {done.stdout.strip()[:200]}")
            if (world.folder / "other").exists():
                faults.append(f"mete {' '.join(line)}: left {world.folder / 'other'}")
        require(not faults, f"{len(faults)} of {len(cases)} cases", *faults)
        require(shares(world) == [], "a refused line left a share", shares(world))
    return f"{len(cases)} lines"


def duplicate_names_and_full_gpus_name_who_holds_what():
    with World() as world:
        world.ok("share", "create", "--name", "first", "--memory", "30GiB")
        again = world.mete("share", "create", "--name", "first", "--memory", "1GiB")
        require(again.returncode == 3 and "first" in again.stderr, "a taken name was not refused with 3", again.stderr)
        more = world.mete("share", "create", "--name", "second", "--memory", "20GiB")
        require(more.returncode == 3, "quotas add up to more than the GPU has", more.stdout, more.stderr)
        require("first" in more.stderr and "30 GiB" in more.stderr, "does not say who holds what", more.stderr)
        require(shares(world) == ["first"], "the refused share is there", shares(world))
        half = world.mete("share", "create", "--name", "half", "--memory", "1GiB", "--compute", "60%")
        require(half.returncode == 0, "60 % was refused", half.stderr)
        over = world.mete("share", "create", "--name", "over", "--memory", "1GiB", "--compute", "50%")
        require(over.returncode == 3 and "half" in over.stderr, "compute promises above 100 % were accepted", over.stderr)
        for name in ("first", "half"):
            world.ok("share", "release", name)


def no_driver_is_said_with_the_ways_on():
    with World(up=False) as world:
        for command in (("inventory",), ("run", "--", "true"), ("share", "create", "--name", "x")):
            done = world.mete(*command)
            require(done.returncode == 4 and "mete emulate up" in done.stderr, f"{command}: no way on", done.stdout, done.stderr)


def two_nodes_up_and_none_named():
    with World("T4") as world:
        other = world.folder / "second"
        world.ok("emulate", "up", "--gpus", "T4", "--dir", other)
        done = world.mete("inventory")
        require(done.returncode == 2 and str(other) in done.stderr and str(world.node) in done.stderr, "does not list both nodes", done.stderr)
        world.ok("inventory", "--driver-root", str(other))
        world.ok("emulate", "down", "--dir", other)
        require(not other.exists(), "down left the node's folder")


def interrupted_run_leaves_nothing():
    with World() as world:
        for number in (signal.SIGINT, signal.SIGTERM):
            child = world.start("mete", "run", "--memory", "1GiB", "--", "sleep", "600", start_new_session=True)
            until(lambda: shares(world), "the share is there")
            os.killpg(child.pid, number) if number == signal.SIGINT else child.send_signal(number)
            child.wait(30)
            require(child.returncode in (-number, 128 + number), f"ended {child.returncode} on signal {number}")
            until(lambda: not shares(world), "the share has gone")


def own_status_of_the_command():
    with World("T4") as world:
        for line, status in ((["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137)):
            done = world.mete("run", "--memory", "1GiB", "--", *line)
            require(done.returncode == status, f"{line} ended {done.returncode}, not {status}", done.stderr)


def scribbled_book_is_said_and_nothing_is_lost():
    with World("T4") as world:
        world.ok("share", "create", "--name", "kept", "--memory", "1GiB")
        world.ok("share", "release", "kept")
        books = list((world.folder / "state").rglob("book.sqlite"))
        require(books, "no book found", *(world.folder / "state").rglob("*"))
        until(lambda: not any("_broker" in pathlib.Path(f"/proc/{p}/cmdline").read_text() for p in world.processes() if pathlib.Path(f"/proc/{p}/cmdline").exists()), "the broker has ended", 60)
        for book in books:
            for extra in (f"{book}-wal", f"{book}-shm"):
                pathlib.Path(extra).unlink(missing_ok=True)
            book.write_bytes(b"this is not a book" * 1000)
        done = world.mete("share", "list")
        require(done.returncode in (1, 3, 4) and str(books[0]) in done.stderr, "a scribbled book was not named", f"ended {done.returncode}", done.stdout, done.stderr)
        require(books[0].read_bytes().startswith(b"this is not a book"), "the scribbled book was overwritten")
        books[0].unlink()
        world.ok("share", "list")


def book_schema_is_a_real_database():
    with World("T4") as world:
        world.ok("share", "create", "--name", "kept", "--memory", "1GiB")
        books = list((world.folder / "state").rglob("book.sqlite"))
        with sqlite3.connect(f"file:{books[0]}?mode=ro", uri=True) as book:
            require(book.execute("pragma journal_mode").fetchone()[0] == "wal", "the book is not in WAL mode")
        world.ok("share", "release", "kept")


if __name__ == "__main__":
    main([every_bad_line_is_refused, duplicate_names_and_full_gpus_name_who_holds_what, no_driver_is_said_with_the_ways_on,
          two_nodes_up_and_none_named, interrupted_run_leaves_nothing, own_status_of_the_command,
          scribbled_book_is_said_and_nothing_is_lost, book_schema_is_a_real_database])
