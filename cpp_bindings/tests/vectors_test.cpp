// The vectors that Python wrote (tests/vectors): random numbers, choices, tokens, squares, compositions.
#include "check.hpp"
#include "failure.hpp"
#include "crops.hpp"
#include "json.hpp"
#include "picme.h"
#include "mixture.hpp"
#include "token.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

using namespace picme;
using json::Value;

static std::string folder; // of the vectors, from the command line

static Value load(const char *name) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    return json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

static std::uint64_t seed_of(const Value &entry) { return std::strtoull(entry.object.at("seed").text.c_str(), nullptr, 10); }
static std::uint32_t word(const Value &value) { return static_cast<std::uint32_t>(value.integer); }

template <typename T>
static std::vector<T> numbers(const Value &list) {
    std::vector<T> made;
    for (const Value &value : list.list) made.push_back(static_cast<T>(value.number));
    return made;
}

static std::vector<float> flat(const Value &rows) {
    std::vector<float> made;
    for (const Value &row : rows.list)
        for (const Value &value : row.list) made.push_back(static_cast<float>(value.number));
    return made;
}

static std::vector<std::uint8_t> bytes(const Value &base64) {
    std::vector<std::uint8_t> made;
    std::uint32_t bits = 0;
    int have = 0;
    for (const char c : base64.text) {
        if (c == '=') break;
        const int digit = c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A' : c >= '0' ? c - '0' + 52 : c == '+' ? 62 : 63;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if ((have += 6) >= 8) made.push_back(static_cast<std::uint8_t>(bits >> (have -= 8)));
    }
    return made;
}

TEST(philox_gives_the_words) {
    const Value table = load("sampling.json");
    for (const Value &entry : table.object.at("philox").list) {
        const auto &counter = entry.object.at("counter").list, &words = entry.object.at("words").list;
        const auto made = philox({word(counter[0]), word(counter[1]), word(counter[2]), word(counter[3])}, seed_of(entry));
        for (std::size_t i = 0; i < 4; ++i) CHECK(made[i] == word(words[i]));
    }
}

TEST(uniform_numbers_are_equal) {
    const Value table = load("sampling.json");
    for (const Value &entry : table.object.at("uniform").list)
        CHECK(uniform(seed_of(entry), word(entry.object.at("result")), word(entry.object.at("hole"))) == entry.object.at("value").number);
}

TEST(normals_differ_by_one_unit_at_most) {
    const Value table = load("sampling.json");
    for (const Value &entry : table.object.at("normals").list) {
        const auto &bits = entry.object.at("bits").list;
        const auto made = normals(seed_of(entry), word(entry.object.at("result")), static_cast<int>(bits.size()),
                                  word(entry.object.at("hole")), static_cast<Purpose>(entry.object.at("purpose").integer));
        for (std::size_t i = 0; i < bits.size(); ++i) {
            std::int32_t mine, theirs = static_cast<std::int32_t>(word(bits[i]));
            std::memcpy(&mine, &made[i], sizeof mine);
            CHECK(std::abs(std::int64_t{mine} - theirs) <= 1);
        }
    }
}

static Mixture vector_mixture(const Value &table) {
    const auto weights = numbers<float>(table.object.at("log_weights"));
    const auto means = flat(table.object.at("means")), scales = flat(table.object.at("log_scales"));
    return {weights.data(), means.data(), scales.data(), static_cast<int>(weights.size()), static_cast<int>(means.size() / weights.size())};
}

TEST(the_mixture_has_the_same_mathematics) {
    const Value table = load("sampling.json").object.at("mixture");
    const Mixture mixture = vector_mixture(table);
    CHECK(mixture.order() == numbers<int>(table.object.at("order")));
    CHECK(mixture.ideas() == numbers<int>(table.object.at("ideas")));
    CHECK(std::fabs(mixture.ambiguity() - table.object.at("ambiguity").number) < 1e-12);
    for (const Value &entry : table.object.at("calibrated").list) {
        const Ambiguity calibration{entry.object.at("scale").number, entry.object.at("power").number,
                                    numbers<double>(entry.object.at("weights"))};
        CHECK(std::fabs(mixture.ambiguity(&calibration) - entry.object.at("value").number) < 1e-12);
    }
    const auto &log_density = table.object.at("log_density").object;
    CHECK(std::fabs(mixture.log_density(static_cast<int>(log_density.at("primitive").integer), numbers<double>(log_density.at("noise"))) -
                    log_density.at("value").number) < 1e-12);
}

TEST(every_strategy_chooses_the_same_primitives) {
    const Value table = load("sampling.json");
    const Mixture mixture = vector_mixture(table.object.at("mixture"));
    for (const Value &entry : table.object.at("choices").list) {
        const std::string &name = entry.object.at("strategy").text;
        const int strategy = name == "categorical" ? PICME_CATEGORICAL : name == "diverse" ? PICME_DIVERSE : PICME_LIKELY;
        const SampleRequest request{static_cast<int>(entry.object.at("n").integer), seed_of(entry), strategy, -1,
                                    static_cast<float>(entry.object.at("temperature").number)};
        const auto made = draws({&mixture, &mixture}, request);
        CHECK(made.size() == static_cast<std::size_t>(request.n));
        for (std::size_t i = 0; i < made.size(); ++i) {
            CHECK(made[i].primitives == numbers<int>(entry.object.at("primitives").list[i]));
            CHECK(made[i].index == word(entry.object.at("indices").list[i]));
            CHECK(double{made[i].temperature} == entry.object.at("temperatures").list[i].number);
        }
    }
}

