#!/usr/bin/env python3
"""A program into which mete is loaded finds nothing changed but its GPU: mask, handlers, descriptors, threads, folder, environment, standard
error. Told on a driver that itself does nothing, so that whatever changes is mete's; and a process that never touches CUDA shows no trace of
what was preloaded into it but the object itself. Limits are found by place: no variable is needed, and none is missed."""
import json
import os
import shlex
import shutil
import subprocess

from harness import BUILD, ROOT, World, main, require

TESTS = BUILD / "tests"
FOLDER = BUILD / "lib/mete/interceptor"
DRIVER = BUILD / "lib/mete/null-driver/libcuda.so.1"
DELIVERIES = ("path", "preload", "both")


def guest(world, *words, delivery="path", driver=DRIVER):
    """Runs words with a stand-in for the broker; {} in them is the grant's folder."""
    path = "$G" if delivery != "preload" else shlex.quote(str(driver.parent))
    preload = "LD_PRELOAD=$G/libmete-preload.so" if delivery != "path" else ""
    command = f"G=${{0%/*}}; exec env LD_LIBRARY_PATH={path} {preload} {shlex.join(map(str, words)).replace('{}', '$G')}"
    return world.run(BUILD / "bench/with_share", FOLDER / "libcuda.so.1", driver, "capped", "1", "--", "/bin/sh", "-c", command, "{}")


def seen(done, when):
    require(done.returncode == 0 and done.stderr == "", f"ended {done.returncode}", done.stdout[-300:], done.stderr)
    lines = sorted(line[len(when) + 1:] for line in done.stdout.splitlines() if line.startswith(when + " "))
    require(len(lines) > 60, "too little is seen", *lines)
    return lines


def difference(left, right):
    return [line for line in left if line not in right] + [line for line in right if line not in left]


def fault_55_loading_and_first_use_change_nothing_of_the_program():
    with World(up=False) as world:
        for delivery in DELIVERIES:
            done = guest(world, TESTS / "hygiene", "used", delivery=delivery)
            before, after = seen(done, "before"), seen(done, "after")
            require(before == after, f"{delivery}: something changed", *difference(before, after))


def fault_55_handlers_of_the_program_stay_its_own():
    with World(up=False) as world:
        for delivery in DELIVERIES:
            done = guest(world, TESTS / "hygiene", "handlers", delivery=delivery)
            require(done.returncode == 0, f"{delivery}: ended {done.returncode}", done.stderr)


def descriptors_may_be_closed_by_the_program():
    with World(up=False) as world:
        for delivery in DELIVERIES:
            done = guest(world, TESTS / "hygiene", "closefrom", delivery=delivery)
            require(done.returncode == 0 and done.stderr == "", f"{delivery}: ended {done.returncode}", done.stderr)


def preloaded_where_nobody_asks_for_a_gpu_it_leaves_no_trace():
    with World(up=False) as world:
        bare = world.run(TESTS / "hygiene", "idle", environment={"LD_LIBRARY_PATH": str(DRIVER.parent)})
        with_it = world.run(TESTS / "hygiene", "idle", environment={"LD_LIBRARY_PATH": str(DRIVER.parent), "LD_PRELOAD": str(FOLDER / "libmete-preload.so")})
        for when in ("before", "after"):
            clean = lambda lines: [line for line in lines if not line.startswith("environment") and "handler" not in line]
            extra = difference(clean(seen(bare, when)), clean(seen(with_it, when)))
            require(extra == ["object libmete-preload.so"], f"{when}: more is seen than the object", *extra)
        done = world.run("ls", "/", environment={"LD_PRELOAD": str(FOLDER / "libmete-preload.so")})
        require(done.returncode == 0 and done.stderr == "", "ls does not work under it", done.stderr)


def fault_31_32_other_names_are_answered_as_if_it_were_not_there():
    with World(up=False) as world:
        environment = {"LD_LIBRARY_PATH": str(TESTS)}
        bare = world.run(TESTS / "stranger_names", environment=environment)
        require(bare.returncode == 0, "the test itself is wrong", bare.stderr)
        done = world.run(TESTS / "stranger_names", environment={**environment, "LD_PRELOAD": str(FOLDER / "libmete-preload.so")})
        require(done.returncode == 0 and done.stderr == "", "a name that is not the driver's was answered otherwise", done.stderr)


