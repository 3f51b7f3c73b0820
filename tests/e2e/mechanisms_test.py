#!/usr/bin/env python3
"""Each way of sharing, from its scenario file in tests/scenarios/mechanisms: two tenants are set up, their Evidence is read back, they
run load, what must be refused is refused, they are released, and the node is as it was found."""
import json

from harness import ROOT, World, main, require, until

SCENARIOS = ROOT / "tests/scenarios/mechanisms"


def node_state(world):
    """What the node itself says of its settings and of what was made on it, seen from outside mete."""
    def ask(*words):
        done = world.run("nvidia-smi", *words, environment=world.without_mete())
        require(done.returncode == 0, f"nvidia-smi {' '.join(words)} ended {done.returncode}", done.stdout, done.stderr)
        return done.stdout

    return {
        "gpus": ask("--query-gpu=index,uuid,compute_mode,mig.mode.current,mig.mode.pending,memory.used", "--format=csv,noheader"),
        "devices": ask("-L"),
        "compute_policy": ask("compute-policy", "-l"),
    }


def shown(world, name):
    return world.json("share", "show", name)


def check_evidence(share, wanted):
    require(share["in_force"] and not share["invalid"], f"{share['name']} is not in force", json.dumps(share["evidence"], indent=1))
    said = [item["what"] for item in share["evidence"] if item["holds"]]
    for words in wanted:
        require(any(words in what for what in said), f"{share['name']}: no evidence '{words}'", *said)


def check_refusals(world, refusals):
    for refusal in refusals:
        for command in (["run", *refusal["ask"], "--", "true"], ["share", "create", *refusal["ask"]]):
            done = world.mete(*command)
            last = (done.stderr.strip().splitlines() or [""])[-1]
            require(done.returncode == refusal["status"], f"mete {' '.join(command)} ended {done.returncode}, not {refusal['status']}", done.stderr)
            for words in refusal["names"]:
                require(words in done.stderr, f"mete {' '.join(command)}: '{words}' is not said", done.stderr)
            word = {2: "usage", 3: "refused", 4: "lacks"}[refusal["status"]]
            require(last.startswith(f"mete: {word}: "), "the last line does not say what kind of failure it is", done.stderr)


def tenant_up(world, tenant):
    world.ok("share", "create", "--name", tenant["name"], *tenant["ask"])
    require(shown(world, tenant["name"])["mechanism"] == tenant["mechanism"], f"{tenant['name']} got another mechanism", shown(world, tenant["name"]))
    seen = world.ok("run", "--share", tenant["name"], "--", "devices").stdout.splitlines()
    require(len(seen) == 2, f"{tenant['name']} does not see one device, and that only", *seen)  # the first line is cuInit's
    loads = [world.start("mete", "run", "--share", tenant["name"], "--", *tenant["load"], "--progress") for _ in range(tenant["at_a_time"])]
    for load in loads:
        until(lambda: load.stdout.readline() or load.poll() is not None, f"{tenant['name']} has begun")
        require(load.poll() is None, f"a process of {tenant['name']} ended {load.returncode}", load.stderr.read() if load.poll() is not None else "")
    return loads


def scenario(path):
    data = json.loads(path.read_text())

    def run():
        with World(gpus=data["gpus"]) as world:
            before = node_state(world)
            loads = []
            for tenant in data["tenants"]:
                loads += tenant_up(world, tenant)
            for tenant in data["tenants"]:
                until(lambda: len(shown(world, tenant["name"])["processes"]) == tenant["at_a_time"], f"every process of {tenant['name']} is known")
                check_evidence(shown(world, tenant["name"]), tenant["evidence"])
                require(not world.json("share", "list")["foreign"], "tenants are taken for strangers", world.json("share", "list")["foreign"])
            for kind, words in data.get("during", {}).items():
                require(words in node_state(world)[kind], f"the node does not say {words}", node_state(world)[kind])
            for stranger in data.get("strangers", []):
                done = world.run(*stranger["program"], environment={**world.without_mete(), "CUDA_VISIBLE_DEVICES": str(stranger["gpu"])})
                require((done.returncode != 0 or json.loads(done.stdout)["error"] != 2) == stranger["turned_away"],
                        "a stranger was not turned away", done.stdout, done.stderr)
            check_refusals(world, data["refused"])
            busy = world.mete("share", "release", data["tenants"][0]["name"])
            require(busy.returncode == 3 and "in use" in busy.stderr, "a share in use was released", busy.stderr)
            for load in loads:  # under load until here
                require(load.poll() is None, f"a load ended {load.poll()}", load.stderr.read() if load.poll() is not None else "")
                load.terminate()
            for load in loads:
                load.wait(30)
            for tenant in data["tenants"]:
                until(lambda: world.mete("share", "release", tenant["name"]).returncode == 0, f"{tenant['name']} can be released")
            require(node_state(world) == before, "the node is not as it was found", before, node_state(world))
        return data["purpose"]

    run.__name__ = path.stem
    return run


if __name__ == "__main__":
    main([scenario(path) for path in sorted(SCENARIOS.glob("*.json"))])
