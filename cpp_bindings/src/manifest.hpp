// picme.json, the manifest of a bundle. docs/deploy/bundle.md is the normative description; the Python counterpart is picme_sdk/bundle/manifest.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace picme {

constexpr std::int64_t VARIES = -1; // the size "n" of a tensor; ONNX Runtime uses the same value

struct Tensor {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
};

struct GraphFile {
    std::string graph, precision, file, sha256;
    std::int64_t bytes = 0;
    std::vector<Tensor> inputs, outputs;
};

// Which primitives look alike, calibrated against decoded pictures: the similarity of two is exp(-(d / scale) ^ power), where d is the
// square root of the sum over dimensions of weight * (difference of means)^2.
struct Ambiguity {
    double scale = 0, power = 0;
    std::vector<double> weights; // one for each dimension; empty = all are 1
};

// The part of the manifest that a runtime needs. Everything else is checked and dropped.
struct Manifest {
    std::string name, knows;
    std::string model_id; // names the model in tokens
    int image_size = 0, primitives = 0, latent = 0, max_batch = 0;
    std::optional<Ambiguity> ambiguity;
    std::vector<GraphFile> graphs;

    // A graph in a precision, or in float32 where it has no such variant: precision is per graph.
    const GraphFile &graph(std::string_view name, std::string_view precision = "float32") const;
    // Whether a precision can be asked for: at least one graph has it, and the skips fit between encoder and decoder.
    bool has(std::string_view precision) const;
};

// Reads formats 1 and 2. Anything but exactly the documented form is a Failure.
Manifest parse_manifest(std::string_view data);

} // namespace picme
