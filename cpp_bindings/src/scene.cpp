// The flow: encode once, mixture, then for each batch latents, decoder, seam, and the fill into the caller's pixels.
#include "scene.hpp"

#include "contract.hpp"
#include "failure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace picme {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

std::vector<double> line(const std::vector<double> &a, double wa, const std::vector<double> &b, double wb) {
    std::vector<double> sum(a.size());
    std::transform(a.begin(), a.end(), b.begin(), sum.begin(), [&](double x, double y) { return wa * x + wb * y; });
    return sum;
}

double dot(const std::vector<double> &a, const std::vector<double> &b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Latent varied(Latent latent, const Recipe &recipe, std::uint32_t hole) {
    const auto fresh = normals(recipe.draw.seed, recipe.draw.index, static_cast<int>(latent.noise.size()), hole, VARIATION);
    const double strength = recipe.amount, kept = std::sqrt(1 - strength * strength); // the mixed noise keeps its variance
    latent.noise = line(latent.noise, kept, std::vector<double>(fresh.begin(), fresh.end()), strength);
    return latent;
}

// Means and scales on a line, noise on the arc between the two.
Latent blended(const Latent &a, const Latent &b, double t) {
    const double lengths = std::sqrt(dot(a.noise, a.noise)) * std::sqrt(dot(b.noise, b.noise));
    const double angle = std::acos(lengths > 0 ? std::clamp(dot(a.noise, b.noise) / lengths, -1.0, 1.0) : 1.0);
    const bool straight = angle < 1e-6 || angle > std::acos(-1.0) - 1e-6;
    const double wa = straight ? 1 - t : std::sin((1 - t) * angle) / std::sin(angle),
                 wb = straight ? t : std::sin(t * angle) / std::sin(angle);
    return {(t < 0.5 ? a : b).primitive, line(a.mean, 1 - t, b.mean, t), line(a.scale, 1 - t, b.scale, t), line(a.noise, wa, b.noise, wb)};
}

} // namespace

Model::Model(const std::string &path, const char *library, const std::string &provider, const std::string &precision, int threads) {
    const auto start = Clock::now();
    const Bundle bundle(path);
    runtime = "onnxruntime " + open_runtime(library);
    backend = open_backend(bundle, provider, precision, threads);
    manifest = bundle.manifest();
    load_ms = milliseconds_since(start);
}

Scene::Scene(std::shared_ptr<const Model> given, Photo photo, const Mask &mask, int context, bool opaque)
    : model(std::move(given)), photo_(std::move(photo)), opaque(opaque), settings{context == model->manifest.image_size ? 0 : context, 0} {
    const auto start = Clock::now();
    for (Hole &hole : find_holes(photo_, mask, model->manifest.image_size, context)) regions.push_back(encode(std::move(hole)));
    encode_ms_ = milliseconds_since(start);
}

Region Scene::encode(Hole hole) const {
    const std::int64_t side = hole.size;
    const Backend &backend = *model->backend;
    const Ort::Value image = tensor_over(hole.image.data(), {1, side, side, 3}),
                     hidden = tensor_over(hole.hidden.data(), {1, side, side, 1});
    std::vector<Ort::Value> skips = backend.encoder.run({image, hidden});
    hole.image = {}, hole.hidden = {}; // the encoder has read them
    const Ort::Value context = std::move(skips.front());
    skips.erase(skips.begin());
    bool finite = false;
    if (backend.encoder.entry().outputs.back().name == "finite") {
        finite = *skips.back().GetTensorData<std::uint8_t>() != 0;
        skips.pop_back();
    } else { // a graph without the flag: at least what the mixture reads is checked
        const float *values = context.GetTensorData<float>();
        finite =
            std::all_of(values, values + context.GetTensorTypeAndShapeInfo().GetElementCount(), [](float v) { return std::isfinite(v); });
    }
    if (!finite)
        throw Failure(PICME_NUMERICAL_ERROR, "encoder output that is not finite", "finite numbers", "use provider cpu, or another bundle");
    const std::vector<Ort::Value> mixture = backend.mixture.run({context});
    return {std::move(hole), std::move(skips),
            Mixture(mixture[0].GetTensorData<float>(), mixture[1].GetTensorData<float>(), mixture[2].GetTensorData<float>(),
                    model->manifest.primitives, model->manifest.latent)};
}

std::vector<RecipePtr> Scene::sample(const SampleRequest &request) const {
    std::vector<const Mixture *> mixtures;
    for (const Region &region : regions) mixtures.push_back(&region.mixture);
    std::vector<RecipePtr> recipes;
    for (Draw &draw : draws(mixtures, request)) recipes.push_back(drawn(std::move(draw)));
    return recipes;
}

