#!/usr/bin/env python3
"""`mete top`: once as text and JSON, and live on a terminal, which is left as it was found."""
import json
import os
import pty
import select
import signal
import subprocess
import termios

from harness import BIN, World, main, require, until

GIB = 1 << 30


def once_as_text_and_json():
    with World(gpus="A100-SXM4-40GB,T4") as world:
        bare = world.json("top")
        require([gpu["promised_bytes"] for gpu in bare["gpus"]] == [0, 0] and bare["emulated"], "an empty node", bare)
        world.ok("share", "create", "--name", "a", "--gpu", "0", "--memory", "8GiB", "--compute", "30%")
        world.ok("share", "create", "--name", "b", "--gpu", "0", "--memory", "20GiB")
        child = world.start("mete", "run", "--share", "a", "--", "mete-load", "compute", "--kernel-ms", "1", "--seconds", "1000")
        until(lambda: world.json("top")["gpus"][0]["shares"][0]["used_bytes"] > 0, "the share's use is seen")
        until(lambda: (world.json("top")["gpus"][0]["shares"][0]["measured_percent"] or 0) > 20, "its time is seen")
        gpu = world.json("top")["gpus"][0]
        require(gpu["promised_bytes"] == 28 * GIB and 0 < gpu["free_bytes"] <= gpu["total_bytes"] - 28 * GIB, "promised and free", gpu)
        require(gpu["used_bytes"] >= gpu["shares"][0]["used_bytes"] and gpu["shares"][0]["processes"] == 1, "used", gpu)
        text = world.ok("top", "--once").stdout
        require("emulated" in text and "28 GiB promised" in text and "30 % hard" in text and "GPU 1  Tesla T4" in text, text)
        child.terminate()
        child.wait(30)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, world, *words):
        self.own, other = pty.openpty()
        self.before = termios.tcgetattr(other)
        self.child = subprocess.Popen([BIN / "mete", *words], stdin=other, stdout=other, stderr=other, start_new_session=True,
                                      env={**world.environment, "LC_ALL": "C.UTF-8"})
        self.other, self.seen = other, b""

    def until(self, text):
        def found():
            while select.select([self.own], [], [], 0)[0]:
                self.seen += os.read(self.own, 65536)
            return text in self.seen

        until(found, f"{text} on the terminal; seen: {self.seen[-2000:]}")

    def left_as_found(self):
        status = self.child.wait(30)
        self.until(b"\x1b[?1049l")
        require(self.seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l") or status != 0, "something came after the screen", self.seen[-200:])
        require(termios.tcgetattr(self.other) == self.before, "the terminal is not as it was")
        os.close(self.own)
        os.close(self.other)
        return status


def live_on_a_terminal():
    with World() as world:
        world.ok("share", "create", "--name", "team", "--memory", "8GiB")
        for end in (b"q", b"\x1b", b"\x04", signal.SIGTERM, signal.SIGINT):
            terminal = Terminal(world, "top", "--interval", "0.1")
            terminal.until("team".encode())
            terminal.until("░".encode())
            if isinstance(end, bytes):
                os.write(terminal.own, end)
            else:
                terminal.child.send_signal(end)
            require(terminal.left_as_found() == 0, f"ended by {end!r}")
        # it follows what happens, and says what ended it
        terminal = Terminal(world, "top", "--interval", "0.1")
        terminal.until(b"team")
        world.ok("share", "create", "--name", "newcomer", "--memory", "4GiB")
        terminal.until(b"newcomer")
        world.ok("emulate", "down")
        require(terminal.left_as_found() == 4, "the node has gone")
        require(b"mete: lacks:" in terminal.seen, "it says why it ended", terminal.seen[-300:])


def stopped_and_continued():
    with World() as world:
        terminal = Terminal(world, "top", "--interval", "0.1")
        terminal.until(b"q ends")
        terminal.child.send_signal(signal.SIGTSTP)
        terminal.until(b"\x1b[?1049l")
        until(lambda: open(f"/proc/{terminal.child.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T", "it is stopped")
        terminal.seen = b""
        terminal.child.send_signal(signal.SIGCONT)
        terminal.until(b"\x1b[?1049h")
        terminal.until(b"q ends")
        os.write(terminal.own, b"q")
        require(terminal.left_as_found() == 0, "ended")


def wrong_lines_are_refused():
    with World() as world:
        for words in (["--interval", "0"], ["--interval", "x"], ["more"], ["--interval", "-1"]):
            require(world.mete("top", *words).returncode == 2, f"top {words}")


if __name__ == "__main__":
    main([once_as_text_and_json, live_on_a_terminal, stopped_and_continued, wrong_lines_are_refused])
