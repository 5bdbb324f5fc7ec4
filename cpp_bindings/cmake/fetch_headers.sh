#!/bin/sh
# Fetches ONNX Runtime's C headers (Debian's libonnxruntime-dev, 85 kB) into a folder, without touching the system:
#
#     fetch_headers.sh FOLDER     -> FOLDER/include/onnxruntime_c_api.h
#
# The package is in Debian 13 and later. A private apt configuration asks the mirror that this machine's own apt sources name, with the
# suite replaced by trixie; packages are checked with Debian's keys as always.
set -eu

fail() { echo "fetch_headers: $1 | expected $2 | set ONNXRUNTIME_ROOT to an ONNX Runtime release instead" >&2; exit 1; }

[ $# -eq 1 ] || fail "no folder" "fetch_headers.sh FOLDER"
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ -f "$out/include/onnxruntime_c_api.h" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "no apt-get or dpkg-deb here" "a Debian-like system"

# The mirror, as deb822 ("URIs: X") or as one line ("deb [options] X suite main"); security archives hold no such package.
mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list 2>/dev/null |
    sed -n -e 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p' -e 's/^deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p' |
    grep '/debian/\{0,1\}$' | head -n 1)
[ -n "$mirror" ] || fail "apt sources without a Debian mirror" "one whose address ends in /debian"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keys" ] || fail "no $keys" "the package debian-archive-keyring"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
echo "deb [signed-by=$keys] $mirror trixie main" >"$work/sources"
cd "$work"
set -- -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/nonexistent \
    -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" \
    -o Acquire::Languages=none
apt-get "$@" update || fail "apt-get update failed" "a mirror that has trixie"
apt-get "$@" download libonnxruntime-dev || fail "libonnxruntime-dev could not be had" "a mirror that has it"
dpkg-deb -x libonnxruntime-dev_*.deb tree
header=$(find tree/usr/include -name onnxruntime_c_api.h | head -n 1)
[ -n "$header" ] || fail "a package without onnxruntime_c_api.h" "the C API's header"
# Whole or not at all: the folder appears under its name only when it is complete.
cp -R "$(dirname "$header")" "$out/include.part"
mv "$out/include.part" "$out/include"
