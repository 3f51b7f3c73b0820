"""What the end-to-end tests share: a private world with its own runtime, state and emulated node.

    with World(gpus="A100-SXM4-40GB") as world:
        done = world.mete("run", "--memory", "4GiB", "--", "stranger", "alloc", "dlsym")
        ...

A world leaves nothing behind: leaving it checks that no process of it lives and that its folders are empty of sockets and
grants. The build folder comes from $METE_BUILD or the first argument's default build/release.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("METE_BUILD", ROOT / "build/release")).resolve()
BIN = BUILD / "bin"
LONG = bool(os.environ.get("METE_LONG_TESTS"))


class Failure(AssertionError):
    pass


def require(condition, message, *context):
    if not condition:
        raise Failure(message + "".join(f"\n  {c}" for c in context))


def until(condition, what, seconds=30):
    """Waits for a condition; the bound only keeps a broken run from hanging."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure(f"still not so after {seconds} s: {what}")


class World:
    def __init__(self, gpus="A100-SXM4-40GB", up=True, driver=None):
        self.gpus = gpus
        self.driver = ["--driver", driver] if driver else []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mete-e2e-"))
        self.node = self.folder / "node"
        self.up_at_start = up
        self.children = []
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TERM", "ASAN_OPTIONS", "TSAN_OPTIONS", "METE_LONG_TESTS")}
        (self.folder / "run").mkdir(mode=0o700)
        self.environment = {**keep, "PATH": f"{BIN}:{BUILD}/tests:{keep.get('PATH', '')}", "XDG_RUNTIME_DIR": str(self.folder / "run"),
                            "XDG_STATE_HOME": str(self.folder / "state")}

    def __enter__(self):
        if self.up_at_start:
            self.ok("emulate", "up", "--gpus", self.gpus, *self.driver, "--dir", str(self.node))
        return self

    def __exit__(self, kind, value, trace):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.up_at_start:
            self.mete("emulate", "down", "--dir", str(self.node))
        try:
            if kind is None:
                self.nothing_left()
        finally:
            for pid in self.processes():
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            shutil.rmtree(self.folder, ignore_errors=True)

    def mete(self, *arguments, **options):
        """Runs mete to its end; the result has returncode, stdout, stderr."""
        return self.run("mete", *arguments, **options)

    def run(self, *command, timeout=120, environment=None, **options):
        return subprocess.run([str(c) for c in command], env={**self.environment, **(environment or {})}, capture_output=True, text=True,
                              timeout=timeout, errors="replace", **options)

    def ok(self, *arguments, **options):
        done = self.mete(*arguments, **options)
        require(done.returncode == 0, f"mete {' '.join(map(str, arguments))} ended {done.returncode}", done.stdout, done.stderr)
        return done

    def json(self, *arguments):
        return json.loads(self.ok(*arguments, "--json").stdout)

    def start(self, *command, environment=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        child = subprocess.Popen([str(c) for c in command], env={**self.environment, **(environment or {})}, text=True, **options)
        self.children.append(child)
        return child

    def without_mete(self):
        """Environment of a program that uses the emulated node directly."""
        library = self.node / "usr/lib/x86_64-linux-gnu"
        return {"LD_LIBRARY_PATH": str(library), "PATH": f"{self.node}/usr/bin:{self.environment['PATH']}"}

    def node_memory_used(self, gpu=0):
        """What the node itself says is in use (bytes, to the MiB), seen from outside any share."""
        done = self.run("nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits", environment=self.without_mete())
        require(done.returncode == 0, "nvidia-smi outside mete failed", done.stdout, done.stderr)
        return int(done.stdout.strip()) << 20

    def processes(self):
        """Live processes that belong to this world, found by their environment."""
        mark = f"XDG_RUNTIME_DIR={self.folder / 'run'}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0") and "Z" != (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def leftovers(self):
        names = []
        for path in (self.folder / "run").rglob("*"):
            if path.is_socket() or path.name in ("libcuda.so.1", "broker.sock"):
                names.append(str(path.relative_to(self.folder)))
        if self.node.exists():
            names += [f"node/{p.name}" for p in self.node.iterdir()]
        return names

    def nothing_left(self):
        until(lambda: not self.processes(), "all processes of the world have ended", 30)
        require(not self.leftovers(), "left behind", *self.leftovers())


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def main(tests):
    """Runs the named tests in order; prints a line each; 1 if any failed. Arguments select by substring."""
    failed = 0
    for test in tests:
        if sys.argv[1:] and not any(word in test.__name__ for word in sys.argv[1:]):
            continue
        at = time.monotonic()
        try:
            note = test()
            print(f"ok      {test.__name__}  {time.monotonic() - at:.1f} s{'  ' + note if note else ''}", flush=True)
        except Exception as fault:  # noqa: BLE001 - a test may fail in any way
            failed += 1
            print(f"FAILED  {test.__name__}\n{type(fault).__name__}: {fault}", flush=True)
    sys.exit(1 if failed else 0)
