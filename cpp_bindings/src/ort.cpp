// Sessions, their options, and the check that they match the manifest.
#include "ort.hpp"

#include "failure.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>

namespace picme {
namespace {

struct Provider {
    const char *device, *name;
};

// Best first.
constexpr Provider PROVIDERS[] = {{"tensorrt", "TensorrtExecutionProvider"},
                                  {"rtx", "NvTensorRTRTXExecutionProvider"},
                                  {"cuda", "CUDAExecutionProvider"},
                                  {"cpu", "CPUExecutionProvider"}};

Failure unavailable(const std::string &given, const std::string &expected) {
    return {PICME_BACKEND_UNAVAILABLE, given, expected, "give an ONNX Runtime library that was built with it, or use provider cpu"};
}

std::string first_line(const char *text) {
    std::string line(text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    return line.substr(0, 160);
}

// Appending a provider that can't be loaded is an error in the C interface, unlike in Python's.
void append(Ort::SessionOptions &options, const std::string &device) {
    const OrtApi &api = Ort::GetApi();
    if (device == "cuda") {
        OrtCUDAProviderOptionsV2 *raw = nullptr;
        Ort::ThrowOnError(api.CreateCUDAProviderOptions(&raw));
        const std::unique_ptr<OrtCUDAProviderOptionsV2, decltype(api.ReleaseCUDAProviderOptions)> own(raw, api.ReleaseCUDAProviderOptions);
        options.AppendExecutionProvider_CUDA_V2(*own);
    } else if (device == "tensorrt") {
        OrtTensorRTProviderOptionsV2 *raw = nullptr;
        Ort::ThrowOnError(api.CreateTensorRTProviderOptions(&raw));
        const std::unique_ptr<OrtTensorRTProviderOptionsV2, decltype(api.ReleaseTensorRTProviderOptions)> own(
            raw, api.ReleaseTensorRTProviderOptions);
        options.AppendExecutionProvider_TensorRT_V2(*own);
    } else if (device == "rtx") {
        options.AppendExecutionProvider("NvTensorRtRtx");
    }
}

Ort::SessionOptions options_for(const std::string &device, int threads) {
    Ort::SessionOptions options;
    options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL); // errors come as exceptions
    options.SetIntraOpNumThreads(threads);
    // Each session has its own threads. Without this they keep spinning after a run and take the cores from the next graph.
    options.AddConfigEntry("session.force_spinning_stop", "1");
    try {
        append(options, device);
    } catch (const Ort::Exception &error) {
        throw unavailable("ONNX Runtime with " + device + ": " + first_line(error.what()), "a working provider " + device);
    }
    return options;
}

using Signature = std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>>>;

std::string type_name(ONNXTensorElementDataType type) {
    switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return "uint8";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return "float32";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return "float16";
    default: return "another type";
    }
}

void check_signature(Signature actual, const std::vector<Tensor> &tensors, const std::string &file) {
    Signature expected;
    for (const Tensor &tensor : tensors) expected.emplace_back(tensor.name, tensor.dtype, tensor.shape);
    std::sort(actual.begin(), actual.end());
    std::sort(expected.begin(), expected.end());
    if (actual != expected)
        throw bad_bundle(file + " has other tensors than picme.json lists", "the tensors of the manifest", "export the bundle again");
}

// What the host relies on: the table "The three graphs" of docs/deploy/bundle.md.
void check_contract(const Manifest &manifest, const std::string &precision) {
    const std::int64_t s = manifest.image_size, k = manifest.primitives, d = manifest.latent;
    const GraphFile &encoder = manifest.graph("encoder", precision), &mixture = manifest.graph("mixture"),
                    &decoder = manifest.graph("decoder", precision);
    const char *between = encoder.precision == "float16" ? "float16" : "float32"; // skips only; everything else has one type
    const auto same = [](const Tensor &tensor, const char *name, const char *dtype, const std::vector<std::int64_t> &shape) {
        return tensor.name == name && tensor.dtype == dtype && tensor.shape == shape;
    };
    std::vector<Tensor> outputs = encoder.outputs; // context, skips, and maybe the flag that all of them are finite
    const bool flagged = !outputs.empty() && outputs.back().name == "finite";
    bool good = !flagged || same(outputs.back(), "finite", "uint8", {1});
    if (flagged) outputs.pop_back();
    good = good && encoder.inputs.size() == 2 && outputs.size() >= 1 && mixture.inputs.size() == 1 && mixture.outputs.size() == 3 &&
           decoder.inputs.size() == outputs.size() && decoder.outputs.size() == 1;
    good = good && same(encoder.inputs[0], "image", "uint8", {1, s, s, 3}) && same(encoder.inputs[1], "mask", "uint8", {1, s, s, 1}) &&
           same(decoder.inputs[0], "z", "float32", {VARIES, d}) && same(decoder.outputs[0], "image", "uint8", {VARIES, s, s, 3}) &&
           same(mixture.outputs[0], "log_weights", "float32", {1, k}) && same(mixture.outputs[1], "means", "float32", {1, k, d}) &&
           same(mixture.outputs[2], "log_scales", "float32", {1, k, d}) && outputs[0].shape.size() == 2 &&
           same(mixture.inputs[0], "context", "float32", outputs[0].shape) && same(outputs[0], "context", "float32", outputs[0].shape);
    for (std::size_t i = 1; good && i < outputs.size(); ++i) {
        const std::string skip = "skip_" + std::to_string(i - 1);
        good = same(outputs[i], skip.c_str(), between, decoder.inputs[i].shape) &&
               same(decoder.inputs[i], skip.c_str(), between, decoder.inputs[i].shape);
        for (const std::int64_t size : decoder.inputs[i].shape) good = good && size != VARIES;
    }
    if (!good) throw bad_bundle("picme.json: graphs with other tensors", "the three graphs of docs/deploy/bundle.md", "export the bundle again");
}

// Everything is read and checked before ONNX Runtime sees a byte of it.
Graph open_graph(const Ort::Env &env, const Bundle &bundle, const char *graph, const std::string &precision, const std::string &device,
                 int threads) {
    const GraphFile &entry = bundle.manifest().graph(graph, precision);
    const std::string model = bundle.read(entry);
    const Ort::SessionOptions options = options_for(device, threads);
    try {
        return Graph(env, model, entry, options);
    } catch (const Ort::Exception &error) {
        if (device != "cpu")
            throw unavailable("ONNX Runtime with " + device + ": " + first_line(error.what()), "a working provider " + device);
        throw bad_bundle(entry.file + ": " + first_line(error.what()), "a graph that ONNX Runtime loads",
                         "update ONNX Runtime, or export again");
    }
}

} // namespace