def fault_33_53_it_needs_only_an_old_c_library_and_has_every_version_of_dlsym():
    done = subprocess.run(["readelf", "--wide", "--dynamic", "--version-info", "--dyn-syms", FOLDER / "libmete-preload.so"], check=True, capture_output=True, text=True)
    needed = [line.split("[")[1].split("]")[0] for line in done.stdout.splitlines() if "(NEEDED)" in line]
    # The dynamic linker, whose list of what is loaded it reads, is the C library's own and there in every process.
    require([name for name in needed if not name.startswith("ld-linux")] == ["libc.so.6"], "it needs more than the C library", *needed)
    symbols = [line.split()[7] for line in done.stdout.splitlines() if len(line.split()) > 7 and "@" in line.split()[7]]
    first = "GLIBC_2.17" if os.uname().machine == "aarch64" else "GLIBC_2.2.5"
    for name in ("dlsym", "dlvsym", "dlopen"):
        require(f"{name}@{first}" in symbols and f"{name}@@GLIBC_2.34" in symbols, f"{name} lacks a version", *symbols)
    wants = {line.split()[7].split("@")[1] for line in done.stdout.splitlines() if " UND " in line and "@" in line}
    newest = max(tuple(map(int, want.split("_")[1].split("."))) for want in wants)
    require(newest <= (2, 17), "it needs a newer C library than 2.17", *sorted(wants))
    proxies = subprocess.run(["readelf", "--wide", "--dynamic", FOLDER / "libcuda.so.1"], check=True, capture_output=True, text=True).stdout
    require("[libcuda.so.1]" not in "".join(line for line in proxies.splitlines() if "(NEEDED)" in line), "the proxy is linked to a driver of a fixed name")


def fault_53_the_entry_points_for_aarch64_assemble():
    assembler = shutil.which("clang-16") or shutil.which("aarch64-linux-gnu-gcc")
    if not assembler:
        return "skipped: no assembler for aarch64 here"
    with World(up=False) as world:
        target = ["--target=aarch64-linux-gnu"] if "clang" in assembler else []
        done = world.run(assembler, *target, "-c", "-I", BUILD / "src/interceptor", ROOT / "src/interceptor/preload_entry.S", "-o", world.folder / "entry.o")
        require(done.returncode == 0, "preload_entry.S does not assemble for aarch64", done.stderr)


def fault_43_45_without_limits_there_is_no_gpu_and_a_reason():
    """The proxy, with the driver behind it, but no broker there or none that may be reached."""
    with World(up=False) as world:
        folder = world.folder / "grant"
        folder.mkdir()
        for name, target in (("libcuda.so.1", FOLDER / "libcuda.so.1"), ("libmete-preload.so", FOLDER / "libmete-preload.so"), ("libmete-driver-cuda.so.1", DRIVER)):
            (folder / name).symlink_to(target)
        for delivery in DELIVERIES:
            environment = {"LD_LIBRARY_PATH": str(folder if delivery != "preload" else DRIVER.parent)}
            if delivery != "path":
                environment["LD_PRELOAD"] = str(folder / "libmete-preload.so")
            done = world.run(TESTS / "hygiene", "quota", environment=environment)
            require(done.returncode == 4, f"{delivery}: it was served", done.stdout, done.stderr)
            require("mete: no broker answers at" in done.stderr and "error 999" in done.stderr, f"{delivery}: the reason is not said", done.stderr)


def fault_45_a_driver_that_is_not_the_shares_gives_nothing():
    """Preloaded: a second copy of the driver, opened or linked to, is refused; so is any driver when the share's is missing."""
    with World(up=False) as world:
        other = world.folder / "other"
        other.mkdir()
        shutil.copy(DRIVER, other / "libcuda.so.1")
        for program in (["hygiene", "quota"], ["resolver_probe_linked", "linked"]):
            done = guest(world, "env", f"LD_LIBRARY_PATH={other}", TESTS / program[0], program[1], delivery="preload")
            last = done.stdout.splitlines()[-1:] if program[1] == "linked" else None
            require(done.returncode == 4 if last is None else last == ["call\t999\t3"], f"{program}: served by another driver", done.stdout[-200:], done.stderr)
            require("not its share's" in done.stderr, f"{program}: the reason is not said", done.stderr)
        folder = world.folder / "empty"
        folder.mkdir()
        (folder / "libmete-preload.so").symlink_to(FOLDER / "libmete-preload.so")
        done = world.run(TESTS / "hygiene", "quota", environment={"LD_LIBRARY_PATH": str(DRIVER.parent), "LD_PRELOAD": str(folder / "libmete-preload.so")})
        require(done.returncode == 4 and "error 999" in done.stderr and "mete: the share's driver cannot be loaded" in done.stderr, "served without a proxy", done.stdout, done.stderr)


