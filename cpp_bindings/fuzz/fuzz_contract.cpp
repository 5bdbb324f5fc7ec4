// The C entry points with a model: impossible sizes, strides, counts, numbers and tokens. Any status but PICME_INTERNAL_ERROR will do.
// PICME_TEST_BUNDLE and PICME_ONNXRUNTIME (environment) name the model and the ONNX Runtime library; without them it is skipped.
#include "fuzz.hpp"
#include "picme.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {

void allowed(picme_status status) {
    fuzz::require(status != PICME_INTERNAL_ERROR && status != PICME_OUT_OF_MEMORY);
    fuzz::require((status == PICME_OK) == (picme_last_error()[0] == '\0'));
}

picme_completer *load() {
    picme_load_params params = picme::initialised(picme_load_params_init);
    params.bundle = std::getenv("PICME_TEST_BUNDLE");
    if (!params.bundle) std::exit(77);
    params.provider = "cpu";
    params.threads = 1;
    picme_completer *made = nullptr;
    fuzz::require(picme_load(&params, &made) == PICME_OK);
    return made;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static picme_completer *const completer = load();
    fuzz::Numbers head(data, size);
    picme_encode_params photo = picme::initialised(picme_encode_params_init);
    photo.width = head.take<std::int8_t>(), photo.height = head.take<std::int8_t>(), photo.format = head.take<std::int8_t>();
    photo.context = head.take<std::int32_t>();
    photo.stride = head.take<std::uint16_t>() % 1024, photo.mask_stride = head.take<std::uint8_t>();
    // As large as any of these sizes can need: a stride that is too small must be refused.
    std::vector<std::uint8_t> pixels(128 * 1024), mask(128 * 256), result(128 * 1024);
    for (std::size_t i = 0; i < mask.size() && !head.rest().empty(); ++i)
        pixels[i] = mask[i] = static_cast<std::uint8_t>(head.rest()[i % head.rest().size()]);
    photo.pixels = pixels.data();
    photo.mask = photo.format == PICME_RGBA8 && photo.context % 2 ? nullptr : mask.data();
    picme_scene *scene = nullptr;
    const picme_status status = picme_encode(completer, &photo, &scene);
    allowed(status);
    fuzz::require((status == PICME_OK) == (scene != nullptr));
    if (!scene) return 0;

    picme_sample_params wish = picme::initialised(picme_sample_params_init);
    wish.n = head.take<std::int8_t>() / 16, wish.strategy = head.take<std::int8_t>(), wish.primitive = head.take<std::int8_t>();
    wish.temperature = head.take<float>(), wish.seed = head.take<std::uint64_t>();
    picme_variation_params alike = picme::initialised(picme_variation_params_init);
    alike.n = 1, alike.strength = head.take<float>(), alike.seed = wish.seed;
    picme_result empty = picme::initialised(picme_result_init);
    empty.pixels = result.data(), empty.bytes = result.size();
    std::vector<picme_result> results(static_cast<std::size_t>(std::max(wish.n, 2)), empty);
    results[0].stride = head.take<std::uint64_t>();
    results[0].bytes = std::min<std::size_t>(head.take<std::uint64_t>(), result.size());
    allowed(picme_sample(scene, &wish, results.data()));
    const std::string token(head.rest()), own = results[0].token;
    allowed(picme_replay(scene, token.c_str(), results.data()));
    allowed(picme_variations(scene, own.c_str(), &alike, results.data()));
    allowed(picme_interpolate(scene, own.c_str(), token.c_str(), 2, results.data()));
    allowed(picme_scene_destroy(&scene));
    return 0;
}
