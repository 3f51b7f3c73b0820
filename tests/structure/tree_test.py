#!/usr/bin/env python3
"""Checks rules of CONTRIBUTING.md that a program can decide, over all tracked files."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST = 600  # lines of one source file


def tracked():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if out.returncode != 0:  # an exported tree without git
        return [p for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]
    return [ROOT / name for name in out.stdout.decode().split("\0") if name]


def main():
    faults, seen = [], 0
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if not re.search(r"\.(cc|h|c|py|sh|cl)$", name) or not path.exists():
            continue
        seen += 1
        text = path.read_text(errors="replace")
        lines = text.count("\n")
        if lines > LONGEST and not name.startswith("data/"):
            faults.append(f"{name}: {lines} lines; at most {LONGEST}: is there more than one idea in it?")
        if name.endswith(".h") and not name.startswith("data/"):
            guard = re.sub(r"[^A-Za-z0-9]", "_", re.sub(r"^src/", "", name)).upper() + "_"
            if f"#ifndef METE_{guard}" not in text:
                faults.append(f"{name}: the include guard is not METE_{guard}")
            if not text.lstrip().startswith(("//", "/*")):
                faults.append(f"{name}: does not open with what it is")
        if name.startswith(("src/", "emulator/")) and re.search(r"\busing namespace\b", text):
            faults.append(f"{name}: using namespace")
        if name.endswith((".cc", ".h")) and re.search(r"\b(TODO|FIXME|XXX)\b", text):
            faults.append(f"{name}: TODO or FIXME: do it or file an issue")
    for fault in faults:
        print(fault)
    print(f"{seen} files checked, {len(faults)} faults")
    return 1 if faults or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