RecipePtr Scene::recipe(const char *token) const {
    const Token decoded = decode_token(token, model->manifest.model_id);
    const auto shown = [](const Settings &s) {
        return "context " + std::to_string(s.context) + ", detail " + std::string(DETAILS.begin()[s.detail]);
    };
    if (decoded.settings && !(*decoded.settings == settings))
        throw Failure(PICME_BAD_TOKEN, "a token made with " + shown(*decoded.settings), shown(settings) + ", as this scene has",
                      "encode the photo as it was encoded for the token");
    return decoded.recipe;
}

double Scene::ambiguity() const { return mixture().ambiguity(model->manifest.ambiguity ? &*model->manifest.ambiguity : nullptr); }

std::vector<Latent> Scene::latents(const Recipe &recipe) const {
    std::vector<Latent> points;
    if (recipe.kind == Recipe::Drawn) {
        // A blend may join draws for different numbers of holes; each is checked.
        if (recipe.draw.primitives.size() != regions.size())
            throw Failure(PICME_BAD_TOKEN, "a token for " + std::to_string(recipe.draw.primitives.size()) + " holes",
                          std::to_string(regions.size()) + ", as this scene has", "use the same mask");
        for (std::uint32_t hole = 0; hole < regions.size(); ++hole) {
            const Mixture &mixture = regions[hole].mixture;
            const int i = recipe.draw.primitives[hole], d = mixture.dimensions();
            if (i >= mixture.size())
                throw Failure(PICME_BAD_TOKEN, "primitive " + std::to_string(i), "0 to " + std::to_string(mixture.size() - 1),
                              "use a token of this model");
            points.push_back(
                {i, {mixture.mean(i), mixture.mean(i) + d}, {mixture.scale(i), mixture.scale(i) + d}, noise_of(recipe.draw, d, hole)});
        }
        return points;
    }
    points = latents(*recipe.first);
    const std::vector<Latent> others = recipe.kind == Recipe::Blend ? latents(*recipe.second) : std::vector<Latent>{};
    for (std::uint32_t hole = 0; hole < points.size(); ++hole)
        points[hole] = recipe.kind == Recipe::Blend ? blended(points[hole], others[hole], recipe.amount)
                                                    : varied(std::move(points[hole]), recipe, hole);
    return points;
}

std::vector<Completion> Scene::decode(const std::vector<RecipePtr> &recipes, const std::vector<PixelView> &targets) const {
    std::vector<Completion> completions;
    const auto batch = static_cast<std::size_t>(model->backend->batch);
    for (std::size_t start = 0; start < recipes.size(); start += batch)
        decode_batch(recipes.data() + start, targets.data() + start, std::min(batch, recipes.size() - start), completions);
    return completions;
}

void Scene::decode_batch(const RecipePtr *recipes, const PixelView *targets, std::size_t count,
                         std::vector<Completion> &completions) const {
    const auto start = Clock::now();
    std::vector<std::vector<Latent>> points;
    std::vector<std::string> tokens; // encoded first, because a recipe may have grown too long for a token
    for (std::size_t i = 0; i < count; ++i) {
        tokens.push_back(encode_token(*recipes[i], model->manifest.model_id, settings));
        points.push_back(latents(*recipes[i]));
    }
    std::vector<std::vector<std::uint8_t>> squares; // of each hole [n, s, s, 3]
    for (std::size_t hole = 0; hole < regions.size(); ++hole) {
        const Region &region = regions[hole];
        std::vector<float> z;
        for (const auto &point : points)
            for (std::size_t i = 0; i < point[hole].mean.size(); ++i)
                z.push_back(static_cast<float>(point[hole].mean[i] + point[hole].scale[i] * point[hole].noise[i]));
        squares.push_back(model->backend->decode(z, region.skips));
    }
    const std::size_t square_bytes =
        static_cast<std::size_t>(model->manifest.image_size) * static_cast<std::size_t>(model->manifest.image_size) * 3;
    for (std::size_t hole = 0; hole < regions.size(); ++hole)
        for (std::size_t i = 0; i < count; ++i) regions[hole].hole.seam.heal(squares[hole].data() + i * square_bytes);
    const double each = milliseconds_since(start) / static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) {
        photo_.copy_to(targets[i]);
        Completion done{points[i][0].primitive, mixture().weight(points[i][0].primitive), 0, each, std::move(tokens[i])};
        for (std::size_t hole = 0; hole < regions.size(); ++hole) {
            regions[hole].hole.fill(photo_, targets[i], squares[hole].data() + i * square_bytes, opaque);
            done.log_density += regions[hole].mixture.log_density(points[i][hole].primitive, points[i][hole].noise);
        }
        completions.push_back(std::move(done));
    }
}

} // namespace picme
