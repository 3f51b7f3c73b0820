#!/usr/bin/env python3
"""Promises asked for at the command line: what is granted and by which instance, what is refused and why, with which exit status, and
that shares and instances survive a killed broker and a reboot."""
import json
import os
import re
import signal
import sqlite3
import subprocess

from harness import World, main, require, until
from kill_test import broker_of

A100 = "A100-SXM4-40GB"


def smi(world, *words):
    done = world.run("nvidia-smi", *words, environment=world.without_mete())
    require(done.returncode == 0, f"nvidia-smi {' '.join(words)} ended {done.returncode}", done.stdout, done.stderr)
    return done.stdout


def profiles_in(listing):
    return re.findall(r"MIG (\S+)\s+Device", listing)


def instances_are_chosen_by_what_they_really_hold():
    cases = [("4GiB", "1g.5gb", ""), ("5GiB", "1g.10gb", "1g.5gb holds only 4864 MiB, less than 5 GiB"), ("20GB", "3g.20gb", ""),
             ("20GiB", "7g.40gb", "would get by with 3g.20gb")]
    with World(gpus=A100) as world:
        found = smi(world, "-L")
        for memory, profile, said in cases:
            ask = ["--need", "fault-containment", "--memory", memory]
            plan = world.ok("run", *ask, "--dry-run", "--json").stdout
            chosen = [reason for reason in json.loads(plan)["reasons"] if reason["chosen"]]
            require(len(chosen) == 1 and chosen[0]["gives"].startswith(profile + " at "), f"{memory} does not give {profile}", plan)
            require(said in chosen[0]["why"], f"{memory}: '{said}' is not said", chosen[0]["why"])
            listing = world.ok("run", *ask, "--", "nvidia-smi", "-L").stdout
            require(profiles_in(listing) == [profile], f"nvidia-smi -L in the tenant does not show one {profile}", listing)
            until(lambda: smi(world, "-L") == found, "the GPU is as it was found")
    return f"{len(cases)} sizes"


def refused(world, status, names, *ask):
    done = world.mete("run", *ask, "--", "true")
    require(done.returncode == status, f"mete run {' '.join(ask)} ended {done.returncode}, not {status}", done.stderr)
    for name in names:
        require(name in done.stderr, f"mete run {' '.join(ask)}: '{name}' is not said", done.stderr)


def what_cannot_be_kept_is_refused():
    with World(gpus="T4") as world:
        refused(world, 3, ["fault-containment", "it has no MIG", "nearest: "], "--need", "fault-containment")
        refused(world, 3, ["400 GiB", "nearest: "], "--memory", "400GiB")
    with World(gpus=A100) as world:
        refused(world, 3, ["holds 400 GiB"], "--memory", "400GiB", "--need", "fault-containment")
        for i in range(7):
            world.ok("share", "create", "--name", f"s{i}", "--need", "fault-containment", "--memory", "4GiB")
        refused(world, 3, ["has no place for 1g.5gb", "no smaller request would succeed now"], "--need", "fault-containment", "--memory", "4GiB")
        device = re.findall(r"MIG-[0-9a-f-]+", smi(world, "-L"))[0]
        refused(world, 3, ["no effect on a MIG device"], "--gpu", device, "--via", "time-slicing")
        refused(world, 3, ["is not free: share s"], "--gpu", device, "--via", "mig")
        refused(world, 3, ["belongs to share s"], "--gpu", device, "--memory", "1GiB")
        for i in range(7):
            world.ok("share", "release", f"s{i}")
        require(not profiles_in(smi(world, "-L")), "instances are left", smi(world, "-L"))
    return "T4, a full A100, MIG devices"


def holes_are_said_with_what_could_be_moved():
    with World(gpus=A100) as world:
        for i in range(7):
            world.ok("share", "create", "--name", f"s{i}", "--via", "mig", "--memory", "4GiB")
        places = {world.json("share", "show", f"s{i}")["gpus"][0]["instance"]["start"]: f"s{i}" for i in range(7)}
        for start in (0, 1, 2, 4, 5):  # 3 and 6 stay, one in each half
            world.ok("share", "release", places[start])
        before = smi(world, "-L")
        refused(world, 3, ["has no place for", "it could be made possible: stop the tenant of 1g.5gb at", "of instances to fill again"],
                "--via", "mig", "--memory", "18GiB", "--compute", "57%,soft")
        require(smi(world, "-L") == before, "something was moved", before, smi(world, "-L"))
        for start in (3, 6):
            world.ok("share", "release", places[start])


