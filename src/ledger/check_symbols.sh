#!/bin/sh
# check_symbols.sh NM LIBRARY: fails if the library needs anything of the C++ runtime. Our own names are fine.
symbols=$("$1" -u "$2") || exit 1
needed=$(printf '%s\n' "$symbols" | awk '$1 == "U" {print $2}' | grep -E '^(_Z|__cxa_|__gxx_|_Unwind_)' | grep -vE '^_ZNK?4mete')
[ -z "$needed" ] && exit 0
echo "$2 needs symbols of the C++ runtime:" >&2
printf '%s\n' "$needed" | sort -u >&2
exit 1
