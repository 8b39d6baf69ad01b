#!/bin/sh
# Builds the fake libnvidia-ml.so.1.
#
#   build.sh OUT [SYMBOL…]
#
# OUT is the library to write. Every SYMBOL is left out, as in the NVML of an older driver. The header comes from the
# go-nvml module that go.mod pins, so that the library has exactly the functions the agent may bind; those not written
# here return NVML_ERROR_NOT_SUPPORTED.
set -eu
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
: "${CC:=gcc}"
header=$(cd "$here" && go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
flags="-std=gnu11 -O2 -fPIC -fvisibility=default -Wall -Wextra -Wno-deprecated-declarations -DNVML_NO_UNVERSIONED_FUNC_DEFS=1 -isystem $header"

for c in profile load device instance place telemetry fault; do
	"$CC" $flags -c -o "$tmp/$c.o" "$here/$c.c"
done

grep -E '^(DEPRECATED\([0-9.]*\) )?(nvmlReturn_t +DECLDIR|const DECLDIR char\*) +nvml' "$header/nvml.h" |
	sed -E 's/^.*[ *](nvml[A-Za-z0-9_]+) *\(.*$/\1/' | sort -u >"$tmp/declared"
nm -g --defined-only "$tmp"/*.o | awk '$2 == "T" && $3 ~ /^nvml/ { print $3 }' | sort -u >"$tmp/written"
comm -23 "$tmp/declared" "$tmp/written" | sed 's/.*/int &(void);\nint &(void) { return 3; }/' >"$tmp/stubs.c"
"$CC" -std=gnu11 -O2 -fPIC -Wall -c -o "$tmp/stubs.o" "$tmp/stubs.c"

{
	echo '{ global: nvml*; muster_fake_nvml; local: *;'
	for symbol in "$@"; do echo "$symbol;"; done
	echo '};'
} >"$tmp/exports"
"$CC" -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script="$tmp/exports" -o "$tmp/lib" "$tmp"/*.o -lpthread
mkdir -p "$(dirname "$out")"
mv -f "$tmp/lib" "$out"
