// Categorical primitive sampling: counter-based random numbers, the mixture's mathematics, and the choice of primitives.
// The Python counterparts are philox.py, mixture.py and recipe.py of picme_sdk/mixture; both pass tests/vectors/sampling.json.
// Random bits are Philox 4x32-10 with
//
//     key     = seed (low word, high word)
//     counter = (block, purpose, result, hole)
//
// so the same (seed, result, hole) gives the same numbers in any order, thread, process and language.
#pragma once

#include "manifest.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace picme {

enum Purpose : std::uint32_t { CHOICE, NOISE, VARIATION }; // streams that never overlap

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed);
// The number in [0, 1), with 53 random bits, that chooses a primitive.
double uniform(std::uint64_t seed, std::uint32_t result, std::uint32_t hole);
// `count` standard normals: each block gives two Box-Muller pairs.
std::vector<float> normals(std::uint64_t seed, std::uint32_t result, int count, std::uint32_t hole, Purpose purpose);

// q(z | photo) of one hole in double precision; a scale is a standard deviation. Immutable.
class Mixture {
public:
    // From the mixture graph's outputs: k weights, and k x d means and scales. Weights are normalised; -inf is a primitive that never
    // comes. Numbers that are not finite are a Failure.
    Mixture(const float *log_weights, const float *means, const float *log_scales, int k, int d);

    int size() const { return static_cast<int>(log_weights.size()); }
    int dimensions() const { return d; }
    double weight(int primitive) const;
    // How many answers there are, 1 to k: exp(-sum_i a_i log sum_j S_ij a_j) with the calibrated similarities S, so that primitives which
    // look alike count as one; without a calibration (null), exp(entropy of the weights).
    double ambiguity(const Ambiguity *calibration = nullptr) const;
    const double *mean(int primitive) const { return means.data() + offset(primitive); }
    const double *scale(int primitive) const { return scales.data() + offset(primitive); }

    std::vector<int> order() const; // primitives, heaviest first; equal ones by number
    std::vector<int> ideas() const; // for the diverse strategy: as `order`, near-duplicates of an earlier one last
    // i ~ Categorical(alpha ** (1 / temperature)); temperature 0 takes the heaviest.
    int pick(double uniform, double temperature) const;
    // log alpha_i + log N(z; mu_i, sigma_i) for z = mu_i + sigma_i * noise.
    double log_density(int primitive, const std::vector<double> &noise) const;

private:
    int d;
    std::vector<double> log_weights, means, scales;
    std::vector<double> log_volumes; // the logarithm of each primitive's normalising constant

    std::size_t offset(int primitive) const { return static_cast<std::size_t>(primitive) * static_cast<std::size_t>(d); }
    double distance(int a, int b) const;
    double similarity(int a, int b, const Ambiguity &calibration) const;
};

// One result's recipe: a primitive for each hole, and the noise numbered (seed, index), scaled by temperature.
struct Draw {
    std::vector<int> primitives;
    std::uint64_t seed = 0;
    std::uint32_t index = 0;
    float temperature = 0;
};

// The noise of a draw for one hole.
std::vector<double> noise_of(const Draw &draw, int dimensions, std::uint32_t hole);

struct SampleRequest {
    int n = 0;
    std::uint64_t seed = 0;
    int strategy = 0;   // picme_strategy
    int primitive = -1; // -1: any
    float temperature = 1;
};

// Recipes of the results 0 .. n. Result i does not depend on n, except in PICME_LIKELY, which sorts.
std::vector<Draw> draws(const std::vector<const Mixture *> &mixtures, const SampleRequest &request);

} // namespace picme
