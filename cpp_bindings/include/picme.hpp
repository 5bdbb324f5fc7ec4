// PICME for C++17: picme.h with RAII, views and exceptions. Header only; link libpicme.
//
//     picme::Completer completer("pets256.picme");
//     picme::Scene scene = completer.encode({rgb.data(), 640, 480}, {mask.data()});
//     for (const picme::Completion &result : scene.sample(6, 7)) save(result.pixels, result.token);
//
// Handles are move-only. The rules of picme.h about threads hold. Every failure is a picme::Error.
#pragma once

#include "picme.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace picme {

class Error : public std::runtime_error {
public:
    explicit Error(picme_status status) : std::runtime_error(picme_last_error()), status_(status) {}

    picme_status status() const noexcept { return status_; }

private:
    picme_status status_;
};

inline void check(picme_status status) {
    if (status != PICME_OK) throw Error(status);
}

// A struct of picme.h with its defaults, such as initialised(picme_sample_params_init).
template <typename Struct>
Struct initialised(picme_status (*init)(Struct *, std::size_t)) {
    Struct defaults{};
    check(init(&defaults, sizeof defaults));
    return defaults;
}

// Pixels that the caller owns; stride 0 = no gaps between rows.
struct ImageView {
    const std::uint8_t *pixels;
    int width, height;
    picme_format format = PICME_RGB8;
    std::size_t stride = 0;
};

// A mask of the photo's size: 255 = hole. No pixels: the photo's transparent pixels are the hole.
struct MaskView {
    const std::uint8_t *pixels = nullptr;
    std::size_t stride = 0;
};

// Where a result is written to.
struct OutputView {
    std::uint8_t *pixels;
    std::size_t bytes;
    std::size_t stride = 0;
};

// Everything about a result except its pixels.
struct Details {
    int primitive = -1;
    double weight = 0, log_density = 0, decode_ms = 0;
    std::string token;
};

// A result that owns its pixels: no gaps between rows, in the photo's format.
struct Completion : Details {
    std::vector<std::uint8_t> pixels;
};

struct LoadOptions {
    std::string runtime;               // ONNX Runtime library; empty: environment PICME_ONNXRUNTIME, then where the loader looks
    std::string provider = "auto";     // or "cpu", "cuda", "tensorrt", "rtx"
    int threads = 0;                   // 0: one per core
    std::string precision = "float32"; // or "int8" or "float16" if the bundle has it
};

struct SampleOptions {
    picme_strategy strategy = PICME_DIVERSE;
    int primitive = -1; // -1: any
    float temperature = 1;
};

// A photo that was encoded once. Immutable.
class Scene {
public:
    explicit Scene(picme_scene *handle) : handle(handle) {}

    picme_scene_info info() const {
        picme_scene_info description = initialised(picme_scene_info_init);
        check(picme_scene_describe(handle.get(), &description));
        return description;
    }

    std::vector<double> weights() const {
        std::vector<double> values(static_cast<std::size_t>(info().primitives));
        check(picme_scene_weights(handle.get(), values.data(), values.size()));
        return values;
    }

    std::vector<Completion> sample(int n, std::uint64_t seed, const SampleOptions &options = {}) const {
        const picme_sample_params params = sampling(n, seed, options);
        return collect(n, [&](picme_result *results) { return picme_sample(handle.get(), &params, results); });
    }

    // One result into the caller's memory, for video.
    Details sample_into(const OutputView &output, std::uint64_t seed, const SampleOptions &options = {}) const {
        const picme_sample_params params = sampling(1, seed, options);
        picme_result result = initialised(picme_result_init);
        result.pixels = output.pixels, result.bytes = output.bytes, result.stride = output.stride;
        check(picme_sample(handle.get(), &params, &result));
        return details(result);
    }

    std::vector<Completion> variations(const std::string &token, int n, float strength, std::uint64_t seed) const {
        picme_variation_params params = initialised(picme_variation_params_init);
        params.n = n, params.strength = strength, params.seed = seed;
        return collect(n, [&](picme_result *results) { return picme_variations(handle.get(), token.c_str(), &params, results); });
    }

    Completion replay(const std::string &token) const {
        return std::move(collect(1, [&](picme_result *result) { return picme_replay(handle.get(), token.c_str(), result); }).front());
    }

    std::vector<Completion> interpolate(const std::string &first, const std::string &second, int steps) const {
        return collect(
            steps, [&](picme_result *results) { return picme_interpolate(handle.get(), first.c_str(), second.c_str(), steps, results); });
    }

private:
    struct Destroy {
        void operator()(picme_scene *scene) const { picme_scene_destroy(&scene); }
    };
    std::unique_ptr<picme_scene, Destroy> handle;

    static picme_sample_params sampling(int n, std::uint64_t seed, const SampleOptions &options) {
        picme_sample_params params = initialised(picme_sample_params_init);
        params.n = n, params.seed = seed, params.strategy = options.strategy, params.primitive = options.primitive,
        params.temperature = options.temperature;
        return params;
    }

    static Details details(const picme_result &result) {
        return {result.primitive, result.weight, result.log_density, result.decode_ms, result.token};
    }

    template <typename Call>
    std::vector<Completion> collect(int n, Call call) const {
        const picme_scene_info about = info();
        const std::size_t channels = about.format == PICME_GRAY8 ? 1 : about.format == PICME_RGB8 || about.format == PICME_BGR8 ? 3 : 4;
        const std::size_t bytes = static_cast<std::size_t>(about.width) * static_cast<std::size_t>(about.height) * channels;
        const std::size_t count = n > 0 && n <= PICME_MAX_RESULTS ? static_cast<std::size_t>(n) : 1; // the library refuses any other n
        std::vector<Completion> completions(count);
        std::vector<picme_result> results;
        for (Completion &completion : completions) {
            completion.pixels.resize(bytes);
            results.push_back(initialised(picme_result_init));
            results.back().pixels = completion.pixels.data(), results.back().bytes = bytes;
        }
        check(call(results.data()));
        for (std::size_t i = 0; i < count; ++i) static_cast<Details &>(completions[i]) = details(results[i]);
        return completions;
    }
};

// A loaded model.
class Completer {
public:
    explicit Completer(const std::string &bundle, const LoadOptions &options = {}) {
        picme_load_params params = initialised(picme_load_params_init);
        params.bundle = bundle.c_str(), params.provider = options.provider.c_str(), params.threads = options.threads;
        params.precision = options.precision.c_str();
        if (!options.runtime.empty()) params.runtime = options.runtime.c_str();
        picme_completer *completer = nullptr;
        check(picme_load(&params, &completer));
        handle.reset(completer);
    }

    picme_completer_info info() const {
        picme_completer_info description = initialised(picme_completer_info_init);
        check(picme_completer_describe(handle.get(), &description));
        return description;
    }

    // context: smallest side, in photo pixels, of the square that the model sees around a hole; 0: its own resolution.
    Scene encode(const ImageView &photo, const MaskView &mask, int context = 0) const {
        picme_encode_params params = initialised(picme_encode_params_init);
        params.pixels = photo.pixels, params.width = photo.width, params.height = photo.height, params.format = photo.format,
        params.stride = photo.stride;
        params.mask = mask.pixels, params.mask_stride = mask.stride, params.context = context;
        picme_scene *scene = nullptr;
        check(picme_encode(handle.get(), &params, &scene));
        return Scene(scene);
    }

private:
    struct Destroy {
        void operator()(picme_completer *completer) const { picme_completer_destroy(&completer); }
    };
    std::unique_ptr<picme_completer, Destroy> handle;
};

} // namespace picme
