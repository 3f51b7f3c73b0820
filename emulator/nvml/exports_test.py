#!/usr/bin/env python3
"""Checks that the emulated libnvidia-ml.so.1 exports NVML's public names and nothing else, under the right SONAME, and
needs no C++ runtime from whoever loads it.   exports_test.py LIBRARY FUNCTIONS_TSV"""
import subprocess
import sys


def lines(*command):
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()


def main(library, functions):
    with open(functions, encoding="utf-8") as file:
        wanted = {line.split("\t")[0] for line in file if line.strip() and not line.startswith("#")}
    wanted |= {"mete_emulated_node", "mete_emulated_control"}
    exported = {line.split()[-1].split("@")[0] for line in lines("nm", "-D", "--defined-only", library)}
    faults = [f"not exported: {name}" for name in sorted(wanted - exported)]
    faults += [f"exported but not NVML's: {name}" for name in sorted(exported - wanted)]
    dynamic = lines("readelf", "-d", library)
    if not any("SONAME" in line and "[libnvidia-ml.so.1]" in line for line in dynamic):
        faults.append("SONAME is not libnvidia-ml.so.1")
    faults += [f"needs {line.split('[')[1]}" for line in dynamic if "NEEDED" in line and ("stdc++" in line or "libgcc" in line)]
    print("\n".join(faults) or f"{len(wanted)} names exported")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
