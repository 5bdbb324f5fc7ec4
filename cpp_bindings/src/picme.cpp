// The C boundary: checks arguments, turns exceptions into a status and the thread's error text. Nothing is thrown past this file.
#include "picme.h"

#include "failure.hpp"
#include "scene.hpp"

#include <cstring>
#include <new>

using picme::bad_argument;
using picme::Failure;

struct picme_completer {
    std::shared_ptr<const picme::Model> model;
};

struct picme_scene {
    picme::Scene scene;
};

namespace {

constexpr std::int64_t MOST_PIXELS = 100'000'000;
constexpr float HOTTEST = 100.0f;
constexpr int WIDEST_CONTEXT = 1 << 20, MOST_THREADS = 1024;
constexpr std::size_t WIDEST_STRIDE = std::size_t{1} << 32; // times any height it still fits

// A fixed place, so that keeping an error needs no memory.
thread_local char last_error[1024] = "";

void remember(const char *text) {
    std::strncpy(last_error, text, sizeof last_error - 1);
    last_error[sizeof last_error - 1] = '\0';
}

template <typename Work>
picme_status guarded(Work work) noexcept {
    last_error[0] = '\0';
    try {
        work();
        return PICME_OK;
    } catch (const Failure &failure) {
        remember(failure.what());
        return failure.status;
    } catch (const std::bad_alloc &) {
        remember("not enough memory | expected more | use a smaller photo or fewer results");
        return PICME_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        remember((std::string(error.what()) + " | expected no such error | please report it").c_str());
        return PICME_INTERNAL_ERROR;
    } catch (...) {
        remember("an unknown error | expected none | please report it");
        return PICME_INTERNAL_ERROR;
    }
}

// All structs are of their first version so far: `size` must be exact.
template <typename Struct>
void check_struct(const Struct *given, const char *name) {
    if (!given) throw bad_argument(std::string(name) + " is NULL", "a pointer", "pass one");
    if (given->size != sizeof(Struct))
        throw bad_argument(std::string(name) + ".size is " + std::to_string(given->size), std::to_string(sizeof(Struct)),
                           std::string("start from ") + name + "_default(), with the header of this library's version");
}

void check_pointer(const void *given, const char *name) {
    if (!given) throw bad_argument(std::string(name) + " is NULL", "a pointer", "pass one");
}

void check_range(const char *name, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
        char expected[64];
        std::snprintf(expected, sizeof expected, "%g to %g", low, high);
        throw bad_argument(std::string(name) + "=" + std::to_string(value), expected, std::string("choose another ") + name);
    }
}

std::size_t checked_stride(const char *name, std::size_t stride, std::size_t least, picme_status status) {
    if (stride == 0) return least;
    if (stride < least || stride > WIDEST_STRIDE)
        throw Failure(status, std::string(name) + "=" + std::to_string(stride),
                      std::to_string(least) + " to " + std::to_string(WIDEST_STRIDE) + " bytes", "give the bytes from row to row");
    return stride;
}

void copy_text(char *target, std::size_t size, const std::string &text) {
    const std::size_t length = std::min(size - 1, text.size());
    std::memcpy(target, text.data(), length);
    target[length] = '\0';
}

// The callers' buffers, checked before any work.
std::vector<picme::PixelView> targets(const picme::Scene &scene, const picme_result *results, int n) {
    const picme::Photo &photo = scene.photo();
    std::vector<picme::PixelView> made;
    for (int i = 0; i < n; ++i) {
        const picme_result &result = results[i];
        check_struct(&result, "picme_result");
        check_pointer(result.pixels, "result.pixels");
        const std::size_t stride = checked_stride("result.stride", result.stride, photo.row_bytes(), PICME_BAD_ARGUMENT);
        const std::size_t needed = static_cast<std::size_t>(photo.height() - 1) * stride + photo.row_bytes();
        if (result.bytes < needed)
            throw Failure(PICME_BUFFER_TOO_SMALL, "a buffer of " + std::to_string(result.bytes) + " bytes", std::to_string(needed),
                          "give a larger one");
        made.push_back({result.pixels, stride});
    }
    return made;
}

