#!/usr/bin/env python3
"""MIG as a person at an emulated node has it: nvidia-smi cuts a GPU, programs run on the parts, nvidia-smi shows them and takes the parts
away again. And what the parts are for: a neighbour that fills its memory, takes all bandwidth or faults is not noticed in the next
instance, and is without MIG."""
import json
import os
import re

from harness import World, main, require, until

BOARD = "A100-SXM4-40GB"


def smi(world, *words, code=0, **options):
    done = world.run("nvidia-smi", *words, environment=world.without_mete(), **options)
    require(done.returncode == code, f"nvidia-smi {' '.join(map(str, words))} ended {done.returncode}, not {code}", done.stdout, done.stderr)
    return done.stdout


def devices(world):
    """[(name, uuid)] of the MIG devices that -L shows."""
    return re.findall(r"^  MIG (\S+) +Device +\d+: \(UUID: (MIG-[0-9a-f-]+)\)$", smi(world, "-L"), re.M)


def tenant(world, *words, visible=None, code=0):
    extra = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = world.run("tenant", *words, environment={**world.without_mete(), **extra}, input="")
    require(done.returncode == code, f"tenant {words} ended {done.returncode}, not {code}", done.stdout, done.stderr)
    return json.loads(done.stdout)


def start(world, *words, visible=None):
    extra = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    child = world.start("tenant", *words, stdin=-1, environment={**world.without_mete(), **extra})
    line = child.stdout.readline()
    require(line and "error" not in json.loads(line), f"tenant {words} did not begin", line)
    return child


def end(child):
    child.kill()
    child.wait()


def a_person_cuts_a_gpu_runs_programs_and_puts_it_back():
    with World(f"{BOARD},T4") as world:
        before = smi(world, "-q", "-d", "MEMORY,ECC")
        require("No MIG-enabled devices found." in smi(world, "mig", "-lgi", code=6), "instances before there is MIG")
        require("Enabled MIG Mode" in smi(world, "-i", 0, "-mig", 1), "MIG mode was not switched on")
        require(smi(world, "--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader") == "Enabled, Enabled\n[N/A], [N/A]\n", "modes")
        profiles = smi(world, "mig", "-lgip")
        require(re.search(r"\|   0  MIG 1g\.5gb +19 +7/7 +4\.75 +No +14 ", profiles), "the profile 1g.5gb is not 19", profiles)
        require("GPU  0 Profile ID  9 Placements: {0,4}:4\n" in smi(world, "mig", "-lgipp"), "placements of 3g.20gb")
        require("No GPU instances found: Not Found" in smi(world, "mig", "-lgi", code=6), "instances that nobody made")
        require("No MIG devices found" in smi(world, "-i", 0), "the table")
        tenant(world, "see", visible="0", code=4)

        made = smi(world, "mig", "-cgi", "9:4,1g.5gb,MIG 2g.10gb", "-C")
        require(made.count("Successfully created GPU instance ID") == 3 and made.count("Successfully created compute instance ID  0") == 3, made)
        require("Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)\n" in made, "not where it was asked for", made)
        rows = re.findall(r"^\|   0  MIG (\S+) +(\d+) +(\d+) +(\d+):(\d+) +\|$", smi(world, "mig", "-lgi"), re.M)
        require([row[:2] for row in rows] == [("1g.5gb", "19"), ("2g.10gb", "14"), ("3g.20gb", "9")], "GPU instances", rows)
        require(rows[2][2:] == ("2", "4", "4"), "3g.20gb is not the upper half", rows)
        require(len(re.findall(r"^\|   0 +\d+ +MIG ", smi(world, "mig", "-lci"), re.M)) == 3, "compute instances")
        listed = devices(world)
        require(sorted(name for name, _ in listed) == ["1g.5gb", "2g.10gb", "3g.20gb"], "-L", listed)
        full = smi(world, "mig", "-cgi", 0, code=255)
        require("using profile 0: Insufficient Resources\nFailed to create GPU instances: Insufficient Resources\n" in full, full)

        # CUDA sees one compute instance of each GPU instance, and the whole T4.
        seen = tenant(world, "see")["devices"]
        require(len(seen) == 4, "CUDA sees other devices", *seen)
        for name, uuid in listed:
            alone = tenant(world, "see", visible=uuid)["devices"]
            require(len(alone) == 1 and "MIG-" + alone[0]["uuid"] == uuid and alone[0]["name"] == f"NVIDIA {BOARD} MIG {name}", "by its UUID", alone)
        small = next(uuid for name, uuid in listed if name == "1g.5gb")
        memory = tenant(world, "free", visible=small)
        require(memory["devices"] == 1 and memory["total"] == 4864 << 20, "the memory of 1g.5gb", memory)
        device = tenant(world, "see", visible=small)["devices"][0]
        require(device["sms"] == 14 and device["bytes"] == 4864 << 20, "SMs and memory of 1g.5gb", device)

        user = start(world, "hold", 1 << 30, visible=small)
        instance, compute = re.search(r"^\|    0 +(\d+) +(\d+) +%d +C " % user.pid, smi(world), re.M).groups()
        require((instance, compute) == (next(r[2] for r in rows if r[0] == "1g.5gb"), "0"), "the process is shown elsewhere", instance, compute)
        require(f"GPU instance ID                   : {instance}\n" in smi(world, "-q", "-i", 0), "-q")
        used = re.search(r"^\|  0 +%s   0 +\d+ +\| +(\d+)MiB /  4864MiB " % instance, smi(world), re.M)
        require(used and int(used.group(1)) >= 1024, "the instance's memory in use", smi(world))
        busy = smi(world, "mig", "-dci", "-gi", instance, code=255)
        require("In use by another client\nFailed to destroy compute instances: In use by another client\n" in busy, busy)
        require("In use by another client" in smi(world, "mig", "-dgi", "-gi", instance, code=255), "an instance with a compute instance went")
        end(user)
        until(lambda: str(user.pid) not in smi(world), "the process is gone from the table")

        require(smi(world, "mig", "-dci").count("Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID") == 3, "-dci")
        require(smi(world, "mig", "-dgi").count("Successfully destroyed GPU instance ID") == 3, "-dgi")
        require("Disabled MIG Mode" in smi(world, "-i", 0, "-mig", 0), "MIG mode was not switched off")
        after = smi(world, "-q", "-d", "MEMORY,ECC")
        unstamped = [re.sub(r"Timestamp.*", "", text) for text in (before, after)]
        require(unstamped[0] == unstamped[1], "the node is not as it was found", *unstamped)
        require(len(tenant(world, "see")["devices"]) == 2, "CUDA does not see the whole GPU again")


