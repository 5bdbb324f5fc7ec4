// The C contract and its C++ wrapper, with a real bundle: results, bad arguments, ownership, eight threads on one scene.
// Needs PICME_TEST_BUNDLE and an ONNX Runtime library (PICME_ONNXRUNTIME); exits with 77 (skipped) without them.
#include "check.hpp"
#include "picme.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <type_traits>

static std::string bundle;
static constexpr int WIDTH = 90, HEIGHT = 60;
static constexpr std::size_t BYTES = WIDTH * HEIGHT * 3;

static std::vector<std::uint8_t> photo() {
    std::vector<std::uint8_t> made;
    for (int i = 0; i < WIDTH * HEIGHT * 3; ++i) made.push_back(static_cast<std::uint8_t>(i % WIDTH + i / 300));
    return made;
}

static std::vector<std::uint8_t> mask() {
    std::vector<std::uint8_t> made(WIDTH * HEIGHT);
    for (int y = 20; y < 45; ++y) std::fill_n(made.begin() + y * WIDTH + 30, 28, std::uint8_t{255});
    return made;
}

static picme::Completer completer(int threads = 1) { return picme::Completer(bundle, {"", "cpu", threads}); }

static picme::Scene scene() {
    const auto pixels = photo(), hole = mask();
    return completer().encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}); // the completer goes: a scene keeps what it needs
}

// The C handles, for calls that the wrapper can't make.
struct Raw {
    picme_completer *completer = nullptr;
    picme_scene *scene = nullptr;
    std::vector<std::uint8_t> pixels = photo(), hole = mask(), out = std::vector<std::uint8_t>(BYTES);
    picme_encode_params encode = picme::initialised(picme_encode_params_init);
    picme_sample_params sample = picme::initialised(picme_sample_params_init);
    picme_result result = picme::initialised(picme_result_init);

    Raw() {
        picme_load_params load = picme::initialised(picme_load_params_init);
        load.bundle = bundle.c_str(), load.provider = "cpu", load.threads = 1;
        encode.pixels = pixels.data(), encode.width = WIDTH, encode.height = HEIGHT, encode.mask = hole.data();
        sample.n = 1;
        result.pixels = out.data(), result.bytes = out.size();
        CHECK(picme_load(&load, &completer) == PICME_OK);
        CHECK(picme_encode(completer, &encode, &scene) == PICME_OK);
    }
    ~Raw() {
        picme_scene_destroy(&scene);
        picme_completer_destroy(&completer);
    }
};

// A refused call says why, in three parts.
static bool refused(picme_status got, picme_status wanted) {
    const std::string text = picme_last_error();
    return got == wanted && text.find(" | expected ") != text.npos && text.find(" | ", text.find(" | expected ") + 3) != text.npos;
}

TEST(results_fill_the_hole_and_nothing_else) {
    const auto pixels = photo(), hole = mask();
    const auto results = scene().sample(6, 7);
    CHECK(results.size() == 6);
    for (const auto &result : results) {
        bool changed = false;
        for (std::size_t i = 0; i < BYTES; ++i) {
            if (hole[i / 3] == 0) CHECK(result.pixels[i] == pixels[i]);
            changed |= result.pixels[i] != pixels[i];
        }
        CHECK(changed && !result.token.empty() && result.weight > 0 && result.weight <= 1 && std::isfinite(result.log_density) &&
              result.decode_ms > 0);
    }
}

TEST(the_scene_and_the_completer_describe_themselves) {
    const auto own = completer();
    CHECK(std::string(own.info().device) == "cpu" && std::string(own.info().backend).rfind("onnxruntime 1.", 0) == 0);
    CHECK(own.info().load_ms > 0 && own.info().image_size > 0 && std::strlen(own.info().model_id) == 64);
    const auto made = scene();
    double sum = 0;
    for (const double weight : made.weights()) sum += weight;
    CHECK(std::fabs(sum - 1) < 1e-9 && made.info().holes == 1 && made.info().width == WIDTH && made.info().encode_ms > 0);
    CHECK(made.info().ambiguity >= 1 && made.info().ambiguity <= own.info().primitives);
}