Graph::Graph(const Ort::Env &env, const std::string &model, const GraphFile &entry, const Ort::SessionOptions &options)
    : entry_(entry), session(env, model.data(), model.size(), options) {
    const Ort::AllocatorWithDefaultOptions allocator;
    Signature inputs, outputs;
    const auto describe = [](const Ort::AllocatedStringPtr &name, const Ort::TypeInfo &type) {
        const bool tensor = type.GetONNXType() == ONNX_TYPE_TENSOR;
        return Signature::value_type(name.get(), tensor ? type_name(type.GetTensorTypeAndShapeInfo().GetElementType()) : "no tensor",
                                     tensor ? type.GetTensorTypeAndShapeInfo().GetShape() : std::vector<std::int64_t>{});
    };
    for (std::size_t i = 0; i < session.GetInputCount(); ++i)
        inputs.push_back(describe(session.GetInputNameAllocated(i, allocator), session.GetInputTypeInfo(i)));
    for (std::size_t i = 0; i < session.GetOutputCount(); ++i)
        outputs.push_back(describe(session.GetOutputNameAllocated(i, allocator), session.GetOutputTypeInfo(i)));
    check_signature(std::move(inputs), entry_.inputs, entry_.file);
    check_signature(std::move(outputs), entry_.outputs, entry_.file);
    for (const Tensor &tensor : entry_.inputs) input_names.push_back(tensor.name.c_str());
    for (const Tensor &tensor : entry_.outputs) output_names.push_back(tensor.name.c_str());
}

std::vector<Ort::Value> Graph::run(const std::vector<const OrtValue *> &inputs) const {
    std::vector<OrtValue *> values(output_names.size(), nullptr);
    Ort::ThrowOnError(Ort::GetApi().Run(session, nullptr, input_names.data(), inputs.data(), inputs.size(), output_names.data(),
                                        values.size(), values.data()));
    std::vector<Ort::Value> outputs;
    for (OrtValue *value : values) outputs.emplace_back(value);
    for (std::size_t i = 0; i < outputs.size(); ++i) { // a graph need not produce the shapes that it declares
        const auto shape = outputs[i].GetTensorTypeAndShapeInfo().GetShape();
        const auto &wanted = entry_.outputs[i].shape;
        const bool fits = shape.size() == wanted.size() && std::equal(shape.begin(), shape.end(), wanted.begin(),
                                                                      [](std::int64_t a, std::int64_t b) { return b == VARIES || a == b; });
        if (!fits)
            throw bad_bundle(entry_.file + " gave '" + entry_.outputs[i].name + "' in another shape", "the shape of the manifest",
                             "export the bundle again");
    }
    return outputs;
}