def compute_instances_share_the_memory_of_their_gpu_instance():
    with World(BOARD) as world:
        smi(world, "-mig", 1)
        smi(world, "mig", "-cgi", "3g.20gb")
        require(devices(world) == [], "a GPU instance alone is a device")
        gi = re.search(r"^\|   0  MIG 3g.20gb +9 +(\d+) ", smi(world, "mig", "-lgi"), re.M).group(1)
        require(re.search(r"^\|   0 +%s +MIG 1c\.3g\.20gb +0 +3/3 +14 " % gi, smi(world, "mig", "-lcip", "-gi", gi), re.M), "-lcip")
        require(f"GPU  0 GI {int(gi):2d} Profile ID  0 Placements: {{0,1,2}}:1\n" in smi(world, "mig", "-lcipp"), "-lcipp")
        smi(world, "mig", "-cci", "0,1c.3g.20gb,0", "-gi", gi)
        listed = devices(world)
        require([name for name, _ in listed] == ["1c.3g.20gb"] * 3, "three devices", listed)
        require(len(tenant(world, "see")["devices"]) == 1, "CUDA sees more than one compute instance of a GPU instance")
        first = start(world, "hold", 15 << 30, visible=listed[0][1])
        require(tenant(world, "hold", 8 << 30, visible=listed[1][1], code=4)["error"] == 2, "its memory was not taken by the other compute instance")
        end(first)
        smi(world, "mig", "-dci", "-ci", "0,2", "-gi", gi)
        require(len(devices(world)) == 1, "the one that was left")


def memory_goes_to_compute_instances_of_the_same_gpu_instance_only():
    with World(BOARD) as world:
        smi(world, "-mig", 1)
        smi(world, "mig", "-cgi", "3g.20gb,3g.20gb")
        smi(world, "mig", "-cci", "0,0")
        devices_of = [uuid for _, uuid in devices(world)]  # two of one GPU instance, two of the other
        for number, (taker, error) in enumerate(((devices_of[1], 0), (devices_of[2], 101))):
            place = world.folder / f"handover{number}"
            giver = start(world, "give", 64 << 20, place, visible=devices_of[0])
            said = tenant(world, "take", place, visible=taker)
            require(said["error"] == error, "across compute instances" if error == 0 else "across GPU instances", said)
            giver.communicate("\n", timeout=60)


