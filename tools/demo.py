#!/usr/bin/env python3
"""The story of ./demo: what a shared GPU does without mete, and what it does with it. Usage: demo.py BUILD_FOLDER"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SECONDS = 4
GIB = 1 << 30
BOARD = "A100-SXM4-40GB"


def say(text=""):
    print(text, flush=True)


def chapter(text):
    say(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}")


class Waiting:
    """Prints a dot a second while something long runs, after a line that says what."""

    def __init__(self, text):
        print(f"  {text} ", end="", flush=True)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.loop, daemon=True)

    def loop(self):
        while not self.done.wait(1.0):
            print(".", end="", flush=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        print(flush=True)


class Lateness:
    """How late a 5 ms sleep ends while something else runs: late, the machine is too busy to time anything by."""
    MOST_MS = 3.0

    def __init__(self):
        self.late, self.done = [], threading.Event()
        self.thread = threading.Thread(target=self.loop, daemon=True)

    def loop(self):
        while not self.done.is_set():
            due = time.monotonic() + 0.005
            time.sleep(0.005)
            self.late.append((time.monotonic() - due) * 1000)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def p99_ms(self):
        ordered = sorted(self.late) or [0.0]
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


class Demo:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mete-demo-"))
        (self.folder / "run").mkdir(mode=0o700)
        self.environment = {**os.environ, "PATH": f"{BUILD}/bin:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(self.folder / "run"),
                            "XDG_STATE_HOME": str(self.folder / "state")}
        for name in ("METE_DRIVER_ROOT", "LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
            self.environment.pop(name, None)
        self.children = []
        self.rows = []
        self.busy = False
        self.emulated = False
        self.bare = {}

    def run(self, *command, environment=None, check=True):
        done = subprocess.run([str(c) for c in command], env={**self.environment, **(environment or {})}, capture_output=True, text=True, timeout=300)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def start(self, *command, environment=None):
        child = subprocess.Popen([str(c) for c in command], env={**self.environment, **(environment or {})}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def row(self, promise, asked, measured, held):
        self.rows.append((promise, asked, measured, "held" if held else "BROKEN"))

    # -- the node ------------------------------------------------------------------------------------------------
    def node(self):
        found = self.run("mete", "inventory", "--json", check=False)
        if found.returncode == 0:
            say("This machine has an NVIDIA driver; the demo uses GPU 0.")
            return
        self.emulated = True
        chapter(f"A GPU node: one emulated {BOARD} (this machine has no NVIDIA GPU)")
        self.run("mete", "emulate", "up", "--gpus", BOARD, "--dir", self.folder / "node")
        for line in self.run("mete", "emulate", "env", "--dir", self.folder / "node").stdout.splitlines():
            if line.startswith("export "):
                name, value = line[7:].split("=", 1)
                self.bare[name] = subprocess.run(["bash", "-c", f"printf %s {value}"], env=self.environment, capture_output=True, text=True).stdout
        say(self.run("mete", "inventory").stdout.rstrip())

    def calibrate(self):
        """Finds the kernel that takes 1 ms alone, so that work done under contention can be compared."""
        said = json.loads(self.run("mete-load", "calibrate", "--kernel-ms", "1", "--json", environment=self.bare).stdout)
        self.kernel = ["--iterations", said["iterations"], "--kernel-ms", said["kernel_ms"]]

    def load(self, seconds=SECONDS, processes=1):
        return ["mete-load", "compute", *self.kernel, "--depth", "8", "--seconds", seconds, "--processes", processes, "--json"]

    def side_by_side(self, text, *commands):
        """Runs the commands together; each one's part of the GPU's time in percent."""
        with Waiting(text):
            children = [self.start(*command, environment=environment) for command, environment in commands]
            answers = [child.communicate(timeout=300) for child in children]
        parts = []
        for child, (out, err) in zip(children, answers):
            if child.returncode != 0:
                raise RuntimeError(f"mete-load ended {child.returncode}\n{out}{err}")
            said = json.loads(out)
            parts.append(100.0 * said["gpu_ms"] / (1000.0 * said["seconds"]))
        return parts

    def hold_to(self, text, rows, *commands):
        """Measures shares against (asked, percent) rows, ± 5 points; again, at most twice, where the machine was too busy to tell."""
        for attempt in range(3):
            with Lateness() as lateness:
                parts = self.side_by_side(text, *commands)
            say("    " + ", ".join(f"{asked[0]} {part:.1f} %" for (asked, _), part in zip(rows, parts)))
            if attempt == 2 or lateness.p99_ms() <= Lateness.MOST_MS or all(abs(part - percent) <= 5 for (_, percent), part in zip(rows, parts)):
                break
            say(f"    This machine was busy with other work (a timer of ours was {lateness.p99_ms():.0f} ms late): once more.")
        for (asked, percent), part in zip(rows, parts):
            self.row("compute-cap", asked, f"{part:.1f} %", abs(part - percent) <= 5)
        if lateness.p99_ms() > Lateness.MOST_MS and any(abs(part - percent) > 5 for (_, percent), part in zip(rows, parts)):
            self.busy = True

    def hog(self, *prefix, environment=None, api="alloc"):
        done = self.run(*prefix, "mete-load", "hog", "--api", api, "--json", environment=environment, check=False)
        return json.loads(done.stdout)

    # -- without mete --------------------------------------------------------------------------------------------
    def without(self):
        chapter("Without mete")
        self.calibrate()
        child = self.start("mete-load", "hog", "--api", "alloc", "--hold", "60", "--json", environment=self.bare)
        got = json.loads(child.stdout.readline())
        neighbour = self.run("mete-load", "idle", "--memory", "1GiB", "--seconds", "0", environment=self.bare, check=False)
        child.kill()
        child.wait()
        say(f"  One program takes {got['bytes'] / GIB:.1f} GiB; its neighbour asks for 1 GiB: {'refused' if neighbour.returncode else 'granted'}.")
        if neighbour.returncode == 0:
            raise RuntimeError("the control did not starve its neighbour")
        ten, one = self.side_by_side("One process against ten, for a few seconds", (self.load(processes=10), self.bare), (self.load(), self.bare))
        say(f"  Ten processes take {ten:.0f} % of the GPU, the one is left {one:.0f} %: whoever starts more gets more.")
        if ten < 75:
            raise RuntimeError("the control shared fairly; the comparison below would show nothing")

    # -- with mete -----------------------------------------------------------------------------------------------
    def with_mete(self):
        chapter("With mete: A asks for 8 GiB and 30 %, B for 20 GiB and 70 %")
        self.run("mete", "share", "create", "--name", "a", "--memory", "8GiB", "--compute", "30%")
        self.run("mete", "share", "create", "--name", "b", "--memory", "20GiB", "--compute", "70%")
        say(self.run("mete", "share", "list").stdout.rstrip())
        a, b = ("mete", "run", "--share", "a", "--"), ("mete", "run", "--share", "b", "--")

        hog = self.hog(*a)
        say(f"  A hog in A gets {hog['bytes'] / GIB:.2f} GiB, then: {hog['error']}.")
        self.row("memory-quota", "A: 8 GiB", f"{hog['bytes'] / GIB:.2f} GiB, then out of memory", 0.9 * 8 * GIB < hog["bytes"] <= 8 * GIB)
        child = self.start(*a, "mete-load", "hog", "--api", "alloc", "--hold", "60", "--json")
        child.stdout.readline()
        hog = self.hog(*b)
        child.send_signal(signal.SIGTERM)
        child.wait()
        self.row("memory-quota", "B: 20 GiB, beside A's hog", f"{hog['bytes'] / GIB:.2f} GiB, then out of memory", 0.95 * 20 * GIB < hog["bytes"] <= 20 * GIB)

        over = self.run("mete", "share", "create", "--name", "c", "--memory", "20GiB", check=False)
        say("  A third tenant asks for 20 GiB: " + over.stderr.strip().splitlines()[-1])
        self.row("no overcommitment", "C: 20 GiB", "refused" if over.returncode == 3 else f"exit {over.returncode}", over.returncode == 3)

        for text, processes, name in (("A and B both busy", 1, "one process each"), ("A opens ten processes", 10, "ten in A, one in B")):
            self.hold_to(text, [(f"A: 30 %, {name}", 30), (f"B: 70 %, {name}", 70)],
                         ((*a, *self.load(processes=processes)), None), ((*b, *self.load()), None))
        self.hold_to("A alone: a cap holds although the GPU is free", [("A: 30 %, alone", 30)], ((*a, *self.load()), None))
        self.run("mete", "share", "release", "a")
        self.run("mete", "share", "release", "b")

    def table(self):
        mark = "emulated" if self.emulated else "measured on this GPU"
        chapter(f"Promised and measured ({mark})")
        lines = [("promise", "asked", "measured", "")] + self.rows
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        for line in lines:
            say("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        broken = [r for r in self.rows if r[3] != "held"]
        say(f"\n{len(self.rows) - len(broken)} of {len(self.rows)} held.")
        if self.busy:
            say("The machine was busy with other work while shares were measured: run ./demo again when it is quiet.")
        if self.emulated:
            say("The GPU was emulated: this shows mete's decisions at work, not the speed of a real card.")
        return 1 if broken else 0

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        if self.emulated:
            self.run("mete", "emulate", "down", "--dir", self.folder / "node", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    demo = Demo()
    try:
        demo.node()
        demo.without()
        demo.with_mete()
        return demo.table()
    except KeyboardInterrupt:
        say("\ninterrupted")
        return 130
    except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as fault:
        say(f"\nmete demo: fault: {fault}")
        return 1
    finally:
        demo.end()


if __name__ == "__main__":
    sys.exit(main())
