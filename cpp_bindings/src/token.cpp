// Packs recipes as little-endian bytes, whatever the machine's own order.
#include "token.hpp"

#include "contract.hpp"
#include "failure.hpp"
#include "hash.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace picme {
namespace {

constexpr std::size_t ID_BYTES = 8;
constexpr unsigned HAS_CONTEXT = 0x80;
constexpr std::string_view ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct Damaged {};

void put(std::string &out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i);
}

void put(std::string &out, float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    put(out, bits, 4);
}

void pack(std::string &out, const Recipe &recipe) {
    put(out, recipe.kind, 1);
    if (recipe.kind == Recipe::Blend) {
        put(out, recipe.amount);
        pack(out, *recipe.first);
        pack(out, *recipe.second);
        return;
    }
    const Draw &draw = recipe.draw;
    if (recipe.kind == Recipe::Drawn) {
        put(out, draw.primitives.size(), 1);
        for (const int primitive : draw.primitives) put(out, static_cast<std::uint64_t>(primitive), 2);
    }
    put(out, draw.seed, 8);
    put(out, draw.index, 4);
    put(out, recipe.kind == Recipe::Drawn ? draw.temperature : recipe.amount);
    if (recipe.kind == Recipe::Variation) pack(out, *recipe.first);
}

class Unpacker {
public:
    explicit Unpacker(std::string_view data) : data(data) {}

    Settings settings() {
        const auto bits = static_cast<unsigned>(take(1));
        Settings settings;
        settings.detail = static_cast<int>(bits & ~HAS_CONTEXT);
        if (settings.detail >= static_cast<int>(DETAILS.size())) throw Damaged{};
        if (bits & HAS_CONTEXT) {
            const std::uint64_t context = take(4);
            if (context < 1 || context > MAX_CONTEXT) throw Damaged{};
            settings.context = static_cast<int>(context);
        }
        return settings;
    }

    RecipePtr recipe(int depth = 0) {
        if (depth > MAX_RECIPE_DEPTH) throw Damaged{};
        const auto kind = take(1);
        if (kind == Recipe::Blend) {
            const float position = share(1);
            RecipePtr first = recipe(depth + 1);
            return blend(std::move(first), recipe(depth + 1), position);
        }
        if (kind > Recipe::Blend) throw Damaged{};
        Draw draw;
        if (kind == Recipe::Drawn) {
            draw.primitives.resize(static_cast<std::size_t>(take(1)));
            if (draw.primitives.empty()) throw Damaged{};
            for (int &primitive : draw.primitives) primitive = static_cast<int>(take(2));
        }
        draw.seed = take(8);
        draw.index = static_cast<std::uint32_t>(take(4));
        const float amount = share(kind == Recipe::Drawn ? MAX_TEMPERATURE : 1);
        if (kind == Recipe::Variation) return variation(recipe(depth + 1), draw.seed, draw.index, amount);
        draw.temperature = amount;
        return drawn(std::move(draw));
    }

    bool finished() const { return data.empty(); }

private:
    std::string_view data;

    std::uint64_t take(std::size_t bytes) {
        if (data.size() < bytes) throw Damaged{};
        std::uint64_t value = 0;
        for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(data[i]);
        data.remove_prefix(bytes);
        return value;
    }

    float share(float high) {
        const auto bits = static_cast<std::uint32_t>(take(4));
        float value;
        std::memcpy(&value, &bits, sizeof value);
        if (!(value >= 0 && value <= high)) throw Damaged{};
        return value;
    }
};

int depth_of(const Recipe &recipe) {
    return recipe.kind == Recipe::Drawn ? 0 : 1 + std::max(depth_of(*recipe.first), recipe.second ? depth_of(*recipe.second) : 0);
}

