// Result tokens: a short text that replays a result on any device, and the recipe inside it. Twin of picme_sdk/mixture/token.py.
// The text is base64url of: version, first 8 bytes of the model id, recipe, CRC-32.
#pragma once

#include "mixture.hpp"

#include <memory>
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

std::string encode_token(const Recipe &recipe, const std::string &model_id);
// Failure if the token is damaged or of another model.
RecipePtr decode_token(std::string_view token, const std::string &model_id);
// How many holes a recipe is for.
std::size_t holes_of(const Recipe &recipe);

} // namespace picme
