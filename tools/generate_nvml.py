#!/usr/bin/env python3
"""Generates C++ text from the NVML data in data/nvml/.

  generate_nvml.py unsupported  DATA_DIR OUT   definitions of the names without behaviour, answering "not supported"
  generate_nvml.py prototypes   DATA_DIR OUT   declarations of the functions whose types src/nvml describes
  generate_nvml.py calls        DATA_DIR OUT   a table of all names for the test that calls them
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


@dataclass(frozen=True)
class Behaviour:
    kind: str     # "implemented", "absent" (as on a real board or driver without it) or "later" (not emulated yet)
    answers: str  # of implemented ones: what well-formed arguments get, see behaviour.tsv
    why: str


def load(data_dir):
    """All public functions, in the order of the data file (sorted by symbol)."""
    return [Function(s, n, d == "default", p) for s, n, d, p in rows(pathlib.Path(data_dir) / "functions.tsv")]


def behaviour(data_dir):
    """{symbol: Behaviour} of the emulated library; every public name has one."""
    result = {s: Behaviour(kind, answers, why) for s, kind, answers, why in rows(pathlib.Path(data_dir) / "behaviour.tsv")}
    names = {f.symbol for f in load(data_dir)}
    if set(result) != names:
        sys.exit(f"data/nvml/behaviour.tsv: not in functions.tsv, or missing: {sorted(set(result) ^ names)}")
    return result


def has_device(function):
    return function.parameters.startswith("nvmlDevice_t ")


def unsupported(data_dir):
    # The first parameter at most: in the C calling convention of x86-64 the caller cleans up.
    out = ["// Every public NVML name without behaviour of its own. Generated from data/nvml/; do not edit.",
           '#include "emulator/nvml/state.h"', "",
           "#define OF_DEVICE(symbol, counted) \\",
           '  extern "C" __attribute__((visibility("default"))) int symbol(const void* device) { \\',
           "    return mete::emulator::NvmlNotSupported(#symbol, counted, device); \\", "  }",
           "#define OF_NODE(symbol, counted) \\",
           '  extern "C" __attribute__((visibility("default"))) int symbol() { \\',
           "    return mete::emulator::NvmlNotSupported(#symbol, counted, mete::emulator::kNoDeviceArgument); \\", "  }"]
    kinds = behaviour(data_dir)
    for f in load(data_dir):
        if kinds[f.symbol].kind != "implemented":
            counted = "true" if kinds[f.symbol].kind == "later" else "false"
            out.append(f"{'OF_DEVICE' if has_device(f) else 'OF_NODE'}({f.symbol}, {counted})")
    return "\n".join(out) + "\n"


def headers(data_dir):
    """The text of the headers that describe NVML's types."""
    folder = pathlib.Path(data_dir).parent.parent / "src" / "nvml"
    return "".join((folder / name).read_text() for name in ("abi.h", "abi_details.h", "abi_mig.h"))


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


def calls(data_dir):
    """A table of every name for a test that calls it: CALL(symbol, kind, "answers", "parameters", described)."""
    known = types(headers(data_dir))
    kinds = behaviour(data_dir)
    out = ["// Every public NVML name and how the emulated library answers. Generated from data/nvml/; do not edit."]
    for f in load(data_dir):
        if f.symbol != "nvmlErrorString":
            out.append(f'CALL({f.symbol}, {kinds[f.symbol].kind}, "{kinds[f.symbol].answers}", "{f.parameters}", '
                       f'{"true" if types(f.parameters) <= known else "false"})')
    return "\n".join(out) + "\n"


def layout(data_dir):
    return interface_data.layout(data_dir, ['#include "nvml/abi_details.h"', "using namespace mete::nvml::abi;"])


if __name__ == "__main__":
    interface_data.run(sys.argv[1:], {"unsupported": unsupported, "prototypes": prototypes, "calls": calls,
                                      "layout": layout}, __doc__)