def neighbours(world, cut):
    """What each of two tenants names its device by: two instances of a GPU, or both the GPU."""
    if not cut:
        return ["0", "0"]
    smi(world, "-mig", 1)
    smi(world, "mig", "-cgi", "3g.20gb,3g.20gb", "-C")
    return [uuid for _, uuid in devices(world)]


def a_neighbour_that_fills_its_memory_is_noticed_only_without_mig():
    for cut in (True, False):
        with World(BOARD) as world:
            here, there = neighbours(world, cut)
            room = tenant(world, "free", visible=there)["free"]
            filler = start(world, "hold", room - (256 << 20), visible=there)
            after = tenant(world, "hold", 4 << 30, visible=here, code=0 if cut else 4)
            require(cut or after["error"] == 2, "not out of memory", after)
            end(filler)


def a_bandwidth_hog_next_door_is_noticed_only_without_mig():
    notes = []
    for cut in (True, False):
        with World(BOARD) as world:
            here, there = neighbours(world, cut)
            alone = tenant(world, "stream", 200, visible=here)["ms"]
            hog = start(world, "hog", visible=there)
            beside = tenant(world, "stream", 200, visible=here)["ms"]
            end(hog)
            require(beside < 1.05 * alone if cut else beside > 1.6 * alone, f"with{'' if cut else 'out'} MIG", alone, beside)
            notes.append(f"{'instances' if cut else 'one GPU'}: {beside / alone:.2f} x")
    return ", ".join(notes)


def a_fault_next_door_is_noticed_only_without_mig():
    # Xid 44 takes down whatever is at work on the engine it befalls: the GPU's, or with MIG an instance's.
    for cut in (True, False):
        with World(BOARD) as world:
            both = [start(world, "hog", visible=name) for name in neighbours(world, cut)]
            world.ok("emulate", "fault", "xid", "44")
            hit = until(lambda: next((child for child in both if child.poll() is not None), None), "somebody is hit")
            require(json.loads(hit.stdout.read())["error"] == 719, "not CUDA_ERROR_LAUNCH_FAILED")
            other = next(child for child in both if child is not hit)
            if cut:
                require(other.poll() is None, "the other instance noticed")
                require(len(tenant(world, "see")["devices"]) == 2, "the instances are not there any more")
                end(other)
            else:
                require(json.loads(other.communicate(timeout=60)[0])["error"] == 719, "the neighbour on the same GPU did not notice")


def only_the_owner_cuts():
    if os.geteuid() != 0:
        return "skipped: another user takes root to become; run as root"
    with World(BOARD) as world:
        smi(world, "-mig", 1)
        smi(world, "mig", "-cgi", 19)
        for folder in (world.folder, world.folder / "run"):
            folder.chmod(0o755)
        stranger = {"user": 65534, "group": 65534, "extra_groups": []}
        for words, failed in ((("-cgi", "19"), "create GPU instances"), (("-dgi",), "destroy GPU instances")):
            said = smi(world, "mig", *words, code=4, **stranger)
            require(f"Failed to {failed}: Insufficient Permissions" in said, words, said)
        said = smi(world, "-mig", 0, code=4, **stranger)
        require("Unable to disable MIG Mode for GPU" in said and "Insufficient Permissions" in said, said)
        require("GPU 0: NVIDIA A100" in smi(world, "-L", **stranger), "a stranger cannot even look")
        require(len(re.findall(r"^\|   0  MIG ", smi(world, "mig", "-lgi"), re.M)) == 1, "a stranger changed something")


if __name__ == "__main__":
    main([a_person_cuts_a_gpu_runs_programs_and_puts_it_back, compute_instances_share_the_memory_of_their_gpu_instance,
          memory_goes_to_compute_instances_of_the_same_gpu_instance_only, a_neighbour_that_fills_its_memory_is_noticed_only_without_mig, a_bandwidth_hog_next_door_is_noticed_only_without_mig,
          a_fault_next_door_is_noticed_only_without_mig, only_the_owner_cuts])
