#!/usr/bin/env python3
"""Generates the outer skin of the emulated libcuda from the driver API data and the list of what is implemented.

  generate_emulated_cuda.py api      DATA_DIR IMPLEMENTED OUT   declarations of the implementations (namespace api)
  generate_emulated_cuda.py exports  DATA_DIR IMPLEMENTED OUT   every exported symbol and the look-up table
  generate_emulated_cuda.py errors   DATA_DIR IMPLEMENTED OUT   names and descriptions of CUresult
  generate_emulated_cuda.py symbols  DATA_DIR IMPLEMENTED OUT   header for tests: every symbol, and whether implemented
  generate_emulated_cuda.py attributes DATA_DIR IMPLEMENTED OUT device attributes that are the same on every board

IMPLEMENTED has every symbol on a line: alone where it is implemented, `old = new` where an older symbol has the ABI and
the meaning of a newer one, `symbol ! reason` where it answers 801.
A `_ptsz` or `_ptds` twin follows its base symbol: it runs it with the calling thread's own default stream.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import generate_cuda  # noqa: E402

BANNER = "// Generated from data/cuda/ and emulator/cuda/implemented.txt; do not edit."


def implemented(path):
    """({symbol: symbol that implements it}, {symbol: why not})"""
    result, absent = {}, {}
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        old, no, why = (part.strip() for part in line.partition("!"))
        old, _, new = (part.strip() for part in old.partition("="))
        if old in result or old in absent:
            sys.exit(f"{path}:{number}: {old} is listed twice")
        if no and not why:
            sys.exit(f"{path}:{number}: {old} needs a reason")
        if no:
            absent[old] = why
        else:
            result[old] = new or old
    return result, absent


def base(symbol):
    return re.sub(r"_pt[sd][sz]$", "", symbol)


def check(functions, listed, absent, path):
    by_symbol = {f.symbol: f for f in functions}
    known = set(listed) | set(absent)
    for symbol in sorted({base(s) for s in by_symbol} - known):
        sys.exit(f"{path}: {symbol} is missing")
    for symbol in sorted(known - set(by_symbol)):
        sys.exit(f"{path}: {symbol} is not in functions.tsv")
    for old, new in listed.items():
        if new not in by_symbol:
            sys.exit(f"{path}: {new} is not in functions.tsv")
        types = [[p.type for p in by_symbol[s].parameters] for s in (old, new)]
        if types[0] != types[1]:
            sys.exit(f"{path}: {old} and {new} have different parameters")
        if listed.get(new) != new:
            sys.exit(f"{path}: {old} = {new}, but {new} is not listed as implemented itself")


def arguments(function):
    return ", ".join(p.name for p in function.parameters)


def api(functions, listed):
    out = [BANNER, "#ifndef METE_EMULATOR_CUDA_API_H_", "#define METE_EMULATOR_CUDA_API_H_",
           "#ifndef METE_CUDA_NO_ALIASES", "#define METE_CUDA_NO_ALIASES", "#endif", '#include "mete/cuda.h"',
           "namespace mete::emulator::cuda::api {"]
    out += [f"CUresult {f.symbol}({f.declaration()});" for f in functions if listed.get(f.symbol) == f.symbol]
    return out + ["}  // namespace mete::emulator::cuda::api", "#endif"]


def exports(functions, listed):
    out = [BANNER, "#define METE_CUDA_NO_ALIASES", "#pragma GCC visibility push(default)", '#include "mete/cuda.h"',
           "#pragma GCC visibility pop", '#include "api.h"', '#include "emulator/cuda/exports.h"',
           "namespace cuda = mete::emulator::cuda;", 'extern "C" {']
    for f in functions:
        target = listed.get(base(f.symbol))
        if target is None:
            unnamed = ", ".join(f"{p.type}{p.array}" for p in f.parameters) or "void"
            body = f'return cuda::Unsupported("{f.symbol}");'
            out.append(f"CUresult {f.symbol}({unnamed}) {{ {body} }}")
            continue
        scope = "cuda::PerThreadDefaultStream scope; " if f.stream == "per-thread" else ""
        out.append(f"CUresult {f.symbol}({f.declaration()}) {{ {scope}return cuda::api::{target}({arguments(f)}); }}")
    out += ['}  // extern "C"', "namespace mete::emulator::cuda {", "const Symbol kSymbols[] = {"]
    stream = {"-": "kNoStream", "legacy": "kLegacyStream", "per-thread": "kPerThreadStream"}
    order = sorted(functions, key=lambda f: (f.name, f.version, f.symbol))
    out += [f'    {{"{f.name}", "{f.symbol}", {f.version}, StreamKind::{stream[f.stream]}, '
            f"reinterpret_cast<void*>(&::{f.symbol})}}," for f in order]
    return out + ["};", f"const int kSymbolCount = {len(order)};", "}  // namespace mete::emulator::cuda"]


def errors(enumerations):
    out = [BANNER, '#include "emulator/cuda/exports.h"', "namespace mete::emulator::cuda {", "const ErrorText kErrors[] = {"]
    for name, value in sorted(enumerations["CUresult"], key=lambda pair: pair[1]):
        words = re.sub(r"^CUDA_(ERROR_)?", "", name).lower().replace("_", " ")
        out.append(f'    {{{value}, "{name}", "{"no error" if value == 0 else words}"}},')
    return out + ["};", "const int kErrorCount = sizeof(kErrors) / sizeof(kErrors[0]);", "}  // namespace mete::emulator::cuda"]


def symbols(functions, listed):
    out = [BANNER, "struct ListedSymbol { const char* symbol; bool implemented; };", "inline const ListedSymbol kListed[] = {"]
    out += [f'    {{"{f.symbol}", {"true" if base(f.symbol) in listed else "false"}}},' for f in functions]
    return out + ["};"]


def attributes(data_dir, numbers):
    values = {}
    for name, value, _ in generate_cuda.rows(pathlib.Path(data_dir) / "attributes.tsv"):
        if value != "board":
            values[numbers[name]] = int(value)
    out = [BANNER.replace("emulator/cuda/implemented.txt", "attributes.tsv"), '#include "emulator/cuda/exports.h"',
           "namespace mete::emulator::cuda {", "const ConstantAttribute kConstantAttributes[] = {"]
    out += [f"    {{{number}, {value}}}," for number, value in sorted(values.items())]
    return out + ["};", f"const int kConstantAttributeCount = {len(values)};", "}  // namespace mete::emulator::cuda"]


def main(argv):
    if len(argv) != 4 or argv[0] not in ("api", "exports", "errors", "symbols", "attributes"):
        sys.exit(__doc__)
    kind, data_dir, list_path, out = argv
    functions = generate_cuda.load(data_dir)
    listed, absent = implemented(list_path)
    check(functions, listed, absent, list_path)
    if kind == "attributes":
        lines = attributes(data_dir, dict(generate_cuda.enumerations(data_dir)["CUdevice_attribute"]))
    elif kind == "errors":
        lines = errors(generate_cuda.enumerations(data_dir))
    else:
        lines = {"api": api, "exports": exports, "symbols": symbols}[kind](functions, listed)
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
