// What every language agrees on: names, limits, defaults and keys.
// Written by contract/generate.py from contract/contract.json. Change the JSON and run the script; tests/contract finds any drift.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

// clang-format off
namespace picme {

using Names = std::initializer_list<std::string_view>;

inline const Names STRATEGIES = {"categorical", "diverse", "likely"};
inline const Names DEVICES = {"auto", "cpu", "cuda", "tensorrt", "rtx"};
inline const Names PRECISIONS = {"float32", "float16", "int8"};
inline const Names STORAGES = {"float32", "float16"};
inline const Names DETAILS = {"off", "auto"};
inline const Names GRAPHS = {"encoder", "mixture", "decoder"};
inline const Names BUILDERS = {"tensorrt", "tensorrt_rtx"};

constexpr int MAX_RESULTS = 1000;
constexpr int MAX_HTTP_RESULTS = 64;
constexpr int MAX_PIXELS = 100000000;
constexpr int MAX_HTTP_PIXELS = 50000000;
constexpr int MAX_CONTEXT = 1048576;
constexpr int MAX_HOLES = 8;
constexpr int MAX_TEMPERATURE = 100;
constexpr int MAX_STRENGTH = 1;
constexpr int MAX_THREADS = 1024;
constexpr int MAX_TOKEN_LENGTH = 2048;
constexpr int MAX_RECIPE_DEPTH = 32;
constexpr int MAX_MANIFEST_BYTES = 1048576;
constexpr std::int64_t MAX_FILE_BYTES = 2147483648;
constexpr int MAX_BUNDLE_FILES = 256;
constexpr int MAX_TEXT_LENGTH = 4000;
constexpr int MAX_KNOWS_LENGTH = 200;
constexpr double MAX_NUMBER = 1e30;
constexpr int MIN_IMAGE_SIZE = 8;
constexpr int MAX_IMAGE_SIZE = 4096;
constexpr int MAX_PRIMITIVES = 1024;
constexpr int MAX_LATENT = 65536;
constexpr int MAX_BATCH = 1024;
constexpr int MAX_AMBIGUITY_POWER = 16;

constexpr int DEFAULT_RESULTS = 6;
constexpr int DEFAULT_BATCH_RESULTS = 1;
constexpr int DEFAULT_STRATEGY = 1;
constexpr double DEFAULT_TEMPERATURE = 1.0;
constexpr int DEFAULT_VARIATIONS = 4;
constexpr double DEFAULT_STRENGTH = 0.3;
constexpr int DEFAULT_STEPS = 5;
constexpr std::string_view DEFAULT_DEVICE = "auto";
constexpr std::string_view DEFAULT_PRECISION = "float32";

constexpr int TOKEN_VERSION = 2;
constexpr int BUNDLE_FORMAT = 2;
constexpr std::string_view MANIFEST = "picme.json";

namespace format_1 {

inline const Names MANIFEST_KEYS = {"format", "name", "licence", "image_size", "primitives", "latent", "max_batch", "graphs", "engines", "files", "made_by", "verified", "card", "seal"};
inline const Names GRAPH_KEYS = {"graph", "precision", "file", "sha256", "bytes", "inputs", "outputs"};
inline const Names ENGINE_KEYS = {"graph", "precision", "file", "sha256", "bytes", "inputs", "outputs", "builder", "version", "target", "source", "profile"};
inline const Names TENSOR_KEYS = {"name", "dtype", "shape"};
inline const Names FILE_KEYS = {"file", "sha256", "bytes"};
inline const Names CHECK_KEYS = {"graph", "compared", "measure", "input", "value", "limit"};
inline const Names CARD_KEYS = {"training_data", "training", "metrics", "limits"};

} // namespace format_1

namespace format_2 {

inline const Names MANIFEST_KEYS = {"format", "name", "knows", "licence", "model_id", "image_size", "primitives", "latent", "max_batch", "ambiguity", "graphs", "engines", "files", "made_by", "verified", "measured", "card", "seal"};
inline const Names AMBIGUITY_KEYS = {"scale", "power", "weights"};
inline const Names GRAPH_KEYS = {"graph", "precision", "storage", "file", "sha256", "bytes", "inputs", "outputs"};
inline const Names ENGINE_KEYS = {"graph", "precision", "file", "sha256", "bytes", "inputs", "outputs", "builder", "version", "target", "source", "profiles"};
inline const Names TENSOR_KEYS = {"name", "dtype", "shape"};
inline const Names FILE_KEYS = {"file", "sha256", "bytes"};
inline const Names CHECK_KEYS = {"graph", "compared", "measure", "input", "value", "limit"};
inline const Names MEASUREMENT_KEYS = {"device", "driver", "clocks", "backend", "graph", "precision", "results", "rounds", "p50_ms", "p99_ms"};
inline const Names CARD_KEYS = {"training_data", "training", "metrics", "limits"};

} // namespace format_2

} // namespace picme
