// Result tokens: a short text that replays a result on any device, and the recipe inside it. The Python counterpart is
// picme_sdk/mixture/token.py. The text is base64url of
//
//     version (2), first 8 bytes of the model id, settings, recipe, CRC-32
//
// Settings are one byte: detail in bits 0 to 3 (0 = off, 1 = auto), bits 4 to 6 reserved for how a hole is tiled (0), and bit 7 set where a
// context of four bytes follows. Version 1 has no settings. Numbers are little-endian.
#pragma once

#include "mixture.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace picme {

struct Recipe;
using RecipePtr = std::shared_ptr<const Recipe>;

// A draw; or a variation: the noise of `first`, turned towards new noise numbered (draw.seed, draw.index) by the share `amount`;
// or a blend: the point `amount` of the way from `first` to `second`.
struct Recipe {
    enum Kind { Drawn, Variation, Blend } kind = Drawn;
    Draw draw;
    float amount = 0;
    RecipePtr first, second;
};

RecipePtr drawn(Draw draw);
RecipePtr variation(RecipePtr parent, std::uint64_t seed, std::uint32_t index, float strength);
RecipePtr blend(RecipePtr first, RecipePtr second, float position);

// What a photo was encoded with: a recipe gives the same pixels only where these are equal.
struct Settings {
    int context = 0; // smallest side of the square around a hole; 0 = the model's own resolution
    int detail = 0;  // index into DETAILS

    bool operator==(const Settings &other) const { return context == other.context && detail == other.detail; }
};

struct Token {
    RecipePtr recipe;
    std::optional<Settings> settings; // version 1 did not record them
};

std::string encode_token(const Recipe &recipe, const std::string &model_id, const Settings &settings);
// Failure if the token is damaged or of another model.
Token decode_token(std::string_view token, const std::string &model_id);
// How many holes a recipe is for.
std::size_t holes_of(const Recipe &recipe);

} // namespace picme