TEST(tokens_replay_and_equal_seeds_give_equal_results) {
    const auto made = scene();
    const auto first = made.sample(3, 7), longer = made.sample(12, 7); // two batches
    for (std::size_t i = 0; i < 3; ++i) CHECK(first[i].token == longer[i].token && first[i].primitive == longer[i].primitive);
    const auto again = made.replay(first[2].token);
    CHECK(again.pixels == made.replay(first[2].token).pixels && again.token == first[2].token);
    CHECK(made.sample(2, 7, {PICME_CATEGORICAL, 1, 0.5f})[1].primitive == 1);
    const auto near = made.variations(first[0].token, 2, 0.2f, 5);
    CHECK(near[0].primitive == first[0].primitive && near[0].token != near[1].token);
    const auto way = made.interpolate(first[0].token, first[1].token, 3);
    CHECK(way[0].primitive == first[0].primitive && way[2].primitive == first[1].primitive);
}

TEST(gaps_between_rows_are_left_alone) {
    constexpr std::size_t STRIDE = WIDTH * 3 + 10;
    std::vector<std::uint8_t> out(STRIDE * HEIGHT, 77);
    const auto made = scene();
    made.sample_into({out.data(), out.size(), STRIDE}, 7);
    const auto packed = made.sample(1, 7)[0].pixels;
    for (std::size_t y = 0; y < HEIGHT; ++y) {
        CHECK(std::equal(out.begin() + static_cast<std::ptrdiff_t>(y * STRIDE),
                         out.begin() + static_cast<std::ptrdiff_t>(y * STRIDE + WIDTH * 3),
                         packed.begin() + static_cast<std::ptrdiff_t>(y * WIDTH * 3)));
        for (std::size_t x = WIDTH * 3; x < STRIDE; ++x) CHECK(out[y * STRIDE + x] == 77);
    }
    std::vector<std::uint8_t> exact(STRIDE * (HEIGHT - 1) + WIDTH * 3); // the last row needs no gap
    made.sample_into({exact.data(), exact.size(), STRIDE}, 7);
}

TEST(a_photo_may_be_filled_in_place) {
    auto pixels = photo();
    const auto hole = mask();
    const auto made = completer().encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()});
    made.sample_into({pixels.data(), pixels.size()}, 7);
    CHECK(pixels == made.sample(1, 7)[0].pixels);
}