std::string to_text(const std::string &data) {
    std::string text;
    std::uint32_t bits = 0;
    int have = 0;
    for (const char c : data) {
        bits = bits << 8 | static_cast<unsigned char>(c);
        for (have += 8; have >= 6; have -= 6) text += ALPHABET[bits >> (have - 6) & 63];
    }
    if (have) text += ALPHABET[bits << (6 - have) & 63];
    return text;
}

std::string from_text(std::string_view text) {
    if (text.size() > MAX_TOKEN_LENGTH || text.size() % 4 == 1) throw Damaged{};
    std::string data;
    std::uint32_t bits = 0;
    int have = 0;
    for (const char c : text) {
        const std::size_t digit = ALPHABET.find(c);
        if (digit == ALPHABET.npos) throw Damaged{};
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if ((have += 6) >= 8) data += static_cast<char>(bits >> (have -= 8));
    }
    return data;
}

std::string short_id(const std::string &model_id) {
    std::string bytes;
    for (std::size_t i = 0; i < ID_BYTES; ++i) bytes += static_cast<char>(std::stoi(model_id.substr(2 * i, 2), nullptr, 16));
    return bytes;
}

} // namespace

RecipePtr drawn(Draw draw) { return std::make_shared<Recipe>(Recipe{Recipe::Drawn, std::move(draw), 0, nullptr, nullptr}); }

RecipePtr variation(RecipePtr parent, std::uint64_t seed, std::uint32_t index, float strength) {
    return std::make_shared<Recipe>(Recipe{Recipe::Variation, {{}, seed, index, 0}, strength, std::move(parent), nullptr});
}

RecipePtr blend(RecipePtr first, RecipePtr second, float position) {
    return std::make_shared<Recipe>(Recipe{Recipe::Blend, {}, position, std::move(first), std::move(second)});
}

std::string encode_token(const Recipe &recipe, const std::string &model_id, const Settings &settings) {
    std::string data(1, static_cast<char>(TOKEN_VERSION));
    data += short_id(model_id);
    put(data, static_cast<unsigned>(settings.detail) | (settings.context ? HAS_CONTEXT : 0), 1);
    if (settings.context) put(data, static_cast<std::uint64_t>(settings.context), 4);
    pack(data, recipe);
    put(data, crc32(data.data(), data.size()), 4);
    std::string text = to_text(data);
    if (text.size() > MAX_TOKEN_LENGTH || depth_of(recipe) > MAX_RECIPE_DEPTH)
        throw bad_argument("a variation of very many variations", "at most " + std::to_string(MAX_RECIPE_DEPTH) + " generations",
                           "sample anew");
    return text;
}

Token decode_token(std::string_view token, const std::string &model_id) {
    const std::string shown = "token '" + std::string(token.substr(0, 60)) + "'";
    try {
        const std::string data = from_text(token);
        if (data.size() < 10 + 4) throw Damaged{};
        std::string check;
        put(check, crc32(data.data(), data.size() - 4), 4);
        if (data.compare(data.size() - 4, 4, check) != 0 || data[0] < 1 || data[0] > TOKEN_VERSION) throw Damaged{};
        Unpacker unpacker(std::string_view(data).substr(1 + ID_BYTES, data.size() - 4 - 1 - ID_BYTES));
        Token decoded;
        if (data[0] > 1) decoded.settings = unpacker.settings();
        decoded.recipe = unpacker.recipe();
        if (!unpacker.finished()) throw Damaged{};
        if (data.compare(1, ID_BYTES, short_id(model_id)) != 0)
            throw Failure(PICME_BAD_TOKEN, shown + " of another model", "model " + model_id.substr(0, 16), "load the bundle that made it");
        return decoded;
    } catch (const Damaged &) {
        throw Failure(PICME_BAD_TOKEN, shown, "a token as a result carries it", "copy it whole");
    }
}

std::size_t holes_of(const Recipe &recipe) {
    return recipe.kind == Recipe::Drawn ? recipe.draw.primitives.size() : holes_of(*recipe.first);
}

} // namespace picme
