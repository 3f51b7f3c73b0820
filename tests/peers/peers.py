#!/usr/bin/env python3
"""Runs software of others on an emulated node and checks what it prints. Its binaries are not part of this project: name them.

  peers.py [--nvtop PATH] [--go-nvml PATH] [--device-plugin PATH] [--mig-parted PATH] [--feature-discovery PATH]
    or METE_PEER_NVTOP, METE_PEER_GO_NVML, METE_PEER_DEVICE_PLUGIN, METE_PEER_MIG_PARTED, METE_PEER_FEATURE_DISCOVERY

A peer whose binary is not given, or cannot run here, is named as skipped with the reason, never as passed. Exit status: 0
all that were given passed, 1 one failed, 77 none was given. The build folder comes from $METE_BUILD.
"""
import argparse
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import Failure, World, require  # noqa: E402

GPUS = "A100-SXM4-40GB,T4"
NAMES = ("NVIDIA A100-SXM4-40GB", "Tesla T4")


class Skipped(Exception):
    pass


def node_uuids(world):
    done = world.run("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader", environment=world.without_mete())
    require(done.returncode == 0, "nvidia-smi failed", done.stdout)
    return done.stdout.split()


def screen_of(command, environment, wanted, seconds=30):
    """What a full-screen program has written to its terminal when it holds all of `wanted`, or at the end of `seconds`."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, {**environment, "TERM": "xterm", "COLUMNS": "160", "LINES": "48"})
    text = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(word.encode() in text for word in wanted):
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # its end of the terminal is closed
                break
            text += part
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    os.close(terminal)
    return text.decode(errors="replace")


def nvtop(world, binary):
    """Names of the GPUs, and the process that holds memory on one."""
    environment = world.without_mete()
    holder = world.start("stranger", "alloc", "dlsym", "wait", stdin=-1, environment=environment)
    require(holder.stdout.readline(), "the process that holds memory does not answer")
    try:
        snapshot = world.run(binary, "-s", environment=environment)
        if snapshot.returncode == 0 and snapshot.stdout.lstrip().startswith("["):
            gpus = json.loads(snapshot.stdout)
            names = [gpu.get("device_name") for gpu in gpus]
            require(names == list(NAMES), "other GPUs than the node's", snapshot.stdout)
            return "snapshot of " + ", ".join(names)
        wanted = [*NAMES, str(holder.pid)]
        screen = screen_of([binary], environment, wanted)
        missing = [word for word in wanted if word not in screen]
        require(not missing, f"not on its screen: {missing}", screen[-2000:])
        return "screen with both GPUs and a process"
    finally:
        holder.stdin.close()
        holder.wait()


def go_nvml(world, binary):
    """go-nvml's example `devices`, or any program over go-nvml that prints every UUID."""
    done = world.run(binary, environment=world.without_mete())
    said = done.stdout + done.stderr
    require(done.returncode == 0, f"ended with {done.returncode}", said)
    missing = [uuid for uuid in node_uuids(world) if uuid not in said]
    require(not missing, f"did not print {missing}", said)
    return "every UUID"


