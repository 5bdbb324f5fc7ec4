// The C boundary: checks arguments, and turns exceptions into a status and the thread's error text. No exception leaves this file.
#include "picme.h"

#include "contract.hpp"
#include "failure.hpp"
#include "scene.hpp"
#include "structs.hpp"

#include <algorithm>
#include <cstring>
#include <new>

using namespace picme;

static_assert(PICME_MAX_RESULTS == MAX_RESULTS && PICME_TOKEN_SIZE > MAX_TOKEN_LENGTH);
static_assert(sizeof(picme_completer_info::knows) > 4 * MAX_KNOWS_LENGTH, "a character may take four bytes");

struct picme_completer {
    std::shared_ptr<const Model> model;
};

struct picme_scene {
    Scene scene;
};

namespace {

constexpr std::size_t MAX_STRIDE = std::size_t{1} << 32; // small enough that a multiplication by any height can't overflow

constexpr picme_load_params LOAD_PARAMS = {sizeof(picme_load_params), nullptr, nullptr, nullptr, nullptr, 0};
constexpr picme_completer_info COMPLETER_INFO = {sizeof(picme_completer_info), "", "", "", "", 0, 0, 0, 0, 0.0, ""};
constexpr picme_encode_params ENCODE_PARAMS = {sizeof(picme_encode_params), nullptr, 0, 0, PICME_RGB8, 0, 0, nullptr, 0};
constexpr picme_scene_info SCENE_INFO = {sizeof(picme_scene_info), 0, 0, 0, 0, 0, 0, 0.0, 0.0};
constexpr picme_sample_params SAMPLE_PARAMS = {
    sizeof(picme_sample_params), 0, DEFAULT_RESULTS, DEFAULT_STRATEGY, -1, static_cast<float>(DEFAULT_TEMPERATURE)};
constexpr picme_variation_params VARIATION_PARAMS = {sizeof(picme_variation_params), 0, DEFAULT_VARIATIONS,
                                                     static_cast<float>(DEFAULT_STRENGTH)};
constexpr picme_result RESULT = {sizeof(picme_result), nullptr, 0, 0, -1, 0, 0.0, 0.0, 0.0, ""};

// Fixed storage, so that recording an error allocates nothing.
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
    if (stride < least || stride > MAX_STRIDE)
        throw Failure(status, std::string(name) + "=" + std::to_string(stride),
                      std::to_string(least) + " to " + std::to_string(MAX_STRIDE) + " bytes", "give the bytes from row to row");
    return stride;
}

