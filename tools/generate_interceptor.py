#!/usr/bin/env python3
"""Generates the interceptor's mechanical parts from data/cuda/ and src/interceptor/wrapped.txt.

  generate_interceptor.py table    DATA_DIR WRAPPED OUT   driver_table.h: one pointer per driver function that mete knows
  generate_interceptor.py wrappers DATA_DIR WRAPPED OUT   wrappers.cc: the exported functions and the list of entries
  generate_interceptor.py map      DATA_DIR WRAPPED OUT   version script: what the proxy exports
  generate_interceptor.py preload  DATA_DIR WRAPPED OUT   preload_names.inc: the exported names of both proxies, numbered
  generate_interceptor.py preload-map DATA_DIR WRAPPED OUT   version script: what libmete-preload.so exports
  generate_interceptor.py null     DATA_DIR BEHAVIOUR OUT C source: a driver whose every function succeeds at once, but
                                                          for those that BEHAVIOUR (a C++ source) defines
  generate_interceptor.py null-VERSION DATA_DIR BEHAVIOUR OUT      the same, knowing no function newer than CUDA VERSION
  generate_interceptor.py null-map-VERSION DATA_DIR BEHAVIOUR OUT  version script: what such a driver exports
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import generate_cuda  # noqa: E402

STREAM = {"-": "kNone", "legacy": "kLegacy", "per-thread": "kPerThread"}


def load(data_dir, wrapped):
    """[(function, hook)] in the order of the table; a hook of "use" is not exported."""
    functions = {f.symbol: f for f in generate_cuda.load(data_dir)}
    result, seen = [], set()
    for number, line in enumerate(pathlib.Path(wrapped).read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        symbol, hook = line.split(None, 1)
        if symbol not in functions:
            sys.exit(f"{wrapped}:{number}: {symbol} is not in data/cuda/functions.tsv")
        if symbol in seen:
            sys.exit(f"{wrapped}:{number}: {symbol} stands here twice")
        seen.add(symbol)
        result.append((functions[symbol], hook.strip()))
    return result


def table(data_dir, wrapped):
    out = ["// The real driver's functions that mete wraps or calls. Generated from wrapped.txt; do not edit.",
           "#ifndef METE_INTERCEPTOR_DRIVER_TABLE_H_", "#define METE_INTERCEPTOR_DRIVER_TABLE_H_",
           '#include "interceptor/cuda_api.h"', "namespace mete::interceptor {", "struct DriverTable {"]
    for function, _ in load(data_dir, wrapped):
        out.append(f"  CUresult (*{function.symbol})({function.declaration()});")
    out += ["};", "}  // namespace mete::interceptor", "#endif", ""]
    return "\n".join(out)


def entry(function, wrapper):
    return (f'    {{"{function.symbol}", "{function.name}", {function.version}, DefaultStream::{STREAM[function.stream]}, '
            f"offsetof(DriverTable, {function.symbol}), {wrapper}}},")


def unnamed(function):
    return ", ".join(f"{p.type} {p.array}".rstrip() for p in function.parameters) or "void"


def wrappers(data_dir, wrapped):
    out = ["// Generated from wrapped.txt; do not edit.", "#include <cstddef>", '#include "interceptor/hooks.h"',
           '#include "interceptor/launch_entry.h"', '#include "interceptor/proc_address.h"', "", 'extern "C" {']
    entries = []
    for index, (function, hook) in enumerate(load(data_dir, wrapped)):
        name = "nullptr"
        if hook != "use":
            arguments = "".join(f", {p.name}" for p in function.parameters)
            if hook.startswith("Launch"):  # straight to the driver with all registers untouched, or to a function of the same shape
                name = f"Gated_{function.symbol}"
                out += [f"METE_EXPORT CUresult {function.symbol}({function.declaration()});",
                        f'extern "C" __attribute__((noinline, used, visibility("hidden"))) CUresult {name}({function.declaration()}) {{',
                        f"  auto* const real = mete::interceptor::driver.{function.symbol};",
                        "  if (real == nullptr) [[unlikely]] return mete::interceptor::MissingFunction();",
                        f"  return mete::interceptor::{hook}(real{arguments});", "}",
                        "#if METE_LAUNCH_ENTRY_IN_ASSEMBLY",
                        f"static_assert(offsetof(mete::interceptor::DriverTable, {function.symbol}) == {8 * index});",
                        f"__attribute__((naked)) CUresult {function.symbol}({unnamed(function)}) {{",
                        f"  METE_LAUNCH_ENTRY({name}, {8 * index});", "}",
                        "#else",
                        f"CUresult {function.symbol}({function.declaration()}) {{",
                        f"  auto* const real = mete::interceptor::driver.{function.symbol};",
                        f"  if (real != nullptr && mete::interceptor::Straight()) [[likely]] return real({arguments[2:]});",
                        f"  return {name}({arguments[2:]});", "}", "#endif"]
                entries.append(entry(function, f"reinterpret_cast<void*>(&::{function.symbol})"))
                continue
            out += [f"METE_EXPORT CUresult {function.symbol}({function.declaration()}) {{",
                    f"  auto* const real = mete::interceptor::driver.{function.symbol};",
                    "  if (real == nullptr) [[unlikely]] return mete::interceptor::MissingFunction();",
                    f"  return mete::interceptor::{hook}(real{arguments});", "}"]
            name = f"reinterpret_cast<void*>(&::{function.symbol})"
        entries.append(entry(function, name))
    out += ['}  // extern "C"', "", "namespace mete::interceptor {", "const Entry kEntries[] = {"] + entries
    out += ["};", f"const unsigned kEntryCount = {len(entries)};", "}  // namespace mete::interceptor", ""]
    return "\n".join(out)


def version_map(data_dir, wrapped):
    names = "".join(f"    {f.symbol};\n" for f, hook in load(data_dir, wrapped) if hook != "use")
    return "{\n  global:\n" + names + "  local: *;\n};\n"


def preloaded(data_dir, wrapped):
    nvml = re.findall(r"^  X\((nvml\w+),", (pathlib.Path(wrapped).parent / "nvml_driver.h").read_text(), re.M)
    return [f.symbol for f, hook in load(data_dir, wrapped) if hook != "use"] + nvml


def preload(data_dir, wrapped):
    out = ["/* Generated from wrapped.txt and nvml_driver.h; do not edit. */"]
    out += [f"METE_NAME({name}, {index})" for index, name in enumerate(preloaded(data_dir, wrapped))]
    return "\n".join(out) + "\n"


def preload_map(data_dir, wrapped):
    # dlsym and its kin name their versions themselves, in preload_entry.S.
    out = "METE_1 {\n  global:\n" + "".join(f"    {name};\n" for name in preloaded(data_dir, wrapped)) + "  local: *;\n};\n"
    return out + "".join(f"{version} {{ }};\n" for version in ("GLIBC_2.2.5", "GLIBC_2.3.4", "GLIBC_2.17", "GLIBC_2.34"))


def null_map(data_dir, newest):
    names = "".join(f"    {f.symbol};\n" for f in generate_cuda.load(data_dir) if f.version <= newest)
    return "{\n  global:\n    null_driver_*;\n" + names + "  local: *;\n};\n"


def null(data_dir, behaviour, newest=1 << 30):
    own = set(re.findall(r"^CUresult (cu\w+)\(", pathlib.Path(behaviour).read_text(), re.M))
    functions = generate_cuda.load(data_dir)
    unknown = own - {f.symbol for f in functions}
    if unknown:
        sys.exit(f"{behaviour}: not driver functions: {', '.join(sorted(unknown))}")
    out = ["/* A driver that does nothing, in constant time. Generated from data/cuda/; do not edit. */",
           "/* A counter of its own keeps each function apart: two names must never share an address. */"]
    for index, function in enumerate(functions):
        if function.symbol in own:
            out.append(f"extern int {function.symbol}();")
        else:
            out.append(f"int {function.symbol}() {{ static volatile int calls_{index}; ++calls_{index}; return 0; }}")
    out += ["struct NullEntry { const char *symbol, *name; int version, stream; void* address; };",
            "const struct NullEntry null_entries[] = {"]
    numbers = {"-": 0, "legacy": 1, "per-thread": 2}
    known = [f for f in functions if f.version <= newest]
    out += [f'  {{"{f.symbol}", "{f.name}", {f.version}, {numbers[f.stream]}, (void*)&{f.symbol}}},' for f in known]
    out += ["};", f"const unsigned null_entry_count = {len(known)};"]
    return "\n".join(out) + "\n"


def main(arguments):
    kinds = {"table": table, "wrappers": wrappers, "map": version_map, "preload": preload, "preload-map": preload_map, "null": null}
    older = re.fullmatch(r"null(-map)?-(\d+)", arguments[0]) if arguments else None
    if len(arguments) != 4 or not (older or arguments[0] in kinds):
        sys.exit(__doc__)
    kind, data_dir, second, out = arguments
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    if older:
        text = null_map(data_dir, int(older[2])) if older[1] else null(data_dir, second, int(older[2]))
    else:
        text = kinds[kind](data_dir, second)
    path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