void decode(const picme::Scene &scene, const std::vector<picme::RecipePtr> &recipes, const std::vector<picme::PixelView> &views,
            picme_result *results) {
    const std::vector<picme::Completion> made = scene.decode(recipes, views);
    for (std::size_t i = 0; i < made.size(); ++i) {
        results[i].primitive = made[i].primitive;
        results[i].weight = made[i].weight;
        results[i].log_prob = made[i].log_prob;
        results[i].decode_ms = made[i].decode_ms;
        copy_text(results[i].token, sizeof results[i].token, made[i].token);
    }
}

picme::Photo checked_photo(const picme_encode_params &params) {
    check_pointer(params.pixels, "pixels");
    const int channels = picme::channels_of(params.format);
    if (channels == 0) throw bad_argument("format=" + std::to_string(params.format), "a picme_format", "choose one of them");
    const std::string shown = "a photo of " + std::to_string(params.width) + "x" + std::to_string(params.height);
    if (params.width < 1 || params.height < 1) throw Failure(PICME_BAD_IMAGE, shown, "at least one pixel", "check the photo");
    if (std::int64_t{params.width} * params.height > MOST_PIXELS)
        throw Failure(PICME_BAD_IMAGE, shown, "at most " + std::to_string(MOST_PIXELS) + " pixels", "crop or shrink it first");
    const std::size_t stride = checked_stride("stride", params.stride,
                                              static_cast<std::size_t>(params.width) * static_cast<std::size_t>(channels), PICME_BAD_IMAGE);
    return {params.pixels, stride, params.width, params.height, params.format};
}

picme::Mask checked_mask(const picme_encode_params &params, const picme::Photo &photo) {
    const auto width = static_cast<std::size_t>(params.width);
    if (params.mask)
        return {params.mask, checked_stride("mask_stride", params.mask_stride, width, PICME_BAD_MASK), params.width, params.height};
    if (!photo.has_alpha())
        throw Failure(PICME_BAD_MASK, "no mask, and a photo without alpha", "a mask, or transparent pixels as the hole", "pass a mask");
    std::vector<std::uint8_t> erased = photo.alpha();
    for (std::uint8_t &value : erased) value = static_cast<std::uint8_t>(255 - value);
    return {erased.data(), width, params.width, params.height};
}

} // namespace

const char *picme_version(void) {
#define PICME_TEXT_(x) #x
#define PICME_TEXT(x) PICME_TEXT_(x)
    return PICME_TEXT(PICME_VERSION_MAJOR) "." PICME_TEXT(PICME_VERSION_MINOR) "." PICME_TEXT(PICME_VERSION_PATCH);
}

const char *picme_last_error(void) { return last_error; }

picme_status picme_load(const picme_load_params *params, picme_completer **completer) {
    return guarded([&] {
        check_pointer(completer, "completer");
        *completer = nullptr;
        check_struct(params, "picme_load_params");
        check_pointer(params->bundle, "bundle");
        check_range("threads", params->threads, 0, MOST_THREADS);
        const std::string provider = params->provider ? params->provider : "auto";
        const std::string precision = params->precision ? params->precision : "float32";
        for (const char *known : {"auto", "cpu", "cuda", "tensorrt", "rtx"})
            if (provider == known) {
                *completer = new picme_completer{
                    std::make_shared<const picme::Model>(params->bundle, params->runtime, provider, precision, params->threads)};
                return;
            }
        throw bad_argument("provider '" + provider.substr(0, 40) + "'", "auto, cpu, cuda, tensorrt or rtx", "choose one of them");
    });
}

picme_status picme_completer_destroy(picme_completer **completer) {
    return guarded([&] {
        if (!completer) return;
        delete *completer;
        *completer = nullptr;
    });
}

picme_status picme_completer_describe(const picme_completer *completer, picme_completer_info *info) {
    return guarded([&] {
        check_pointer(completer, "completer");
        check_struct(info, "picme_completer_info");
        const picme::Model &model = *completer->model;
        copy_text(info->name, sizeof info->name, model.manifest.name);
        copy_text(info->model_id, sizeof info->model_id, model.id);
        copy_text(info->backend, sizeof info->backend, model.runtime);
        copy_text(info->device, sizeof info->device, model.backend->device);
        info->image_size = model.manifest.image_size;
        info->primitives = model.manifest.primitives;
        info->latent = model.manifest.latent;
        info->max_batch = model.manifest.max_batch;
        info->load_ms = model.load_ms;
    });
}