std::string listed(Names names) {
    std::string text;
    for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

void copy_text(char *target, std::size_t size, const std::string &text) {
    const std::size_t length = std::min(size - 1, text.size());
    std::memcpy(target, text.data(), length);
    target[length] = '\0';
}

// The caller's array of results: every element is checked before any work starts.
class Results {
public:
    Results(const Scene &scene, picme_result *given, int n) : given(given) {
        const Photo &photo = scene.photo();
        for (int i = 0; i < n; ++i) {
            picme_result *const target = element(given, static_cast<std::size_t>(i));
            if (target->size != given->size)
                throw bad_argument("results of different sizes", std::to_string(given->size) + " bytes each", "initialise all of them");
            const picme_result result = completed(target, RESULT, "picme_result");
            check_pointer(result.pixels, "result.pixels");
            const std::size_t stride = checked_stride("result.stride", result.stride, photo.row_bytes(), PICME_BAD_ARGUMENT);
            const std::size_t needed = static_cast<std::size_t>(photo.height() - 1) * stride + photo.row_bytes();
            if (result.bytes < needed)
                throw Failure(PICME_BUFFER_TOO_SMALL, "a buffer of " + std::to_string(result.bytes) + " bytes", std::to_string(needed),
                              "give a larger one");
            views.push_back({result.pixels, stride});
        }
    }

    // Decodes recipe i into element i.
    void decode(const Scene &scene, const std::vector<RecipePtr> &recipes) const {
        const std::vector<Completion> completions = scene.decode(recipes, views);
        for (std::size_t i = 0; i < completions.size(); ++i) {
            picme_result *const target = element(given, i);
            picme_result result = completed(target, RESULT, "picme_result");
            result.primitive = completions[i].primitive;
            result.weight = completions[i].weight;
            result.log_density = completions[i].log_density;
            result.decode_ms = completions[i].decode_ms;
            copy_text(result.token, sizeof result.token, completions[i].token);
            give_back(target, result);
        }
    }

private:
    picme_result *given;
    std::vector<PixelView> views;
};

Photo checked_photo(const picme_encode_params &params) {
    check_pointer(params.pixels, "pixels");
    const int channels = channels_of(params.format);
    if (channels == 0) throw bad_argument("format=" + std::to_string(params.format), "a picme_format", "choose one of them");
    const std::string shown = "a photo of " + std::to_string(params.width) + "x" + std::to_string(params.height);
    if (params.width < 1 || params.height < 1) throw Failure(PICME_BAD_IMAGE, shown, "at least one pixel", "check the photo");
    if (std::int64_t{params.width} * params.height > MAX_PIXELS)
        throw Failure(PICME_BAD_IMAGE, shown, "at most " + std::to_string(MAX_PIXELS) + " pixels", "crop or shrink it first");
    const std::size_t stride = checked_stride("stride", params.stride,
                                              static_cast<std::size_t>(params.width) * static_cast<std::size_t>(channels), PICME_BAD_IMAGE);
    return {params.pixels, stride, params.width, params.height, params.format};
}

Mask checked_mask(const picme_encode_params &params, const Photo &photo) {
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
        const picme_load_params own = completed(params, LOAD_PARAMS, "picme_load_params");
        check_pointer(own.bundle, "bundle");
        check_range("threads", own.threads, 0, MAX_THREADS);
        const std::string provider(own.provider ? own.provider : DEFAULT_DEVICE);
        const std::string precision(own.precision ? own.precision : DEFAULT_PRECISION);
        if (std::find(DEVICES.begin(), DEVICES.end(), provider) == DEVICES.end())
            throw bad_argument("provider '" + provider.substr(0, 40) + "'", "one of " + listed(DEVICES), "choose one of them");
        *completer = new picme_completer{std::make_shared<const Model>(own.bundle, own.runtime, provider, precision, own.threads)};
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
        const Model &model = *completer->model;
        picme_completer_info description = COMPLETER_INFO;
        copy_text(description.name, sizeof description.name, model.manifest.name);
        copy_text(description.model_id, sizeof description.model_id, model.manifest.model_id);
        copy_text(description.backend, sizeof description.backend, model.runtime);
        copy_text(description.device, sizeof description.device, model.backend->device);
        copy_text(description.knows, sizeof description.knows, model.manifest.knows);
        description.image_size = model.manifest.image_size;
        description.primitives = model.manifest.primitives;
        description.latent = model.manifest.latent;
        description.max_batch = model.manifest.max_batch;
        description.load_ms = model.load_ms;
        give_back(info, description);
    });
}

picme_status picme_encode(const picme_completer *completer, const picme_encode_params *params, picme_scene **scene) {
    return guarded([&] {
        check_pointer(scene, "scene");
        *scene = nullptr;
        check_pointer(completer, "completer");
        const picme_encode_params own = completed(params, ENCODE_PARAMS, "picme_encode_params");
        check_range("context", own.context, 0, MAX_CONTEXT);
        Photo photo = checked_photo(own);
        const Mask mask = checked_mask(own, photo);
        *scene = new picme_scene{Scene(completer->model, std::move(photo), mask, own.context, !own.mask)};
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
        const Scene &own = scene->scene;
        picme_scene_info description = SCENE_INFO;
        description.width = own.photo().width();
        description.height = own.photo().height();
        description.format = own.photo().format();
        description.holes = static_cast<std::int32_t>(own.holes());
        description.primitives = own.mixture().size();
        description.ambiguity = own.ambiguity();
        description.encode_ms = own.encode_ms();
        give_back(info, description);
    });
}

