#!/bin/bash
# What only a real driver can tell about interception: that every way of looking a function up leads to the same place, how
# large granules and contexts are, that shares of 30 and 70 % are that, and that a program of the CUDA runtime that knows
# nothing of mete stops at its quota.
#
#   tests/gpu/interception.sh [--driver-root DIR] [--seconds N]
#
# Needs a built tree (./check, or cmake --build --preset release) and a GPU on which nothing else runs. METE_BUILD names
# another build folder. One line a check: held, BROKEN or skipped, with what was seen. Exit 0: nothing was broken; 1:
# something was; 77: skipped, no GPU here. --driver-root makes it look at another driver, an emulated node's for instance:
# what it then says of the driver is about that one.
set -uo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${METE_BUILD:-$here/build/release} seconds=10 root=()
while [ $# -gt 0 ]; do
  case "$1" in
    --driver-root) root=(--driver-root "${2:?--driver-root needs a folder}"); shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    *) sed -n '6s/^# *//p' "$0" >&2; exit 2 ;;
  esac
done
PATH=$build/bin:$build/tests:$PATH
for program in mete mete-load gpu-probe; do
  command -v "$program" >/dev/null || { echo "$program is not in $build: build it first (cmake --build --preset release)" >&2; exit 2; }
done

skip() { echo "skipped: $*"; exit 77; }
broken=0
say() { printf '%-8s %-22s %s\n' "$1" "$2" "$3"; [ "$1" != BROKEN ] || broken=1; }
value() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Where is a driver? The same rule as mete's own, without the emulated nodes that happen to be up.
if [ ${#root[@]} -eq 0 ]; then
  [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || skip "there is no NVIDIA GPU here (/dev/nvidiactl is missing); run it on a machine with one"
  root=(--driver-root /)
fi
inventory=$(mete inventory --json "${root[@]}" 2>&1) || skip "mete finds no usable driver: $inventory"
names=$(python3 -c 'import json, sys; print(", ".join(g["name"] for g in json.load(sys.stdin)["gpus"]))' <<<"$inventory") || skip "mete inventory says: $inventory"
echo "on $names"

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
run() { mete run "${root[@]}" "$@"; }
bare() {  # without mete
  if [ "${root[1]}" = / ]; then "$@"; else LD_LIBRARY_PATH=${root[1]}/usr/lib/x86_64-linux-gnu "$@"; fi
}

# Routes of a look-up, in a share and without: the bare driver decides what is right.
if seen=$(run --memory 1GiB -- gpu-probe look-ups "$here/data/cuda/functions.tsv" 2>"$work/error"); then
  different=$(value different <<<"$seen")
  if [ "$different" = "[]" ]; then say held look-ups "$(value compared <<<"$seen") functions, the same by dlsym and by cuGetProcAddress"
  else say BROKEN look-ups "differ by route: $different"; fi
else say BROKEN look-ups "$(cat "$work/error")"; fi

# Granules: the steps that mete charges in are no smaller than those that the driver takes.
if seen=$(run --memory 4GiB -- gpu-probe granule 2>"$work/error") && driver=$(bare gpu-probe granule 2>"$work/error"); then
  text="small blocks: the driver takes steps of $(value small <<<"$driver"), mete charges $(value small <<<"$seen"); 3 MiB: $(value large <<<"$driver") and $(value large <<<"$seen")"
  if [ "$(value small <<<"$seen")" -ge "$(value small <<<"$driver")" ] && [ "$(value large <<<"$seen")" -ge "$(value large <<<"$driver")" ]; then say held granule "$text"
  else say BROKEN granule "$text"; fi
else say BROKEN granule "$(cat "$work/error")"; fi

# A context: mete's charge against the driver's count of the process.
mkfifo "$work/end"
run --name mete-context-probe --memory 4GiB -- gpu-probe context <"$work/end" >"$work/context" 2>"$work/error" &
exec 9>"$work/end"
until [ -s "$work/context" ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
if [ -s "$work/context" ]; then
  sleep 3  # audits
  shown=$(mete share show mete-context-probe --json "${root[@]}")
  charged=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["processes"][0]["memory_bytes"][0] >> 20)' <<<"$shown")
  taken=$(run --share mete-context-probe -- nvidia-smi --query-compute-apps=used_memory --format=csv,noheader,nounits 2>/dev/null | sort -n | tail -1)
  if [ -n "$charged" ] && [ "$charged" -gt 0 ]; then say held context "charged with $charged MiB after an audit; nvidia-smi in the share says ${taken:-nothing} MiB"
  else say BROKEN context "a process with a context is charged with ${charged:-nothing}"; fi
else say BROKEN context "$(cat "$work/error")"; fi
exec 9>&-
wait

# Shares of time, by the work that was done.
if said=$(run --memory 2GiB -- mete-load calibrate --kernel-ms 1 --json 2>"$work/error"); then
  load=(mete-load compute --iterations "$(value iterations <<<"$said")" --kernel-ms "$(value kernel_ms <<<"$said")" --seconds "$seconds" --json)
  for share in 30 70; do run --memory 2GiB --compute $share% -- "${load[@]}" >"$work/$share" 2>"$work/error.$share" & done
  wait
  got=$(python3 - "$work/30" "$work/70" 2>"$work/error" <<'EOF'
import json, sys
shares = []
for path in sys.argv[1:]:
    said = json.load(open(path))
    shares.append(100 * said["gpu_ms"] / (1000 * said["seconds"]))
print(" / ".join(f"{share:.1f}" for share in shares), "%")
sys.exit(0 if abs(shares[0] - 30) <= 5 and abs(shares[1] - 70) <= 5 else 1)
EOF
  ) && say held shares "$got, asked 30 / 70" || say BROKEN shares "${got:-nothing was measured: $(cat "$work"/error*)}, asked 30 / 70, tolerance 5 points"
else say BROKEN shares "no calibration: $(cat "$work/error")"; fi

# A program of the CUDA runtime, unmodified.
cudart=
for name in libcudart.so.13 libcudart.so.12 libcudart.so.11.0 libcudart.so; do
  cudart=$(ldconfig -p 2>/dev/null | awk -v name="$name" '$1 == name { print $NF; exit }')
  [ -n "$cudart" ] || cudart=$(find /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib -name "$name" 2>/dev/null | head -1)
  [ -z "$cudart" ] || break
done
if [ -z "$cudart" ]; then say skipped runtime "no libcudart on this machine"
elif seen=$(run --memory 2GiB -- gpu-probe runtime "$cudart" 2>"$work/error"); then
  got=$(($(value got <<<"$seen") >> 20)) error=$(value error <<<"$seen")
  if [ "$error" = 2 ] && [ "$got" -le 2048 ] && [ "$got" -ge 1024 ]; then say held runtime "$cudart got $got MiB of a quota of 2048 and then cudaErrorMemoryAllocation"
  elif [ "$got" = 0 ]; then say skipped runtime "$cudart cannot use this driver (cudaMalloc answered $error)"
  else say BROKEN runtime "$cudart got $got MiB of a quota of 2048 and then error $error"; fi
else say BROKEN runtime "$(cat "$work/error")"; fi
exit $broken
