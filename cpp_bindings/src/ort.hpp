// ONNX Runtime: the library opened at run time, and one session per graph. Nothing here is linked: the host application picks the build.
#pragma once

#include "bundle.hpp"

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <memory>
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
    int cores;          // that decode side by side; 1 on a GPU
    int batch;          // results that one decoder call should make
    Ort::Env env;
    Graph encoder, mixture;

    Backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads);

    // Squares [n, s, s, 3], one after the other, for latents z [n, d]. A result a core as far as there is one for every core (threads that
    // share a result wait for each other at every operator); what is left is decoded by all cores together.
    std::vector<std::uint8_t> decode(std::vector<float> &z, const std::vector<Ort::Value> &skips) const;

private:
    Graph together;
    std::unique_ptr<Graph> alone; // on one thread; none where there is one core

    void decode(const Graph &graph, float *z, std::int64_t n, const std::vector<Ort::Value> &skips, std::uint8_t *squares) const;
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
