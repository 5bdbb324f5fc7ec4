// Normals are Box-Muller in double, rounded to float: two math libraries differ by at most one unit in the last place.
#include "mixture.hpp"

#include "failure.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace picme {
namespace {

constexpr double PI = 3.14159265358979323846;
constexpr float MAX_LOG_SCALE = 50.0f; // beyond it a sample would overflow a float
constexpr double NEAR = 0.01;          // primitives closer than this are near-duplicates, see `distance`

std::vector<Draw> numbered(const std::vector<const Mixture *> &mixtures, const SampleRequest &request, bool diverse, std::uint32_t start) {
    std::vector<Draw> draws(static_cast<std::size_t>(request.n) - start);
    for (std::size_t i = 0; i < draws.size(); ++i)
        draws[i] = {{}, request.seed, start + static_cast<std::uint32_t>(i), request.temperature};
    for (std::uint32_t hole = 0; hole < mixtures.size(); ++hole) {
        const std::vector<int> ideas = diverse && request.primitive < 0 ? mixtures[hole]->ideas() : std::vector<int>{};
        for (std::size_t i = 0; i < draws.size(); ++i) {
            const int primitive = request.primitive >= 0 ? request.primitive
                                  : i < ideas.size()
                                      ? ideas[i]
                                      : mixtures[hole]->pick(uniform(request.seed, draws[i].index, hole), request.temperature);
            draws[i].primitives.push_back(primitive);
        }
    }
    return draws;
}

// The heaviest primitive's mean, then samples by falling log-density.
std::vector<Draw> likely(const std::vector<const Mixture *> &mixtures, const SampleRequest &request) {
    Draw top{{}, request.seed, 0, 0.0f};
    for (const Mixture *mixture : mixtures) top.primitives.push_back(request.primitive >= 0 ? request.primitive : mixture->order()[0]);
    std::vector<std::pair<double, Draw>> rest;
    for (Draw &draw : numbered(mixtures, request, false, 1)) {
        double sum = 0;
        for (std::uint32_t hole = 0; hole < mixtures.size(); ++hole)
            sum += mixtures[hole]->log_density(draw.primitives[hole], noise_of(draw, mixtures[hole]->dimensions(), hole));
        rest.emplace_back(sum, std::move(draw));
    }
    std::stable_sort(rest.begin(), rest.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    std::vector<Draw> draws{std::move(top)};
    for (auto &entry : rest) draws.push_back(std::move(entry.second));
    return draws;
}

} // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint64_t seed) {
    auto low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xD2511F53} * c[0], second = std::uint64_t{0xCD9E8D57} * c[2];
        c = {static_cast<std::uint32_t>(second >> 32) ^ c[1] ^ low, static_cast<std::uint32_t>(second),
             static_cast<std::uint32_t>(first >> 32) ^ c[3] ^ high, static_cast<std::uint32_t>(first)};
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return c;
}

double uniform(std::uint64_t seed, std::uint32_t result, std::uint32_t hole) {
    const auto words = philox({0, CHOICE, result, hole}, seed);
    return static_cast<double>((std::uint64_t{words[0]} >> 5) * 67108864 + (words[1] >> 6)) / 9007199254740992.0;
}

std::vector<float> normals(std::uint64_t seed, std::uint32_t result, int count, std::uint32_t hole, Purpose purpose) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(count) + 3);
    for (std::uint32_t block = 0; static_cast<int>(values.size()) < count; ++block) {
        const auto words = philox({block, purpose, result, hole}, seed);
        for (std::size_t pair = 0; pair < 4; pair += 2) {
            const double radius = std::sqrt(-2.0 * std::log((words[pair] + 1.0) * 0x1p-32));
            const double angle = words[pair + 1] * (2.0 * PI * 0x1p-32);
            values.push_back(static_cast<float>(radius * std::cos(angle)));
            values.push_back(static_cast<float>(radius * std::sin(angle)));
        }
    }
    values.resize(static_cast<std::size_t>(count));
    return values;
}

