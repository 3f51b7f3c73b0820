#!/usr/bin/env python3
"""Checks that includes between folders follow layers.json: arrows point down only.

Tests and benchmarks (*_test.cc, *_benchmark.cc, *_fuzz.cc, testing/) may include anything of their own layer and below,
and the emulator's faces may be driven by tests above them, so they are checked too, but with their own folder's rights.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = json.loads((ROOT / "tests/structure/layers.json").read_text())
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(folder):
    for suffix in ("*.h", "*.cc", "*.c"):
        yield from sorted(folder.rglob(suffix))


def layer_of_include(path):
    """The layer an include path belongs to, as written in layers.json, or None for a system or library header."""
    head = path.split("/")[0]
    if head == "emulator":
        return "/".join(path.split("/")[:2])
    return head if (ROOT / "src" / head).is_dir() and "/" in path else None


def check(kind, layer, allowed, faults):
    folder = ROOT / ("src" if kind == "src" else "emulator") / layer
    if not folder.is_dir():
        return 0
    own = layer if kind == "src" else f"emulator/{layer}"
    seen = 0
    for file in sources(folder):
        name = file.relative_to(ROOT).as_posix()
        is_test = re.search(r"_(test|benchmark|fuzz)\.cc$|/testing/|/test_", name) is not None
        for quote, path in INCLUDE.findall(file.read_text(errors="replace")):
            seen += 1
            target = layer_of_include(path)
            if target is None or target == own or path in allowed or target in allowed:
                continue
            if is_test and kind == "emulator" and target.startswith("emulator/"):
                continue
            if is_test and target in ("emulator/engine",):
                continue
            faults.append(f"{name}: includes {path}, but {own} may only include from: {', '.join(allowed) or 'nothing'}")
    return seen


def main():
    faults, seen = [], 0
    for kind in ("src", "emulator"):
        folders = {p.name for p in (ROOT / kind).iterdir() if p.is_dir()}
        for folder in sorted(folders - set(RULES[kind])):
            faults.append(f"{kind}/{folder}: a layer that tests/structure/layers.json does not know")
        for layer, allowed in RULES[kind].items():
            seen += check(kind, layer, allowed, faults)
    for folder in RULES["libc_only"]:
        for file in sources(ROOT / folder):
            name = file.relative_to(ROOT).as_posix()
            if re.search(r"_(test|benchmark|fuzz)\.cc$|/testing/", name):
                continue
            for _, path in INCLUDE.findall(file.read_text(errors="replace")):
                if any(path.startswith(f) for f in RULES["libc_only_forbidden_includes"]):
                    faults.append(f"{name}: includes {path}, but {folder} is loaded into tenants and uses libc only")
    for layer in sorted(p for kind in ("src", "emulator") for p in (ROOT / kind).iterdir() if p.is_dir()):
        if not (layer / "README.md").exists():
            faults.append(f"{layer.relative_to(ROOT)}: has no README.md (purpose, invariants, how to extend)")
    for fault in faults:
        print(fault)
    print(f"{seen} includes checked, {len(faults)} faults")
    return 1 if faults or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
