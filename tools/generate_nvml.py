#!/usr/bin/env python3
"""Generates C++ text from the NVML data in data/nvml/.

  generate_nvml.py unsupported  DATA_DIR OUT   a weak definition of every name, answering "not supported" and counted
  generate_nvml.py prototypes   DATA_DIR OUT   declarations of the functions whose types src/nvml/abi.h describes
  generate_nvml.py layout       DATA_DIR OUT   static assertions that src/nvml/abi.h has the recorded layout

Other generators import `load` to read the same data.
"""
import pathlib
import re
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    symbol: str      # exported name, for example nvmlInit_v2
    name: str        # name in a program's source, for example nvmlInit
    default: bool    # that name means this symbol in a program compiled today
    parameters: str  # C parameter list, "void" for none


def rows(path):
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def load(data_dir):
    """All public functions, in the order of the data file (sorted by symbol)."""
    return [Function(s, n, d == "default", p) for s, n, d, p in rows(pathlib.Path(data_dir) / "functions.tsv")]


def unsupported(data_dir):
    # No parameters: in the C calling convention of x86-64 the caller cleans up, and none is read. Weak: a definition
    # with behaviour elsewhere in the library takes its place, so no list of what is built has to be kept.
    out = ["// Every public NVML name without behaviour of its own. Generated from data/nvml/functions.tsv; do not edit.",
           '#include "emulator/nvml/state.h"', "",
           "#define NOT_BUILT(symbol) \\",
           '  extern "C" __attribute__((weak, visibility("default"))) int symbol() { \\',
           "    return mete::emulator::NvmlNotSupported(#symbol); \\", "  }"]
    out += [f"NOT_BUILT({f.symbol})" for f in load(data_dir) if f.symbol != "nvmlErrorString"]
    return "\n".join(out) + "\n"


def prototypes(data_dir):
    abi = (pathlib.Path(data_dir).parent.parent / "src" / "nvml" / "abi.h").read_text()
    known = set(re.findall(r"\bnvml\w+_t\b", abi))
    out = ["// NVML's entry points as far as nvml/abi.h describes their types: the compiler holds callers and definitions to",
           "// the recorded signatures. Generated from data/nvml/functions.tsv; do not edit.",
           "#ifndef METE_NVML_PROTOTYPES_H_", "#define METE_NVML_PROTOTYPES_H_", '#include "nvml/abi.h"',
           "namespace mete::nvml::abi {", 'extern "C" {', "#define METE_NVML_API __attribute__((visibility(\"default\")))"]
    for f in load(data_dir):
        if set(re.findall(r"\bnvml\w+_t\b", f.parameters)) <= known:
            result = "const char*" if f.symbol == "nvmlErrorString" else "nvmlReturn_t"
            out.append(f"METE_NVML_API {result} {f.symbol}({f.parameters});")
    out += ["}", "}  // namespace mete::nvml::abi", "#endif"]
    return "\n".join(out) + "\n"


def layout(data_dir):
    out = ["#include <cstddef>", '#include "nvml/abi.h"', "using namespace mete::nvml::abi;"]
    for struct, field, size in rows(pathlib.Path(data_dir) / "layout.tsv"):
        if field == "-":
            out.append(f'static_assert(sizeof({struct}) == {size}, "{struct}");')
        else:
            out.append(f'static_assert(offsetof({struct}, {field}) == {size}, "{struct}.{field}");')
    return "\n".join(out) + "\n"


def main(arguments):
    kinds = {"unsupported": unsupported, "prototypes": prototypes, "layout": layout}
    if len(arguments) != 3 or arguments[0] not in kinds:
        sys.exit(__doc__)
    kind, data_dir, out = arguments
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kinds[kind](data_dir))


if __name__ == "__main__":
    main(sys.argv[1:])