def quotas_on_a_mig_device_shared_by_two():
    with World(gpus=A100) as world:
        smi(world, "-i", "0", "-mig", "1")
        smi(world, "mig", "-cgi", "3g.20gb", "-C")
        device = re.findall(r"MIG-[0-9a-f-]+", smi(world, "-L"))[0]
        found = smi(world, "-L")
        for name, memory in (("a", "6GiB"), ("b", "8GiB")):
            world.ok("share", "create", "--name", name, "--gpu", device, "--memory", memory)
            got = json.loads(world.ok("run", "--share", name, "--", "stranger", "alloc", "dlsym").stdout)
            limit = int(memory[0]) << 30
            require(got["error"] == 2 and limit - (1 << 30) < got["got"] <= limit, f"{name} got {got}, its quota is {memory}")
        refused(world, 3, ["a holds a quota of 6 GiB"], "--gpu", device, "--memory", "10GiB")
        refused(world, 3, ["is not free: ", "share a", "share b"], "--gpu", device, "--via", "mig")
        for name in ("a", "b"):
            world.ok("share", "release", name)
        # Had whole, it is adopted, and stays.
        listing = world.ok("run", "--need", "fault-containment", "--memory", "15GiB", "--", "nvidia-smi", "-L").stdout
        require(device in listing, "the instance that is there was not adopted", listing)
        until(lambda: not world.json("share", "list")["shares"], "the share has ended")
        require(smi(world, "-L") == found, "an instance that mete did not make was changed", found, smi(world, "-L"))


def book_of(world):
    return next((world.folder / "state").rglob("book.sqlite"))


def kill_the_broker(world):
    pid = broker_of(world)
    require(pid, "there is no broker to kill")
    os.kill(pid, signal.SIGKILL)
    until(lambda: broker_of(world) != pid, "the broker is dead")


def a_killed_broker_loses_nothing():
    with World(gpus=f"{A100},{A100},T4") as world:
        found = [smi(world, "-L"), smi(world, "compute-policy", "-l"), smi(world, "--query-gpu=compute_mode", "--format=csv")]
        world.ok("share", "create", "--name", "mig", "--gpu", "0", "--need", "fault-containment", "--memory", "4GiB")
        world.ok("share", "create", "--name", "slices", "--gpu", "1", "--via", "time-slicing", "--time-slice", "short")
        world.ok("share", "create", "--name", "whole", "--gpu", "2", "--via", "exclusive", "--processes", "1")
        load = world.start("mete", "run", "--share", "mig", "--", "mete-load", "compute", "--kernel-ms", "1", "--iterations", "1000", "--seconds", "1000",
                           "--progress")
        require(load.stdout.readline(), "the load has begun")
        instance = smi(world, "-L")
        kill_the_broker(world)
        require({s["name"] for s in world.json("share", "list")["shares"]} == {"mig", "slices", "whole"}, "a share was lost")
        for name in ("mig", "slices", "whole"):
            share = world.json("share", "show", name)
            require(share["in_force"], f"{name} is not in force after the broker was killed", json.dumps(share["evidence"], indent=1))
        until(lambda: len(world.json("share", "show", "mig")["processes"]) == 1, "the process of the share is known again")
        require(smi(world, "-L") == instance, "the instance was made anew", instance, smi(world, "-L"))
        load.terminate()
        load.wait(30)
        kill_the_broker(world)
        for name in ("mig", "slices", "whole"):
            until(lambda: world.mete("share", "release", name).returncode == 0, f"{name} can be released")
        now = [smi(world, "-L"), smi(world, "compute-policy", "-l"), smi(world, "--query-gpu=compute_mode", "--format=csv")]
        require(now == found, "the node is not as it was found", found, now)


def after_a_reboot_shares_are_made_again():
    with World(gpus=A100) as world:
        world.ok("share", "create", "--name", "stays", "--need", "fault-containment", "--memory", "4GiB")
        run = world.start("mete", "run", "--name", "ends", "--via", "mig", "--memory", "9GiB", "--", "sleep", "1000")
        until(lambda: len(world.json("share", "list")["shares"]) == 2, "both shares are there")
        run.send_signal(signal.SIGSTOP)  # or it would see to another broker
        kill_the_broker(world)
        run.kill()
        run.wait()
        for pid in world.processes():  # what `run` had started
            if b"sleep" in open(f"/proc/{pid}/cmdline", "rb").read():
                os.kill(pid, signal.SIGKILL)
        # Instances end with the driver; the book is of another boot.
        smi(world, "mig", "-dci")
        smi(world, "mig", "-dgi")
        with sqlite3.connect(book_of(world)) as book:
            book.execute("UPDATE boot SET id='another'")
            book.execute("UPDATE objects SET data=replace(data, (SELECT json_extract(data, '$.boot') FROM objects WHERE kind='instance' LIMIT 1), 'another')")
        shares = world.json("share", "list")["shares"]
        require([s["name"] for s in shares] == ["stays"], "not the shares that outlive a reboot", [s["name"] for s in shares])
        share = world.json("share", "show", "stays")
        require(share["in_force"], "it is not in force again", json.dumps(share["evidence"], indent=1))
        require(profiles_in(smi(world, "-L")) == ["1g.5gb"], "not its instance, and it alone", smi(world, "-L"))
        world.ok("share", "release", "stays")
        require(not profiles_in(smi(world, "-L")), "instances are left", smi(world, "-L"))


PARTED = """version: v1
mig-configs:
  halves:
    - device-filter: "0x20B010DE"
      devices: [0]
      mig-enabled: true
      mig-devices:
        "3g.20gb": 2
  mixed:
    - devices: all
      mig-enabled: true
      mig-devices:
        "3g.20gb": 1
        "1g.5gb": 2
  off:
    - devices: all
      mig-enabled: false
"""