TEST(null_pointers_are_refused) {
    Raw raw;
    picme_completer_info info = picme::initialised(picme_completer_info_init);
    picme_scene_info about = picme::initialised(picme_scene_info_init);
    picme_load_params load = picme::initialised(picme_load_params_init);
    picme_variation_params vary = picme::initialised(picme_variation_params_init);
    picme_completer *none = nullptr;
    double weight = 0;
    CHECK(refused(picme_load(nullptr, &none), PICME_BAD_ARGUMENT) && !none);
    CHECK(refused(picme_load(&load, nullptr), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_load(&load, &none), PICME_BAD_ARGUMENT)); // no bundle
    CHECK(refused(picme_completer_describe(nullptr, &info), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_completer_describe(raw.completer, nullptr), PICME_BAD_ARGUMENT));
    picme_scene *no_scene = nullptr;
    CHECK(refused(picme_encode(nullptr, &raw.encode, &no_scene), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_encode(raw.completer, nullptr, &no_scene), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_encode(raw.completer, &raw.encode, nullptr), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_scene_describe(nullptr, &about), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_scene_weights(raw.scene, nullptr, 4), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_scene_weights(raw.scene, &weight, 1), PICME_BUFFER_TOO_SMALL));
    CHECK(refused(picme_sample(nullptr, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_sample(raw.scene, nullptr, &raw.result), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_sample(raw.scene, &raw.sample, nullptr), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_replay(raw.scene, nullptr, &raw.result), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_variations(raw.scene, nullptr, &vary, &raw.result), PICME_BAD_ARGUMENT));
    CHECK(refused(picme_interpolate(raw.scene, "x", nullptr, 2, &raw.result), PICME_BAD_ARGUMENT));
    raw.encode.pixels = nullptr;
    CHECK(refused(picme_encode(raw.completer, &raw.encode, &no_scene), PICME_BAD_ARGUMENT) && !no_scene);
    raw.result.pixels = nullptr;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
}

TEST(destroying_twice_and_nothing_is_allowed) {
    Raw raw;
    CHECK(picme_scene_destroy(&raw.scene) == PICME_OK && !raw.scene);
    CHECK(picme_scene_destroy(&raw.scene) == PICME_OK && picme_scene_destroy(nullptr) == PICME_OK);
    CHECK(picme_completer_destroy(&raw.completer) == PICME_OK && !raw.completer);
    CHECK(picme_completer_destroy(&raw.completer) == PICME_OK && picme_completer_destroy(nullptr) == PICME_OK);
}

TEST(structs_of_another_size_are_refused) {
    Raw raw;
    picme_scene *none = nullptr;
    for (const std::size_t wrong : {std::size_t{0}, sizeof(picme_encode_params) - 1, sizeof(picme_encode_params) + 8}) {
        raw.encode.size = wrong;
        CHECK(refused(picme_encode(raw.completer, &raw.encode, &none), PICME_BAD_ARGUMENT));
    }
    raw.sample.size = 4;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    raw.sample.size = sizeof raw.sample;
    raw.result.size = 1 << 20;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    std::vector<picme_result> two(2, raw.result);
    two[0].size = sizeof(picme_result), two[1].size = 0;
    raw.sample.n = 2;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, two.data()), PICME_BAD_ARGUMENT));
}

TEST(a_caller_with_an_older_header_gets_what_it_knows) {
    Raw raw;
    const std::size_t older = offsetof(picme_completer_info, knows);
    picme_completer_info info;
    std::memset(&info, 77, sizeof info);
    CHECK(picme_completer_info_init(&info, older) == PICME_OK && info.size == older && info.name[0] == '\0' && info.knows[0] == 77);
    CHECK(picme_completer_describe(raw.completer, &info) == PICME_OK);
    CHECK(info.size == older && info.image_size > 0 && info.load_ms > 0 && info.knows[0] == 77);
}

TEST(the_default_call_takes_the_heaviest_primitive_first) {
    const auto made = scene();
    const auto weights = made.weights();
    const auto heaviest = std::max_element(weights.begin(), weights.end()) - weights.begin();
    CHECK(made.sample(1, 3)[0].primitive == heaviest && made.sample(1, 4)[0].primitive == heaviest);
}

TEST(a_token_is_refused_where_the_context_is_another) {
    const auto pixels = photo(), hole = mask();
    const auto own = completer();
    const auto narrow = own.encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}),
               wide = own.encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}, 60),
               same = own.encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}, own.info().image_size);
    const std::string token = narrow.sample(1, 7)[0].token;
    CHECK(same.replay(token).pixels == narrow.replay(token).pixels);
    try {
        wide.replay(token);
        CHECK(false);
    } catch (const picme::Error &error) {
        CHECK(error.status() == PICME_BAD_TOKEN && std::string(error.what()).find("context") != std::string::npos);
    }
    CHECK(wide.replay(wide.sample(1, 7)[0].token).token == wide.sample(1, 7)[0].token);
}