Backend::Backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads)
    : device(device), cores(device != "cpu" ? 1
                            : threads       ? threads
                                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
      // A CPU gains nothing from larger batches, which cost memory.
      batch(std::min(device == "cpu" ? (8 + cores - 1) / cores * cores : 64, bundle.manifest().max_batch)),
      env(ORT_LOGGING_LEVEL_FATAL, "picme"), encoder(open_graph(env, bundle, "encoder", precision, device, threads)),
      mixture(open_graph(env, bundle, "mixture", precision, device, 1)), // too small for several threads
      decoder(open_graph(env, bundle, "decoder", precision, device, threads)) {
    if (cores > 1 && cores <= batch) single_thread = std::make_unique<Graph>(open_graph(env, bundle, "decoder", precision, device, 1));
}

std::vector<std::uint8_t> Backend::decode(std::vector<float> &z, const std::vector<Ort::Value> &skips) const {
    const auto d = static_cast<std::size_t>(decoder.entry().inputs[0].shape[1]), n = z.size() / d;
    const std::vector<std::int64_t> &shape = decoder.entry().outputs[0].shape;
    const auto bytes = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]);
    std::vector<std::uint8_t> squares(n * bytes);
    const std::size_t in_parallel = single_thread ? n - n % static_cast<std::size_t>(cores) : 0;
    std::atomic<std::size_t> next{0};
    std::mutex failing;
    std::exception_ptr failure;
    const auto work = [&]() noexcept {
        for (std::size_t i = next++; i < in_parallel; i = next++) {
            try {
                decode(*single_thread, z.data() + i * d, 1, skips, squares.data() + i * bytes);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(failing);
                failure = std::current_exception();
                next = in_parallel; // no thread starts another one
            }
        }
    };
    std::vector<std::thread> helpers;
    helpers.reserve(static_cast<std::size_t>(cores)); // nothing may throw between a thread's start and its join
    try {
        if (in_parallel)
            for (int i = 1; i < cores; ++i) helpers.emplace_back(work);
    } catch (const std::exception &) {
        // The system has no more threads or memory for one: fewer threads do the same work.
    }
    work();
    for (std::thread &thread : helpers) thread.join();
    if (failure) std::rethrow_exception(failure);
    if (in_parallel < n)
        decode(decoder, z.data() + in_parallel * d, static_cast<std::int64_t>(n - in_parallel), skips,
               squares.data() + in_parallel * bytes);
    return squares;
}

void Backend::decode(const Graph &graph, float *z, std::int64_t n, const std::vector<Ort::Value> &skips, std::uint8_t *squares) const {
    const Ort::Value latents = tensor_over(z, {n, graph.entry().inputs[0].shape[1]});
    std::vector<const OrtValue *> inputs{latents};
    for (const Ort::Value &skip : skips) inputs.push_back(skip);
    const Ort::Value images = std::move(graph.run(inputs).front());
    const auto shape = images.GetTensorTypeAndShapeInfo();
    if (shape.GetShape()[0] != n)
        throw bad_bundle("a decoder with another number of results", std::to_string(n), "export the bundle again");
    std::copy_n(images.GetTensorData<std::uint8_t>(), shape.GetElementCount(), squares);
}

std::unique_ptr<Backend> open_backend(const Bundle &bundle, const std::string &device, const std::string &precision, int threads) {
    if (!bundle.manifest().has(precision))
        throw bad_argument("precision '" + precision.substr(0, 40) + "'", "one that the bundle has", "use float32, or export with it");
    check_contract(bundle.manifest(), precision);
    const std::vector<std::string> built_in = Ort::GetAvailableProviders();
    for (const Provider &provider : PROVIDERS) {
        if (device != "auto" && device != provider.device) continue;
        const bool there = std::find(built_in.begin(), built_in.end(), provider.name) != built_in.end();
        if (device != "auto" && !there) throw unavailable("ONNX Runtime without " + std::string(provider.name), provider.name);
        if (!there) continue;
        try {
            return std::make_unique<Backend>(bundle, provider.device, precision, threads);
        } catch (const Failure &failure) {
            if (device != "auto" || failure.status != PICME_BACKEND_UNAVAILABLE) throw;
        }
    }
    if (device == "auto") throw unavailable("ONNX Runtime without any provider", "CPUExecutionProvider");
    throw bad_argument("provider '" + device + "'", "one that picme.h lists", "choose another");
}

} // namespace picme