def layouts_are_applied_from_mig_parteds_format():
    with World(gpus=A100) as world:
        found = smi(world, "-L")
        file = world.folder / "parted.yaml"
        file.write_text(PARTED)
        apply = lambda config, *more: world.json("apply", "--mig-parted", file, "--config", config, *more)
        require(world.mete("apply", "--mig-parted", file).returncode == 2, "which configuration is not asked")
        require("halves" in world.mete("apply", "--mig-parted", file, "--config", "no").stderr, "the names are not said")
        plan = apply("halves", "--dry-run")
        require(plan["changed"] and [p["profile"] for p in plan["gpus"][0]["add"]] == ["3g.20gb", "3g.20gb"], "the dry run does not say it", plan)
        require(smi(world, "-L") == found, "the dry run changed something")
        require(apply("halves")["changed"] and profiles_in(smi(world, "-L")) == ["3g.20gb", "3g.20gb"], "not applied", smi(world, "-L"))
        present = smi(world, "-L")
        require(not apply("halves")["changed"] and smi(world, "-L") == present, "applied again it changes something")
        # A share adopts one, and while it has it nothing is destroyed under it.
        world.ok("share", "create", "--name", "a", "--via", "mig", "--memory", "15GiB")
        require(smi(world, "-L") == present, "what was applied was not adopted")
        require(profiles_in(smi(world, "-L")) == ["3g.20gb"] * 2, "a share cut anew")
        done = world.mete("apply", "--mig-parted", file, "--config", "off")
        require(done.returncode == 3 and "share a has it" in done.stderr, "it was destroyed in use, or not said", done.stderr)
        require(apply("mixed")["changed"], "the other half is free to change")
        require(sorted(profiles_in(smi(world, "-L"))) == ["1g.5gb", "1g.5gb", "3g.20gb"], "not the wanted ones", smi(world, "-L"))
        exported = world.ok("inventory", "--mig-parted").stdout
        for line in ('mig-enabled: true', '"1g.5gb": 2', '"3g.20gb": 1', 'devices: [0]'):
            require(line in exported, f"the export does not say {line}", exported)
        again = world.folder / "export.yaml"
        again.write_text(exported)
        require(not world.json("apply", "--mig-parted", again)["changed"], "what was exported is not what is there", exported)
        world.ok("share", "release", "a")
        # What somebody else made stays.
        smi(world, "mig", "-cgi", "1g.5gb", "-C")
        done = world.mete("apply", "--mig-parted", file, "--config", "off")
        require(done.returncode == 3 and "mete did not make it" in done.stderr, "somebody else's instance was destroyed, or not said", done.stderr)
        stranger = [line for line in smi(world, "mig", "-lgi").splitlines() if "1g.5gb" in line]
        require(len(stranger) == 3, "something was changed all the same", *stranger)
        kill_the_broker(world)
        require(sorted(profiles_in(smi(world, "-L"))) == ["1g.5gb"] * 3 + ["3g.20gb"], "the layout did not outlive the broker", smi(world, "-L"))
        require(not world.json("share", "list")["shares"], "there are shares")  # by a new broker, which ends when it is idle


def rights_are_the_drivers_to_give():
    """As another user than the node's owner: MIG is refused for want of the right, and what is there can be used."""
    if os.geteuid() != 0:
        return "skipped: needs root to become another user"
    with World(gpus=A100) as world:
        os.chmod(world.folder, 0o755)
        other = world.folder / "other"
        for folder in (other, other / "run", other / "state"):
            folder.mkdir(mode=0o700)
            os.chown(folder, 65534, 65534)
        environment = {"XDG_RUNTIME_DIR": str(other / "run"), "XDG_STATE_HOME": str(other / "state"), "METE_DRIVER_ROOT": str(world.node)}

        def as_other(*words):
            return subprocess.run([str(w) for w in words], env={**world.environment, **environment}, capture_output=True, text=True, timeout=60,
                                  user=65534, group=65534, extra_groups=[])

        done = as_other("mete", "run", "--need", "fault-containment", "--memory", "4GiB", "--", "true")
        require(done.returncode == 4, f"without the right it ended {done.returncode}, not 4", done.stderr)
        require("needs more rights" in done.stderr, "what is lacking is not said", done.stderr)
        require("Disabled" in smi(world, "--query-gpu=mig.mode.current", "--format=csv,noheader"), "the mode was changed")
        until(lambda: not any(b"_broker" in open(f"/proc/{p}/cmdline", "rb").read() for p in pids_of(65534)), "its broker has ended", 30)
    return "exit 4 as uid 65534"


def pids_of(uid):
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == uid:
                found.append(int(entry))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main([instances_are_chosen_by_what_they_really_hold, what_cannot_be_kept_is_refused, holes_are_said_with_what_could_be_moved,
          quotas_on_a_mig_device_shared_by_two, a_killed_broker_loses_nothing, after_a_reboot_shares_are_made_again,
          layouts_are_applied_from_mig_parteds_format, rights_are_the_drivers_to_give])