TEST(tokens_are_the_same_text_and_come_back) {
    const auto tokens = load("sampling.json").object.at("tokens").object;
    const std::string &id = tokens.at("model_id").text;
    const RecipePtr draw = drawn({{2}, 7, 3, 0.7f}), two = drawn({{2, 4}, ~std::uint64_t{0}, 0, 1.0f});
    const RecipePtr varied = variation(draw, 99, 1, 0.3f), between = blend(draw, varied, 0.25f);
    const std::map<std::string, RecipePtr> recipes{{"draw", draw}, {"two holes", two}, {"variation", varied}, {"blend", between}};
    CHECK(tokens.at("version 2").list.size() >= recipes.size());
    for (const Value &entry : tokens.at("version 2").list) {
        const Settings settings{static_cast<int>(entry.object.at("context").integer), entry.object.at("detail").text == "auto"};
        const std::string &text = entry.object.at("token").text;
        CHECK(encode_token(*recipes.at(entry.object.at("name").text), id, settings) == text);
        const Token decoded = decode_token(text, id);
        CHECK(decoded.settings && *decoded.settings == settings && encode_token(*decoded.recipe, id, settings) == text);
    }
    CHECK(tokens.at("version 1").object.size() == recipes.size());
    for (const auto &[name, text] : tokens.at("version 1").object) {
        const Token decoded = decode_token(text.text, id);
        CHECK(!decoded.settings && encode_token(*decoded.recipe, id, {}) == encode_token(*recipes.at(name), id, {}));
    }
}

TEST(damaged_tokens_are_refused) {
    const Value table = load("sampling.json");
    const auto &tokens = table.object.at("tokens").object;
    const std::string &id = tokens.at("model_id").text, &good = tokens.at("version 2").list.back().object.at("token").text;
    const auto refused = [](const std::string &text, const std::string &model) {
        try {
            decode_token(text, model);
        } catch (const Failure &failure) {
            return failure.status == PICME_BAD_TOKEN;
        }
        return false;
    };
    CHECK(refused(good, std::string(64, 'f')) && refused("", id) && refused(good + "A", id) && refused("\xc3\xa4", id));
    for (std::size_t i = 0; i + 1 < good.size(); ++i) { // the last digit has unused bits
        std::string damaged = good;
        damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
        CHECK(refused(damaged, id) && refused(good.substr(0, i), id));
    }
}

TEST(holes_show_the_model_the_same_and_fills_compose_to_the_same) {
    const Value cases = load("holes.json");
    for (const Value &entry : cases.list) {
        const auto &table = entry.object;
        const int width = static_cast<int>(table.at("photo").list[0].integer), height = static_cast<int>(table.at("photo").list[1].integer);
        const int size = static_cast<int>(table.at("size").integer), context = static_cast<int>(table.at("context").integer);
        std::vector<std::uint8_t> pixels, mask(static_cast<std::size_t>(width * height));
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x)
                for (int c = 0; c < 3; ++c) pixels.push_back(static_cast<std::uint8_t>(7 * y + 5 * x + 31 * c + x * y / 16));
        for (const Value &rectangle : table.at("rectangles").list) {
            const auto r = numbers<int>(rectangle);
            for (int y = r[1]; y < r[3]; ++y) std::fill_n(mask.begin() + y * width + r[0], r[2] - r[0], static_cast<std::uint8_t>(r[4]));
        }
        const Photo photo(pixels.data(), static_cast<std::size_t>(width) * 3, width, height, PICME_RGB8);
        const auto holes = find_holes(photo, Mask(mask.data(), static_cast<std::size_t>(width), width, height), size, context);
        CHECK(holes.size() == table.at("holes").list.size());
        std::vector<std::uint8_t> composed(pixels.size());
        const PixelView target{composed.data(), static_cast<std::size_t>(width) * 3};
        photo.copy_to(target);
        for (std::size_t i = 0; i < holes.size(); ++i) {
            const auto &expected = table.at("holes").list[i].object;
            const auto square = numbers<int>(expected.at("square")), box = numbers<int>(expected.at("box"));
            CHECK((holes[i].square == Box{square[0], square[1], square[2], square[3]}));
            CHECK((holes[i].box == Box{box[0], box[1], box[2], box[3]}));
            CHECK(holes[i].image == bytes(expected.at("image")));
            CHECK(holes[i].hidden == bytes(expected.at("mask")));
            std::vector<std::uint8_t> decoded;
            for (int y = 0; y < size; ++y)
                for (int x = 0; x < size; ++x)
                    for (int c = 0; c < 3; ++c) decoded.push_back(static_cast<std::uint8_t>(3 * y + 11 * x + 67 * c + 90));
            holes[i].seam.heal(decoded.data());
            holes[i].fill(photo, target, decoded.data(), false);
        }
        const auto expected = bytes(table.at("composed"));
        CHECK(expected.size() == composed.size());
        for (std::size_t i = 0; i < composed.size(); ++i) CHECK(std::abs(composed[i] - expected[i]) <= 1);
        CHECK(composed == expected); // 1/255 is the contract; equal is what we have
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    return check::run();
}
