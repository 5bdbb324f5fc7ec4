// picme.json, the manifest of a bundle; docs/deploy/bundle.md is the normative description, picme_sdk/manifest.py the twin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace picme {

constexpr std::int64_t LARGEST_MANIFEST = 1 << 20; // bytes
constexpr std::int64_t VARIES = -1;                // the size "n" of a tensor, as ONNX Runtime gives it too

struct Tensor {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
};

struct GraphFile {
    std::string graph, precision, file, sha256;
    std::int64_t bytes = 0;
    std::vector<Tensor> inputs, outputs;
};

// What a runtime needs of the manifest. Everything else is checked and forgotten.
struct Manifest {
    std::string name;
    int image_size = 0, primitives = 0, latent = 0, max_batch = 0;
    std::vector<GraphFile> graphs;

    // Float32 always exists; the mixture has no other precision.
    const GraphFile &graph(std::string_view name, std::string_view precision = "float32") const;
    bool has(std::string_view precision) const; // of encoder and decoder
    std::string model_id() const;               // names the model in tokens
};

// Anything but exactly the documented form is a Failure.
Manifest parse_manifest(std::string_view data);

} // namespace picme
