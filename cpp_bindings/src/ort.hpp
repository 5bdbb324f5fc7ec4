// ONNX Runtime: the library opened at run time, and one session per graph. Nothing here is linked: the host application picks the build.
#pragma once

#include "bundle.hpp"

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include <string>
#include <utility>
#include <vector>

namespace picme {

// One graph of the bundle, ready to run. `run` may be called from several threads at once.
class Graph {
public:
    Graph(const Ort::Env &env, const std::string &model, const GraphFile &entry, const Ort::SessionOptions &options);

    // Inputs in the manifest's order; so are the outputs.
    std::vector<Ort::Value> run(const std::vector<const OrtValue *> &inputs) const;
    const GraphFile &entry() const { return entry_; }

private:
    GraphFile entry_;
    mutable Ort::Session session; // Run is not const in ONNX Runtime's wrapper, but thread-safe
    std::vector<const char *> input_names, output_names;
};

// The three graphs on one device.
struct Backend {
    std::string device; // such as "cpu"
    int batch;          // results that one decoder call should make
    Ort::Env env;
    Graph encoder, mixture, decoder;

    Backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads);
};

// Opens the library once a process: `path`, else the environment's PICME_ONNXRUNTIME, else where the loader looks. Gives its version.
std::string open_runtime(const char *path);
// A named device ("cpu", "cuda", "tensorrt", "rtx") or the best that works ("auto").
std::unique_ptr<Backend> open_backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads);

// A tensor over memory that the caller keeps.
template <typename T>
Ort::Value tensor_over(T *data, const std::vector<std::int64_t> &shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    return Ort::Value::CreateTensor<T>(memory, data, count, shape.data(), shape.size());
}

} // namespace picme
