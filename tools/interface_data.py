"""What the generators of driver interfaces share: tables of tab-separated facts, checks of structure layouts, and a
command line of the form `generator KIND DATA_DIR OUT`."""
import pathlib
import sys


def rows(path):
    """The rows of a table, without comments and empty lines."""
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def layout(data_dir, before):
    """Static assertions that the structures which the lines `before` declare have the layout of layout.tsv."""
    out = ["#include <cstddef>"] + before
    for struct, field, size in rows(pathlib.Path(data_dir) / "layout.tsv"):
        if field == "-":
            out.append(f'static_assert(sizeof({struct}) == {size}, "{struct}");')
        else:
            out.append(f'static_assert(offsetof({struct}, {field}) == {size}, "{struct}.{field}");')
    return "\n".join(out) + "\n"


def run(arguments, kinds, usage):
    """Writes what kinds[KIND] makes of DATA_DIR to OUT."""
    if len(arguments) != 3 or arguments[0] not in kinds:
        sys.exit(usage)
    kind, data_dir, out = arguments
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kinds[kind](data_dir))