TEST(buffers_and_strides_that_are_too_small_are_refused) {
    Raw raw;
    picme_scene *none = nullptr;
    raw.result.bytes = BYTES - 1;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BUFFER_TOO_SMALL));
    raw.result.bytes = BYTES, raw.result.stride = WIDTH * 3 - 1;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    raw.result.stride = WIDTH * 3 + 1;
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BUFFER_TOO_SMALL));
    raw.result.stride = ~std::size_t{0} / 2; // would overflow
    CHECK(refused(picme_sample(raw.scene, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    raw.encode.stride = WIDTH * 3 - 1;
    CHECK(refused(picme_encode(raw.completer, &raw.encode, &none), PICME_BAD_IMAGE));
    raw.encode.stride = 0, raw.encode.mask_stride = WIDTH - 1;
    CHECK(refused(picme_encode(raw.completer, &raw.encode, &none), PICME_BAD_MASK));
}

TEST(a_stride_times_the_height_does_not_overflow) {
    Raw raw;
    picme_scene *tall = nullptr;
    raw.encode.width = 1, raw.encode.height = (1 << 24) + 1, raw.encode.format = PICME_GRAY8;
    raw.pixels.assign(static_cast<std::size_t>(raw.encode.height), 0);
    raw.hole.assign(raw.pixels.size(), 0);
    std::fill_n(raw.hole.begin() + 100, 9, std::uint8_t{255});
    raw.encode.pixels = raw.pixels.data(), raw.encode.mask = raw.hole.data();
    CHECK(picme_encode(raw.completer, &raw.encode, &tall) == PICME_OK);
    raw.result.bytes = 1, raw.result.stride = std::size_t{1} << 40; // 2^24 rows of it and one byte: 1, after an overflow
    CHECK(refused(picme_sample(tall, &raw.sample, &raw.result), PICME_BAD_ARGUMENT));
    picme_scene_destroy(&tall);
}

TEST(values_out_of_range_are_refused) {
    Raw raw;
    picme_scene *none = nullptr;
    const auto bad_photo = [&](auto change, picme_status status) {
        picme_encode_params params = raw.encode;
        change(params);
        return refused(picme_encode(raw.completer, &params, &none), status) && !none;
    };
    CHECK(bad_photo([](auto &p) { p.width = 0; }, PICME_BAD_IMAGE));
    CHECK(bad_photo([](auto &p) { p.height = -5; }, PICME_BAD_IMAGE));
    CHECK(bad_photo([](auto &p) { p.width = p.height = 2'000'000'000; }, PICME_BAD_IMAGE));
    CHECK(bad_photo([](auto &p) { p.format = 17; }, PICME_BAD_ARGUMENT));
    CHECK(bad_photo([](auto &p) { p.context = -1; }, PICME_BAD_ARGUMENT));
    CHECK(bad_photo([](auto &p) { p.mask = nullptr; }, PICME_BAD_MASK));
    std::fill(raw.hole.begin(), raw.hole.end(), std::uint8_t{0});
    CHECK(bad_photo([](auto &) {}, PICME_BAD_MASK));
    std::fill(raw.hole.begin(), raw.hole.end(), std::uint8_t{255});
    CHECK(bad_photo([](auto &) {}, PICME_BAD_MASK));
    const auto bad_sample = [&](auto change) {
        picme_sample_params params = raw.sample;
        change(params);
        return refused(picme_sample(raw.scene, &params, &raw.result), PICME_BAD_ARGUMENT);
    };
    CHECK(bad_sample([](auto &p) { p.n = 0; }));
    CHECK(bad_sample([](auto &p) { p.n = 1001; }));
    CHECK(bad_sample([](auto &p) { p.primitive = 1000; }));
    CHECK(bad_sample([](auto &p) { p.primitive = -2; }));
    CHECK(bad_sample([](auto &p) { p.strategy = 3; }));
    CHECK(bad_sample([](auto &p) { p.temperature = -1; }));
    CHECK(bad_sample([](auto &p) { p.temperature = NAN; }));
    CHECK(refused(picme_replay(raw.scene, "no token", &raw.result), PICME_BAD_TOKEN));
    CHECK(refused(picme_replay(raw.scene, std::string(5000, 'A').c_str(), &raw.result), PICME_BAD_TOKEN));
    CHECK(refused(picme_interpolate(raw.scene, "A", "A", 1, &raw.result), PICME_BAD_ARGUMENT));
}

TEST(loading_says_what_it_can_not_have) {
    picme_load_params load = picme::initialised(picme_load_params_init);
    picme_completer *none = nullptr;
    load.bundle = "/nowhere/at/all";
    CHECK(refused(picme_load(&load, &none), PICME_BAD_BUNDLE) && !none);
    load.bundle = bundle.c_str(), load.provider = "abacus";
    CHECK(refused(picme_load(&load, &none), PICME_BAD_ARGUMENT));
    load.provider = "cpu", load.threads = -1;
    CHECK(refused(picme_load(&load, &none), PICME_BAD_ARGUMENT));
    load.threads = 1, load.runtime = "/nowhere/libonnxruntime.so";
    CHECK(refused(picme_load(&load, &none), PICME_BACKEND_UNAVAILABLE));
    load.runtime = "libc.so.6"; // a library, but not the one
    CHECK(refused(picme_load(&load, &none), PICME_BACKEND_UNAVAILABLE));
}

TEST(the_last_error_belongs_to_its_thread) {
    CHECK(picme_sample(nullptr, nullptr, nullptr) != PICME_OK && *picme_last_error());
    std::thread([] { CHECK(*picme_last_error() == '\0'); }).join();
    CHECK(picme_scene_destroy(nullptr) == PICME_OK && *picme_last_error() == '\0');
}

TEST(variations_of_variations_end_with_an_error) {
    const auto made = scene();
    std::string token = made.sample(1, 1)[0].token;
    bool ended = false;
    for (int i = 0; i < 40 && !ended; ++i) {
        try {
            token = made.variations(token, 1, 0.1f, 1)[0].token;
        } catch (const picme::Error &error) {
            ended = error.status() == PICME_BAD_ARGUMENT && i == 32;
        }
    }
    CHECK(ended);
}

TEST(results_do_not_depend_on_the_number_of_cores) {
    const auto pixels = photo(), hole = mask();
    const auto expected = scene().sample(7, 7);
    const auto got = completer(3).encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}).sample(7, 7); // six side by side, one together
    for (std::size_t i = 0; i < 7; ++i) CHECK(got[i].pixels == expected[i].pixels && got[i].token == expected[i].token);
}

TEST(eight_threads_on_one_scene_get_what_one_gets) {
    const auto made = scene();
    const auto own = completer();
    const auto expected = made.sample(2, 7);
    const auto pixels = photo(), hole = mask();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 5; ++i) {
                const auto got = made.sample(2, 7);
                wrong += got[0].pixels != expected[0].pixels || got[1].pixels != expected[1].pixels || got[1].token != expected[1].token;
                if (t % 4 == 0)
                    wrong += own.encode({pixels.data(), WIDTH, HEIGHT}, {hole.data()}).sample(1, 7)[0].pixels != expected[0].pixels;
                if (t % 4 == 1) wrong += made.replay(expected[0].token).pixels != expected[0].pixels;
                if (t % 4 == 2) wrong += picme_sample(nullptr, nullptr, nullptr) != PICME_BAD_ARGUMENT;
            }
        });
    for (std::thread &thread : threads) thread.join();
    CHECK(wrong == 0);
}

static_assert(!std::is_copy_constructible_v<picme::Scene> && std::is_move_constructible_v<picme::Scene>);
static_assert(!std::is_copy_constructible_v<picme::Completer> && std::is_move_constructible_v<picme::Completer>);

int main() {
    const char *given = std::getenv("PICME_TEST_BUNDLE");
    if (!given || !*given) {
        std::puts("skipped: PICME_TEST_BUNDLE names no bundle");
        return 77;
    }
    bundle = given;
    return check::run();
}
