#!/bin/sh
# Builds the C and C++ library into build/cpp and runs its tests: what `make cpp` does. With "fuzz" it builds the libFuzzer targets into
# build/cpp-fuzz instead: what `make fuzz` needs.
#
# Missing tools are installed where this user may (root on a Debian-like system). Where they can't be had it says what it skipped and
# succeeds, except in CI, where nothing may be skipped.
set -eu
cd "$(dirname "$0")/.."

skip() {
    echo "C++ library skipped: $1" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
}
have() { command -v "$1" >/dev/null 2>&1; }
install() {
    if [ "$(id -u)" = 0 ] && have apt-get; then
        apt-get -qq update >/dev/null 2>&1 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
            echo "could not install $*" >&2
    fi
}

{ have c++ && have cmake && have make; } || install g++ cmake make
have c++ || skip "no C++ compiler"
{ have cmake && have make; } || skip "no cmake or make"
mkdir -p build

can_fuzz() {
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }' |
        clang++ -x c++ -fsanitize=fuzzer,address,undefined -o build/can-fuzz - >/dev/null 2>&1
}
if [ "${1:-}" = fuzz ]; then
    have clang++ || install clang
    can_fuzz || install "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
    can_fuzz || skip "no clang++ with libFuzzer"
    (cd cpp_bindings && cmake --preset fuzz && cmake --build --preset fuzz -j "${JOBS:-2}") >build/cpp-fuzz.log 2>&1 || {
        tail -n 40 build/cpp-fuzz.log >&2
        exit 1
    }
    exit 0
fi

# For the GStreamer element and the tests with ffmpeg; everything else works without.
if [ -n "${CI:-}" ]; then
    { have pkg-config && pkg-config --exists gstreamer-video-1.0 && have gst-launch-1.0 && have ffmpeg; } ||
        install pkg-config libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev gstreamer1.0-tools gstreamer1.0-plugins-base ffmpeg
fi

cmake -S cpp_bindings -B build/cpp -DCMAKE_BUILD_TYPE=Release >build/cpp.log 2>&1 || {
    tail -n 20 build/cpp.log >&2
    skip "it could not be configured; are there ONNX Runtime headers (ONNXRUNTIME_ROOT)?"
}
cmake --build build/cpp -j "${JOBS:-2}" >build/cpp.log 2>&1 || {
    tail -n 40 build/cpp.log >&2
    exit 1
}
ctest --test-dir build/cpp --output-on-failure
