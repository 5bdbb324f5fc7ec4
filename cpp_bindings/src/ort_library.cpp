// Finds and opens the ONNX Runtime library. It stays open until the process ends, as ONNX Runtime requires.
#include "failure.hpp"
#include "ort.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

namespace picme {
namespace {

#ifdef __APPLE__
constexpr const char *PLACES[] = {"libonnxruntime.1.dylib", "libonnxruntime.dylib"};
#else
constexpr const char *PLACES[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
#endif

Failure unavailable(const std::string &given) {
    return {PICME_BACKEND_UNAVAILABLE, given, "an ONNX Runtime library, 1." + std::to_string(ORT_API_VERSION) + " or later",
            "install one, and pass its path or set PICME_ONNXRUNTIME"};
}

void *open_library(const char *path) {
    constexpr int HOW = RTLD_NOW | RTLD_LOCAL;
    if (!path) path = std::getenv("PICME_ONNXRUNTIME");
    if (path && *path) {
        if (void *library = dlopen(path, HOW)) return library;
        const char *why = dlerror();
        throw unavailable(why ? why : path);
    }
    for (const char *place : PLACES)
        if (void *library = dlopen(place, HOW)) return library;
    throw unavailable("no ONNX Runtime library where the loader looks");
}

// GetApi(21) of a library that is too old prints a line and returns NULL, so its version is checked first.
const OrtApi *api_of(void *library, std::string &version) {
    using Entry = const OrtApiBase *(ORT_API_CALL *)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "OrtGetApiBase"));
    const OrtApiBase *base = entry ? entry() : nullptr;
    if (!base) throw unavailable("a library without OrtGetApiBase");
    version = base->GetVersionString();
    const std::size_t dot = version.find('.');
    if (dot == version.npos || std::atoi(version.c_str()) != 1 || std::atoi(version.c_str() + dot + 1) < ORT_API_VERSION)
        throw unavailable("ONNX Runtime " + version);
    const OrtApi *api = base->GetApi(ORT_API_VERSION);
    if (!api) throw unavailable("ONNX Runtime " + version);
    return api;
}

} // namespace

std::string open_runtime(const char *path) {
    static std::mutex guard;
    static void *opened = nullptr; // one per process, because the C++ wrapper keeps the function table in a global
    static std::string version;
    const std::lock_guard<std::mutex> lock(guard);
    if (opened && !(path && *path)) return version;
    void *library = open_library(path);
    if (library == opened) {
        dlclose(library); // only lowers the reference count
        return version;
    }
    if (opened) {
        dlclose(library);
        throw Failure(PICME_BACKEND_UNAVAILABLE, std::string(path) + " beside another ONNX Runtime", "one library per process",
                      "use the first one everywhere");
    }
    try {
        Ort::InitApi(api_of(library, version));
    } catch (...) {
        dlclose(library);
        throw;
    }
    opened = library;
    return version;
}

} // namespace picme