picme_status picme_scene_weights(const picme_scene *scene, double *weights, size_t count) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(weights, "weights");
        const Mixture &mixture = scene->scene.mixture();
        if (count < static_cast<std::size_t>(mixture.size()))
            throw Failure(PICME_BUFFER_TOO_SMALL, "room for " + std::to_string(count) + " weights", std::to_string(mixture.size()),
                          "give a larger array");
        for (int i = 0; i < mixture.size(); ++i) weights[i] = mixture.weight(i);
    });
}

picme_status picme_sample(const picme_scene *scene, const picme_sample_params *params, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        const picme_sample_params own = completed(params, SAMPLE_PARAMS, "picme_sample_params");
        check_struct(results, "picme_result");
        check_range("n", own.n, 1, MAX_RESULTS);
        check_range("strategy", own.strategy, PICME_CATEGORICAL, PICME_LIKELY);
        check_range("primitive", own.primitive, -1, scene->scene.mixture().size() - 1);
        check_range("temperature", own.temperature, 0, MAX_TEMPERATURE);
        const Results targets(scene->scene, results, own.n);
        targets.decode(scene->scene, scene->scene.sample({own.n, own.seed, own.strategy, own.primitive, own.temperature}));
    });
}

picme_status picme_variations(const picme_scene *scene, const char *token, const picme_variation_params *params, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(token, "token");
        const picme_variation_params own = completed(params, VARIATION_PARAMS, "picme_variation_params");
        check_struct(results, "picme_result");
        check_range("n", own.n, 1, MAX_RESULTS);
        check_range("strength", own.strength, 0, MAX_STRENGTH);
        const Results targets(scene->scene, results, own.n);
        const RecipePtr parent = scene->scene.recipe(token);
        std::vector<RecipePtr> recipes;
        for (int i = 0; i < own.n; ++i) recipes.push_back(variation(parent, own.seed, static_cast<std::uint32_t>(i), own.strength));
        targets.decode(scene->scene, recipes);
    });
}

picme_status picme_replay(const picme_scene *scene, const char *token, picme_result *result) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(token, "token");
        check_struct(result, "picme_result");
        const Results target(scene->scene, result, 1);
        target.decode(scene->scene, {scene->scene.recipe(token)});
    });
}

picme_status picme_interpolate(const picme_scene *scene, const char *first, const char *second, int32_t steps, picme_result *results) {
    return guarded([&] {
        check_pointer(scene, "scene");
        check_pointer(first, "first");
        check_pointer(second, "second");
        check_struct(results, "picme_result");
        check_range("steps", steps, 2, MAX_RESULTS);
        const Results targets(scene->scene, results, steps);
        const RecipePtr a = scene->scene.recipe(first), b = scene->scene.recipe(second);
        std::vector<RecipePtr> recipes;
        for (int i = 0; i < steps; ++i) recipes.push_back(blend(a, b, static_cast<float>(double(i) / (steps - 1))));
        targets.decode(scene->scene, recipes);
    });
}

picme_status picme_load_params_init(picme_load_params *params, size_t size) {
    return guarded([&] { initialise(params, size, LOAD_PARAMS, "picme_load_params"); });
}

picme_status picme_completer_info_init(picme_completer_info *info, size_t size) {
    return guarded([&] { initialise(info, size, COMPLETER_INFO, "picme_completer_info"); });
}

picme_status picme_encode_params_init(picme_encode_params *params, size_t size) {
    return guarded([&] { initialise(params, size, ENCODE_PARAMS, "picme_encode_params"); });
}

picme_status picme_scene_info_init(picme_scene_info *info, size_t size) {
    return guarded([&] { initialise(info, size, SCENE_INFO, "picme_scene_info"); });
}

picme_status picme_sample_params_init(picme_sample_params *params, size_t size) {
    return guarded([&] { initialise(params, size, SAMPLE_PARAMS, "picme_sample_params"); });
}

picme_status picme_variation_params_init(picme_variation_params *params, size_t size) {
    return guarded([&] { initialise(params, size, VARIATION_PARAMS, "picme_variation_params"); });
}

picme_status picme_result_init(picme_result *result, size_t size) {
    return guarded([&] { initialise(result, size, RESULT, "picme_result"); });
}
