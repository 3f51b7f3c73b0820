#!/usr/bin/env python3
"""Generates C and C++ text from the driver API data in data/cuda/.

  generate_cuda.py header  DATA_DIR OUT      mete/cuda.h, declarations for a driver-API program
  generate_cuda.py stub    DATA_DIR OUT      C source of a link library: every name, no behaviour
  generate_cuda.py layout  DATA_DIR OUT      static assertions that structs/ has the recorded layout

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
class Parameter:
    type: str
    name: str
    array: str  # "" or "[N]"


@dataclass(frozen=True)
class Function:
    symbol: str      # exported name, for example cuMemAlloc_v2
    name: str        # name that cuGetProcAddress takes, for example cuMemAlloc
    version: int     # first CUDA version of this ABI, 3020 for 3.2
    stream: str      # "legacy", "per-thread" or "-"
    default: bool    # the plain name means this symbol in a program compiled today
    parameters: tuple

    def declaration(self):
        if not self.parameters:
            return "void"
        return ", ".join(f"{p.type} {p.name}{p.array}" for p in self.parameters)


def parse_parameters(text):
    if text == "void":
        return ()
    result = []
    for part in text.split(", "):
        match = re.match(r"(.*?)\s*\b(\w+)((?:\[\w*\])?)$", part)
        result.append(Parameter(match.group(1).strip(), match.group(2), match.group(3)))
    return tuple(result)


def load(data_dir):
    """All exported functions, in the order of the data file (sorted by symbol)."""
    path = pathlib.Path(data_dir) / "functions.tsv"
    return [Function(s, n, int(v), stream, d == "default", parse_parameters(p))
            for s, n, v, stream, d, p in rows(path)]


def enumerations(data_dir):
    """Ordered {type: [(enumerator, value)]}."""
    result = {}
    for type_name, enumerator, value in rows(pathlib.Path(data_dir) / "enums.tsv"):
        result.setdefault(type_name, []).append((enumerator, int(value)))
    return result


SCALARS = [("uint32_t", "cuuint32_t"), ("uint64_t", "cuuint64_t"), ("unsigned long long", "CUdeviceptr"),
           ("unsigned int", "CUdeviceptr_v1"), ("int", "CUdevice"), ("unsigned long long", "CUtexObject"),
           ("unsigned long long", "CUsurfObject"), ("cuuint64_t", "CUgraphConditionalHandle"),
           ("unsigned long long", "CUmemGenericAllocationHandle"), ("unsigned int", "CUlogIterator"), ("int", "CUdevResourceType")]

FUNCTION_TYPES = [
    "typedef void (*CUhostFn)(void* userData);",
    "typedef void (*CUstreamCallback)(CUstream hStream, CUresult status, void* userData);",
    "typedef size_t (*CUoccupancyB2DSize)(int blockSize);",
    "typedef struct CUasyncNotificationInfo CUasyncNotificationInfo;",
    "typedef void (*CUasyncCallback)(CUasyncNotificationInfo* info, void* userData, CUasyncCallbackHandle callback);",
    "typedef void (*CUlogsCallback)(void* data, CUlogLevel logLevel, char* message, size_t length);",
]

ENUM_ALIASES = [("CUlaunchAttributeID", "CUkernelNodeAttrID"), ("CUlaunchAttributeID", "CUstreamAttrID")]
STRUCT_ALIASES = [("CUlaunchAttributeValue", "CUkernelNodeAttrValue"), ("CUlaunchAttributeValue", "CUstreamAttrValue")]

# In the order in which one builds on another.
STRUCT_FILES = ["copies.h", "launches.h", "external_memory.h", "graphs.h", "textures.h"]
STRUCTS_COMMENT = """/* Structures of the public CUDA driver API that mete reads or writes. Pasted into mete/cuda.h by
   tools/generate_cuda.py; sizes and offsets are checked against layout.tsv. */
"""


def header(data_dir):
    directory = pathlib.Path(data_dir)
    functions = load(directory)
    enums = enumerations(directory)
    handles = [line for line in (directory / "handles.txt").read_text().split("\n") if line and line[0] != "#"]
    structs = STRUCTS_COMMENT + "\n".join((directory / "structs" / name).read_text().split("*/\n\n", 1)[1] for name in STRUCT_FILES)
    out = ["/* mete/cuda.h: the public CUDA driver API, declared for C and C++. Generated from data/cuda/; do not edit.",
           "   Include it instead of NVIDIA's cuda.h and link with -lcuda (mete's link library or a real driver).",
           "   Define METE_CUDA_NO_ALIASES to get exported symbols only, without the plain names mapped to the newest ABI. */",
           "#ifndef METE_CUDA_H_", "#define METE_CUDA_H_", "#include <stddef.h>", "#include <stdint.h>",
           "#define CUDA_VERSION 13000", "#ifndef CUDAAPI", "#define CUDAAPI", "#endif",
           "#ifndef CUDA_CB", "#define CUDA_CB", "#endif",
           "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    out += [f"typedef {real} {alias};" for real, alias in SCALARS]
    out += [f"typedef struct {h}_st* {h};" for h in handles] + [""]
    for type_name, values in enums.items():
        out.append(f"typedef enum {type_name}_enum {{")
        for name, value in values:
            text = str(value) if -2**31 <= value < 2**31 else f"(int)0x{value:X}u"
            out.append(f"  {name} = {text},")
        out.append(f"}} {type_name};")
    out += [f"typedef {real} {alias};" for real, alias in ENUM_ALIASES]
    out += FUNCTION_TYPES + [structs]
    out += [f"typedef {real} {alias};" for real, alias in STRUCT_ALIASES]
    known = set(re.findall(r"\b(\w+);", "\n".join(out))) | set(re.findall(r"\} (\w+);", structs))
    known |= {alias for _, alias in SCALARS} | set(handles) | set(enums)
    known |= set(re.findall(r"\(\*(\w+)\)", "\n".join(FUNCTION_TYPES)))
    opaque = set()
    for function in functions:
        for parameter in function.parameters:
            for word in re.findall(r"\bCU\w+", parameter.type):
                if word not in known:
                    opaque.add(word)
    out += [f"typedef struct {name}_st {name};  /* not described here */" for name in sorted(opaque)] + [""]
    out += [f"CUresult CUDAAPI {f.symbol}({f.declaration()});" for f in functions]
    out += ["", "#ifndef METE_CUDA_NO_ALIASES"]
    out += [f"#define {f.name} {f.symbol}" for f in functions if f.default and f.name != f.symbol and f.stream != "per-thread"]
    out += ["#endif", "", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(out)


def stub(data_dir):
    out = ["/* Link library for driver-API programs: names only. Generated from data/cuda/; do not edit. */"]
    out += [f"int {f.symbol}(void) {{ return 34; }}" for f in load(data_dir)]  # 34: CUDA_ERROR_STUB_LIBRARY
    return "\n".join(out) + "\n"


def layout(data_dir):
    return interface_data.layout(data_dir, ['#include "mete/cuda.h"'])


if __name__ == "__main__":
    interface_data.run(sys.argv[1:], {"header": header, "stub": stub, "layout": layout}, __doc__)