picme_status picme_encode(const picme_completer *completer, const picme_encode_params *params, picme_scene **scene) {
    return guarded([&] {
        check_pointer(scene, "scene");
        *scene = nullptr;
        check_pointer(completer, "completer");
        check_struct(params, "picme_encode_params");
        check_range("context", params->context, 0, WIDEST_CONTEXT);
        picme::Photo photo = checked_photo(*params);
        const picme::Mask mask = checked_mask(*params, photo);
        *scene = new picme_scene{picme::Scene(completer->model, std::move(photo), mask, params->context, !params->mask)};
    });
}

picme_status picme_scene_destroy(picme_scene **scene) {
    return guarded([&] {
        if (!scene) return;
        delete *scene;
        *scene = nullptr;
    });
}

picme_status picme_scene_describe(const picme_scene *scene, picme_scene_info *info) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_struct(info, "picme_scene_info");
        const picme::Scene &own = scene->scene;
        info->width = own.photo().width();
        info->height = own.photo().height();
        info->format = own.photo().format();
        info->holes = static_cast<std::int32_t>(own.holes());
        info->primitives = own.mixture().size();
        info->ambiguity = own.mixture().ambiguity();
        info->encode_ms = own.encode_ms();
    });
}

picme_status picme_scene_weights(const picme_scene *scene, double *weights, size_t count) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(weights, "weights");
        const picme::Mixture &mixture = scene->scene.mixture();
        if (count < static_cast<std::size_t>(mixture.size()))
            throw Failure(PICME_BUFFER_TOO_SMALL, "room for " + std::to_string(count) + " weights", std::to_string(mixture.size()),
                          "give a larger array");
        for (int i = 0; i < mixture.size(); ++i) weights[i] = mixture.weight(i);
    });
}

picme_status picme_sample(const picme_scene *scene, const picme_sample_params *params, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_struct(params, "picme_sample_params");
        check_pointer(results, "results");
        check_range("n", params->n, 1, PICME_MOST_RESULTS);
        check_range("strategy", params->strategy, PICME_CATEGORICAL, PICME_LIKELY);
        check_range("primitive", params->primitive, -1, scene->scene.mixture().size() - 1);
        check_range("temperature", params->temperature, 0, HOTTEST);
        const auto views = targets(scene->scene, results, params->n);
        decode(scene->scene, scene->scene.sample({params->n, params->seed, params->strategy, params->primitive, params->temperature}),
               views, results);
    });
}

picme_status picme_variations(const picme_scene *scene, const char *token, const picme_variation_params *params, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(token, "token");
        check_struct(params, "picme_variation_params");
        check_pointer(results, "results");
        check_range("n", params->n, 1, PICME_MOST_RESULTS);
        check_range("strength", params->strength, 0, 1);
        const auto views = targets(scene->scene, results, params->n);
        const picme::RecipePtr parent = scene->scene.recipe(token);
        std::vector<picme::RecipePtr> recipes;
        for (int i = 0; i < params->n; ++i)
            recipes.push_back(picme::variation(parent, params->seed, static_cast<std::uint32_t>(i), params->strength));
        decode(scene->scene, recipes, views, results);
    });
}

picme_status picme_replay(const picme_scene *scene, const char *token, picme_result *result) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(token, "token");
        check_pointer(result, "result");
        const auto views = targets(scene->scene, result, 1);
        decode(scene->scene, {scene->scene.recipe(token)}, views, result);
    });
}

picme_status picme_interpolate(const picme_scene *scene, const char *first, const char *second, int32_t steps, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(first, "first");
        check_pointer(second, "second");
        check_pointer(results, "results");
        check_range("steps", steps, 2, PICME_MOST_RESULTS);
        const auto views = targets(scene->scene, results, steps);
        const picme::RecipePtr a = scene->scene.recipe(first), b = scene->scene.recipe(second);
        std::vector<picme::RecipePtr> recipes;
        for (int i = 0; i < steps; ++i) recipes.push_back(picme::blend(a, b, static_cast<float>(double(i) / (steps - 1))));
        decode(scene->scene, recipes, views, results);
    });
}
