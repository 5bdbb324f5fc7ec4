// The two handles behind the C interface: a loaded model, and a photo that was encoded once. The Python counterparts are completer.py and
// scene.py.
#pragma once

#include "crops.hpp"
#include "ort.hpp"
#include "mixture.hpp"
#include "token.hpp"

#include <memory>
#include <string>
#include <vector>

namespace picme {

// A model, ready to run. Immutable.
struct Model {
    Manifest manifest;
    std::string runtime; // such as "onnxruntime 1.31.1"
    std::unique_ptr<Backend> backend;
    double load_ms;

    Model(const std::string &bundle, const char *library, const std::string &provider, const std::string &precision, int threads);
};

// One hole, encoded.
struct Region {
    Hole hole;
    std::vector<Ort::Value> skips;
    Mixture mixture;
};

struct Completion {
    int primitive = 0;
    double weight = 0, log_density = 0, decode_ms = 0;
    std::string token;
};

// A point of one hole's latent space, z = mean + scale * noise, and the primitive it counts as.
struct Latent {
    int primitive;
    std::vector<double> mean, scale, noise;
};

// A photo with its holes, encoded. Immutable; keeps its model alive.
class Scene {
public:
    // opaque: the hole was drawn by erasing, so results are opaque inside it.
    Scene(std::shared_ptr<const Model> model, Photo photo, const Mask &mask, int context, bool opaque);

    const Photo &photo() const { return photo_; }
    const Mixture &mixture() const { return regions.front().mixture; } // of the largest hole
    double ambiguity() const;                                          // of the largest hole
    std::size_t holes() const { return regions.size(); }
    double encode_ms() const { return encode_ms_; }

    std::vector<RecipePtr> sample(const SampleRequest &request) const;
    RecipePtr recipe(const char *token) const; // Failure if the token is of another model or was made with other settings
    // Decodes recipe i into targets[i], in batches.
    std::vector<Completion> decode(const std::vector<RecipePtr> &recipes, const std::vector<PixelView> &targets) const;

private:
    std::shared_ptr<const Model> model;
    Photo photo_;
    bool opaque;
    Settings settings;
    std::vector<Region> regions;
    double encode_ms_ = 0;

    Region encode(Hole hole) const;
    std::vector<Latent> latents(const Recipe &recipe) const; // one a hole
    void decode_batch(const RecipePtr *recipes, const PixelView *targets, std::size_t count, std::vector<Completion> &completions) const;
};

} // namespace picme