def device_plugin(world, binary):
    """NVIDIA's device plugin finds the GPUs and offers them; a kubelet to register with is looked for after that."""
    root = str(world.node)
    command = [binary, "--mig-strategy=none", "--fail-on-init-error=true", f"--nvidia-driver-root={root}", "--device-discovery-strategy=nvml"]
    child = subprocess.Popen(command, env=world.without_mete(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = ""
        for line in child.stdout:
            said += line
            if "nvidia.com/gpu" in line and ("Starting GRPC server" in line or "Registered device plugin" in line):
                return "offers nvidia.com/gpu"
    finally:
        child.terminate()
        child.wait()
    if "permission denied" in said.lower() and "/var/lib/kubelet" in said:
        raise Skipped("it may not make its socket in /var/lib/kubelet/device-plugins here")
    raise Failure("it ended before it offered nvidia.com/gpu\n" + said)


LAYOUTS = """version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  mixed:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    - devices: [1]
      mig-enabled: false
  smallest:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
    - devices: [1]
      mig-enabled: false
"""


def with_the_nodes_bus(world):
    """Words to put before a command that looks for GPUs in /sys and /proc, which are the machine's: in a mount namespace of its own it
    finds the node's GPUs and NVIDIA's kernel module there."""
    done = world.run("nvidia-smi", "--query-gpu=pci.bus_id,pci.device_id", "--format=csv,noheader", environment=world.without_mete())
    bus = world.folder / "pci"
    for row in done.stdout.splitlines():
        address, identity = row.split(", ")
        folder = bus / address.lower()[4:]
        folder.mkdir(parents=True)
        files = {"vendor": "0x10de", "device": identity[:6], "class": "0x030200", "numa_node": "-1", "resource": "0x0 0x0 0x0"}
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
    modules = world.folder / "modules"
    modules.write_text("nvidia 0 0 - Live 0x0\n")
    script = f"mount --bind {bus} /sys/bus/pci/devices && {{ [ ! -e /proc/modules ] || mount --bind {modules} /proc/modules; }}"
    words = ["unshare", "-m", "sh", "-c", script + ' && exec "$@"', "sh"]
    if world.run(*words, "true").returncode != 0:
        raise Skipped("it looks for GPUs in /sys, and others than the machine's may not be put there")
    return words


def mig_parted(world, binary):
    """NVIDIA's mig-parted lays instances out, says what there is, and takes everything back."""
    layouts = world.folder / "layouts.yaml"
    layouts.write_text(LAYOUTS)
    inside = with_the_nodes_bus(world)

    def parted(*words, code=0):
        done = world.run(*inside, binary, *words, environment=world.without_mete())
        if "unable to read /proc/modules" in done.stderr:
            raise Skipped("it looks for the kernel module in /proc/modules, which is not here")
        require(done.returncode == code, f"mig-parted {words} ended {done.returncode}, not {code}", done.stdout, done.stderr)
        return done.stdout

    def cut():
        done = world.run("nvidia-smi", "-L", environment=world.without_mete())
        return sorted(line.split()[1] for line in done.stdout.splitlines() if line.startswith("  MIG "))

    for name, wanted in (("mixed", ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]), ("smallest", ["1g.5gb"] * 7), ("mixed", None), ("all-disabled", [])):
        parted("apply", "-f", layouts, "-c", name)
        parted("assert", "-f", layouts, "-c", name)
        require(wanted is None or cut() == wanted, f"{name} is not what nvidia-smi -L shows", cut())
    parted("assert", "-f", layouts, "-c", "mixed", code=1)
    require('"mig-enabled": false' in parted("export", "-o", "json"), "export does not say that MIG is off")
    return "three layouts applied, asserted, exported"


def feature_discovery(world, binary):
    """NVIDIA's gpu-feature-discovery labels the node by the parts that its GPU is in."""
    for words in (("-i", "0", "-mig", "1"), ("mig", "-cgi", "1g.5gb,1g.5gb,3g.20gb", "-C")):
        done = world.run("nvidia-smi", *words, environment=world.without_mete())
        require(done.returncode == 0, f"nvidia-smi {words} failed", done.stdout)
    labels = world.folder / "labels"
    done = world.run(binary, "--oneshot", "--mig-strategy=mixed", "--output-file", labels, environment=world.without_mete())
    require(done.returncode == 0 and labels.exists(), f"ended with {done.returncode}", done.stderr)
    said = dict(line.split("=", 1) for line in labels.read_text().splitlines() if "=" in line)
    wanted = {"mig-1g.5gb.count": "2", "mig-1g.5gb.memory": "4864", "mig-1g.5gb.multiprocessors": "14", "mig-3g.20gb.count": "1",
              "mig-3g.20gb.memory": "19968", "mig-3g.20gb.slices.ci": "3", "mig-3g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
              "gpu.product": "Tesla-T4"}
    wrong = [f"{name}: {said.get('nvidia.com/' + name)}, not {value}" for name, value in wanted.items() if said.get("nvidia.com/" + name) != value]
    require(not wrong, "other labels", *wrong)
    return "labels of two kinds of MIG devices and a whole GPU"


PEERS = {"nvtop": nvtop, "go-nvml": go_nvml, "device-plugin": device_plugin, "mig-parted": mig_parted, "feature-discovery": feature_discovery}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PEERS:
        parser.add_argument(f"--{name}", metavar="PATH")
    given = vars(parser.parse_args())
    passed = failed = 0
    for name, test in PEERS.items():
        variable = "METE_PEER_" + name.upper().replace("-", "_")
        path = given[name.replace("-", "_")] or os.environ.get(variable)
        if not path:
            print(f"skipped {name}: no binary given (--{name} or {variable})")
            continue
        if not os.access(path, os.X_OK):
            print(f"FAILED  {name}: {path} cannot be executed")
            failed += 1
            continue
        try:
            with World(GPUS) as world:
                note = test(world, str(pathlib.Path(path).resolve()))
            print(f"ok      {name}: {note}")
            passed += 1
        except Skipped as why:
            print(f"skipped {name}: {why}")
        except Exception as fault:  # noqa: BLE001 - a peer may fail in any way
            print(f"FAILED  {name}\n{type(fault).__name__}: {fault}")
            failed += 1
    sys.exit(1 if failed else 0 if passed else 77)


if __name__ == "__main__":
    main()
