#!/usr/bin/env python3
"""Generates C++ text from the NVML data in data/nvml/.

  generate_nvml.py unsupported  DATA_DIR OUT   a weak definition of every name, answering "not supported" and counted
  generate_nvml.py prototypes   DATA_DIR OUT   declarations of the functions whose types src/nvml describes
  generate_nvml.py layout       DATA_DIR OUT   static assertions that src/nvml has the recorded layout

Other generators import `load` to read the same data.
"""
import pathlib
import re
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import interface_data  # noqa: E402
from interface_data import rows  # noqa: E402


@dataclass(frozen=True)
class Function:
    symbol: str      # exported name, for example nvmlInit_v2
    name: str        # name in a program's source, for example nvmlInit
    default: bool    # that name means this symbol in a program compiled today
    parameters: str  # C parameter list, "void" for none


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


def headers(data_dir):
    """The text of the headers that describe NVML's types."""
    folder = pathlib.Path(data_dir).parent.parent / "src" / "nvml"
    return "".join((folder / name).read_text() for name in ("abi.h", "abi_details.h"))


def types(parameters):
    return set(re.findall(r"\bnvml\w+_t\b", parameters))


def prototypes(data_dir):
    known = types(headers(data_dir))
    out = ["// NVML's entry points as far as nvml/abi.h and abi_details.h describe their types: the compiler holds callers",
           "// and definitions to the recorded signatures. Generated from data/nvml/functions.tsv; do not edit.",
           "#ifndef METE_NVML_PROTOTYPES_H_", "#define METE_NVML_PROTOTYPES_H_", '#include "nvml/abi_details.h"',
           "namespace mete::nvml::abi {", 'extern "C" {', "#define METE_NVML_API __attribute__((visibility(\"default\")))"]
    for f in load(data_dir):
        if types(f.parameters) <= known:
            result = "const char*" if f.symbol == "nvmlErrorString" else "nvmlReturn_t"
            out.append(f"METE_NVML_API {result} {f.symbol}({f.parameters});")
    out += ["}", "}  // namespace mete::nvml::abi", "#endif"]
    return "\n".join(out) + "\n"


def layout(data_dir):
    return interface_data.layout(data_dir, ['#include "nvml/abi_details.h"', "using namespace mete::nvml::abi;"])


if __name__ == "__main__":
    interface_data.run(sys.argv[1:], {"unsupported": unsupported, "prototypes": prototypes,
                                      "layout": layout}, __doc__)