Mixture::Mixture(const float *weights, const float *centres, const float *log_scales, int k, int d) : d(d) {
    const auto count = static_cast<std::size_t>(k), all = count * static_cast<std::size_t>(d);
    const bool usable = std::none_of(weights, weights + count, [](float v) { return std::isnan(v); }) &&
                        std::isfinite(*std::max_element(weights, weights + count)) &&
                        std::all_of(centres, centres + all, [](float v) { return std::isfinite(v); }) &&
                        std::all_of(log_scales, log_scales + all, [](float v) { return v < MAX_LOG_SCALE; }); // also false for NaN
    if (!usable)
        throw Failure(PICME_NUMERICAL_ERROR, "a mixture with numbers that are not finite", "finite numbers",
                      "use provider cpu, or another bundle");
    log_weights.assign(weights, weights + count);
    means.assign(centres, centres + all);
    scales.assign(log_scales, log_scales + all);
    const double top = *std::max_element(log_weights.begin(), log_weights.end());
    double sum = 0;
    for (const double value : log_weights) sum += std::exp(value - top);
    const double total = top + std::log(sum);
    for (double &value : log_weights) value -= total;
    for (int i = 0; i < k; ++i) {
        const double *own = scale(i);
        log_volumes.push_back(std::accumulate(own, own + d, 0.0) + 0.5 * d * std::log(2 * PI));
    }
    for (double &value : scales) value = std::exp(value);
}

double Mixture::weight(int primitive) const { return std::exp(log_weights[static_cast<std::size_t>(primitive)]); }

double Mixture::ambiguity(const Ambiguity *calibration) const {
    double entropy = 0;
    for (int i = 0; i < size(); ++i) {
        if (!(weight(i) > 0)) continue; // a primitive that never comes adds nothing
        double log_share = log_weights[static_cast<std::size_t>(i)];
        if (calibration) {
            double share = 0;
            for (int j = 0; j < size(); ++j) share += similarity(i, j, *calibration) * weight(j);
            log_share = std::log(share);
        }
        entropy -= weight(i) * log_share;
    }
    return std::exp(entropy);
}

// 1 for primitives that look the same, 0 for those that have nothing in common.
double Mixture::similarity(int a, int b, const Ambiguity &calibration) const {
    double sum = 0;
    for (int i = 0; i < d; ++i) {
        const double gap = mean(a)[i] - mean(b)[i];
        sum += gap * gap * (calibration.weights.empty() ? 1.0 : calibration.weights[static_cast<std::size_t>(i)]);
    }
    return std::exp(-std::pow(std::sqrt(sum) / calibration.scale, calibration.power));
}

std::vector<int> Mixture::order() const {
    std::vector<int> indices(log_weights.size());
    std::iota(indices.begin(), indices.end(), 0);
    std::stable_sort(indices.begin(), indices.end(),
                     [&](int a, int b) { return log_weights[static_cast<std::size_t>(a)] > log_weights[static_cast<std::size_t>(b)]; });
    return indices;
}

// How far apart two primitives are: mean over dimensions of (difference of means)^2 / (sum of variances).
double Mixture::distance(int a, int b) const {
    double sum = 0;
    for (int i = 0; i < d; ++i) {
        const double gap = mean(a)[i] - mean(b)[i], spread = scale(a)[i] * scale(a)[i] + scale(b)[i] * scale(b)[i];
        sum += gap * gap / std::max(spread, 1e-300);
    }
    return sum / d;
}

std::vector<int> Mixture::ideas() const {
    std::vector<int> first, later;
    for (const int i : order()) {
        const bool near = std::any_of(first.begin(), first.end(), [&](int j) { return distance(i, j) < NEAR; });
        (near ? later : first).push_back(i);
    }
    first.insert(first.end(), later.begin(), later.end());
    return first;
}

int Mixture::pick(double uniform, double temperature) const {
    if (temperature == 0) return order()[0];
    const double top = *std::max_element(log_weights.begin(), log_weights.end());
    std::vector<double> edges;
    double sum = 0;
    for (const double value : log_weights) edges.push_back(sum += std::exp((value - top) / temperature));
    const auto index = std::upper_bound(edges.begin(), edges.end(), uniform * edges.back()) - edges.begin();
    return std::min(static_cast<int>(index), size() - 1);
}

double Mixture::log_density(int primitive, const std::vector<double> &noise) const {
    const auto i = static_cast<std::size_t>(primitive);
    return log_weights[i] - log_volumes[i] - 0.5 * std::inner_product(noise.begin(), noise.end(), noise.begin(), 0.0);
}

std::vector<double> noise_of(const Draw &draw, int dimensions, std::uint32_t hole) {
    std::vector<double> noise;
    noise.reserve(static_cast<std::size_t>(dimensions));
    for (const float value : normals(draw.seed, draw.index, dimensions, hole, NOISE))
        noise.push_back(double{draw.temperature} * double{value});
    return noise;
}

std::vector<Draw> draws(const std::vector<const Mixture *> &mixtures, const SampleRequest &request) {
    if (request.strategy == PICME_LIKELY) return likely(mixtures, request);
    return numbered(mixtures, request, request.strategy == PICME_DIVERSE, 0);
}

} // namespace picme