def fault_44_limits_are_found_by_place_with_no_variable_of_metes():
    with World() as world:
        only = ["sh", "-c", 'exec env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" "$0" quota', TESTS / "hygiene"]
        done = world.mete("run", "--memory", "4GiB", "--", *only)
        require(done.returncode == 0 and done.stdout == "3 2\n", "with an empty environment the quota is not kept", done.stdout, done.stderr)


def fault_44_with_ld_so_preload_an_empty_environment_changes_nothing():
    """/etc/ld.so.preload itself, in a mount name space of its own; the program opens the real driver by its path."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        return "skipped: no right to make a mount name space here"
    with World() as world:
        node = world.node / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
        world.ok("share", "create", "--name", "host", "--memory", "4GiB")
        try:
            grant = next((world.folder / "run").rglob("libmete-preload.so"))
            script = ('mkdir -p "$1" && cp -a /etc/. "$1" 2>/dev/null; printf "%s\\n" "$2" > "$1/ld.so.preload" && mount --bind "$1" /etc && '
                      'exec env -i "$3" quota "$4"')
            done = world.run("unshare", "--mount", "sh", "-c", script, "sh", world.folder / "etc", grant, TESTS / "hygiene", node)
            require(done.returncode == 0 and done.stdout == "3 2\n", "the quota is not kept", done.stdout, done.stderr)
        finally:
            world.ok("share", "release", "host")


def a_static_program_that_asks_for_the_driver_by_name_is_limited_too():
    """It has no place for a preloaded object, but its own loader follows the path."""
    with World(up=False) as world:
        program = world.folder / "static"
        built = world.run("cc", "-static", "-w", ROOT / "tests/e2e/hygiene.c", "-o", program)
        if built.returncode != 0:
            return "skipped: no static C library here"
        for delivery in ("path", "both"):
            done = guest(world, program, "quota", delivery=delivery)
            require(done.returncode == 0 and done.stdout == "31 2\n", f"{delivery}: the quota of 32 GiB is not kept", done.stdout, done.stderr)


def fault_42_preloaded_nvml_shows_the_share_and_its_processes():
    """nvidia-smi, led to the real libnvidia-ml.so.1 by its own path, sees the quota, and of two tenants on the GPU its own share's."""
    with World() as world:
        library = world.node / "usr/lib/x86_64-linux-gnu"
        world.ok("share", "create", "--name", "a", "--memory", "4GiB", "--preload")
        ours = world.start("mete", "run", "--share", "a", "--", "tenant", "hold", 1 << 30, stdin=-1)
        theirs = world.start("mete", "run", "--name", "b", "--memory", "4GiB", "--", "tenant", "hold", 1 << 30, stdin=-1)
        lines = [child.stdout.readline() for child in (ours, theirs)]
        require(all(lines), "a tenant does not say that it holds", *(child.stderr.read() for child, line in zip((ours, theirs), lines) if not line))
        pids = [json.loads(line)["pid"] for line in lines]
        smi = lambda *query: world.ok("run", "--share", "a", "--", "env", f"LD_LIBRARY_PATH={library}", "nvidia-smi", *query, "--format=csv,noheader,nounits").stdout.split()  # noqa: E731
        total = smi("--query-gpu=memory.total")
        seen_pids = smi("--query-compute-apps=pid")
        for child in (ours, theirs):
            child.stdin.close()
            child.wait()
        world.ok("share", "release", "a")
        require(total == ["4096"], "nvidia-smi does not show the share's size", total)
        require(seen_pids == [str(pids[0])], f"of {pids} the first alone is of the share", seen_pids)


if __name__ == "__main__":
    main([fault_55_loading_and_first_use_change_nothing_of_the_program, fault_55_handlers_of_the_program_stay_its_own, descriptors_may_be_closed_by_the_program,
          preloaded_where_nobody_asks_for_a_gpu_it_leaves_no_trace, fault_31_32_other_names_are_answered_as_if_it_were_not_there,
          fault_33_53_it_needs_only_an_old_c_library_and_has_every_version_of_dlsym, fault_53_the_entry_points_for_aarch64_assemble,
          fault_43_45_without_limits_there_is_no_gpu_and_a_reason, fault_45_a_driver_that_is_not_the_shares_gives_nothing,
          fault_44_limits_are_found_by_place_with_no_variable_of_metes, fault_44_with_ld_so_preload_an_empty_environment_changes_nothing,
          a_static_program_that_asks_for_the_driver_by_name_is_limited_too, fault_42_preloaded_nvml_shows_the_share_and_its_processes])
