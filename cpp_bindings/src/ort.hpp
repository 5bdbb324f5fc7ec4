// ONNX Runtime: the library is opened at run time, with one session per graph. Nothing is linked: the host application chooses the build.
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

    // Inputs and outputs are in the manifest's order.
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
    int cores;          // that decode in parallel; 1 on a GPU
    int batch;          // results of one decoder call
    Ort::Env env;
    Graph encoder, mixture;

    Backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads);

    // Squares [n, s, s, 3] for latents z [n, d]. As long as there is a result for every core, each core decodes its own, because threads
    // that share a result wait for each other at every operator; the remaining results are decoded by all cores together.
    std::vector<std::uint8_t> decode(std::vector<float> &z, const std::vector<Ort::Value> &skips) const;

private:
    Graph decoder;                        // on all cores
    std::unique_ptr<Graph> single_thread; // the decoder on one thread; null where there is one core

    void decode(const Graph &graph, float *z, std::int64_t n, const std::vector<Ort::Value> &skips, std::uint8_t *squares) const;
};

// Opens the library once per process: `path`, else the environment's PICME_ONNXRUNTIME, else where the loader looks. Returns its version.
std::string open_runtime(const char *path);
// A named device ("cpu", "cuda", "tensorrt", "rtx") or the best that works ("auto").
std::unique_ptr<Backend> open_backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads);

// A tensor over memory that the caller owns.
template <typename T>
Ort::Value tensor_over(T *data, const std::vector<std::int64_t> &shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    return Ort::Value::CreateTensor<T>(memory, data, count, shape.data(), shape.size());
}

} // namespace picme
