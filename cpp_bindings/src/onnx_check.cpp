// Walks through the protobuf message by its lengths, without copying. Refused: tensors whose data is in another file, operators outside the
// standard sets, and local functions.
#include "onnx_check.hpp"

#include "failure.hpp"

#include <cstdint>

namespace picme {
namespace {

// Field numbers of onnx.proto.
enum Model { GRAPH = 7, OPSET = 8, FUNCTIONS = 25 };
enum Opset { OPSET_DOMAIN = 1 };
enum Graph { NODE = 1, INITIALIZER = 5, SPARSE_INITIALIZER = 15 };
enum Node { ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum Attribute { TENSOR = 5, SUBGRAPH = 6, TENSORS = 10, SUBGRAPHS = 11, SPARSE = 22, SPARSES = 23 };
enum Sparse { VALUES = 1, INDICES = 2 };
enum Data { EXTERNAL = 13, LOCATION = 14 };

constexpr int MAX_DEPTH = 16; // of nested graphs

struct Truncated {};

struct Field {
    std::uint64_t number = 0, varint = 0;
    bool is_view = false; // otherwise it is a varint
    std::string_view view;
};

// Yields the fields of a message one by one.
class Fields {
public:
    explicit Fields(std::string_view data) : data(data) {}

    bool next(Field &field) {
        if (at >= data.size()) return false;
        const std::uint64_t key = varint();
        const auto kind = key & 7;
        field = {key >> 3, 0, kind != 0, {}};
        if (kind == 0) {
            field.varint = varint();
            return true;
        }
        const std::uint64_t size = kind == 2 ? varint() : kind == 1 ? 8 : kind == 5 ? 4 : throw Truncated{};
        if (size > data.size() - at) throw Truncated{};
        field.view = data.substr(at, static_cast<std::size_t>(size));
        at += static_cast<std::size_t>(size);
        return true;
    }

private:
    std::string_view data;
    std::size_t at = 0;

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift <= 63; shift += 7) {
            if (at >= data.size()) throw Truncated{};
            const auto byte = static_cast<unsigned char>(data[at++]);
            value |= std::uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) return value;
        }
        throw Truncated{};
    }
};

class Walk {
public:
    explicit Walk(const std::string &name) : name(name) {}

    void model(std::string_view data) const {
        int graphs = 0;
        Field field;
        for (Fields fields(data); fields.next(field);) {
            if (!field.is_view) continue;
            if (field.number == FUNCTIONS) throw bad("local functions", "plain nodes");
            if (field.number == OPSET) {
                Field part;
                for (Fields parts(field.view); parts.next(part);)
                    if (part.number == OPSET_DOMAIN && part.is_view) domain(part.view);
            } else if (field.number == GRAPH) {
                ++graphs;
                graph(field.view, 0);
            }
        }
        if (graphs != 1) throw bad(std::to_string(graphs) + " graphs", "an ONNX model with one graph");
    }

private:
    const std::string &name;

    Failure bad(const std::string &given, const std::string &expected) const {
        return bad_bundle(name + ": " + given, expected, "export again");
    }

    void domain(std::string_view given) const {
        if (!given.empty() && given != "ai.onnx") throw bad("operators of another domain", "standard ONNX operators only");
    }

    void tensor(std::string_view data) const {
        Field field;
        for (Fields fields(data); fields.next(field);)
            if (field.number == EXTERNAL || (field.number == LOCATION && (field.is_view || field.varint != 0)))
                throw bad("a tensor is in another file", "all data inside the ONNX file");
    }

    void sparse(std::string_view data) const {
        Field field;
        for (Fields fields(data); fields.next(field);)
            if (field.is_view && (field.number == VALUES || field.number == INDICES)) tensor(field.view);
    }

    void graph(std::string_view data, int depth) const {
        if (depth > MAX_DEPTH) throw bad("graphs nested " + std::to_string(depth) + " deep", "at most " + std::to_string(MAX_DEPTH));
        Field field;
        for (Fields fields(data); fields.next(field);) {
            if (!field.is_view) continue;
            if (field.number == INITIALIZER) tensor(field.view);
            if (field.number == SPARSE_INITIALIZER) sparse(field.view);
            if (field.number == NODE) node(field.view, depth);
        }
    }

    void node(std::string_view data, int depth) const {
        Field field;
        for (Fields fields(data); fields.next(field);) {
            if (!field.is_view) continue;
            if (field.number == NODE_DOMAIN) domain(field.view);
            if (field.number == ATTRIBUTE) attribute(field.view, depth);
        }
    }

    void attribute(std::string_view data, int depth) const {
        Field field;
        for (Fields fields(data); fields.next(field);) {
            if (!field.is_view) continue;
            if (field.number == TENSOR || field.number == TENSORS) tensor(field.view);
            if (field.number == SPARSE || field.number == SPARSES) sparse(field.view);
            if (field.number == SUBGRAPH || field.number == SUBGRAPHS) graph(field.view, depth + 1);
        }
    }
};

} // namespace

void check_self_contained(std::string_view model, const std::string &name) {
    try {
        Walk(name).model(model);
    } catch (const Truncated &) {
        throw bad_bundle(name + ": not an ONNX file (truncated)", "an ONNX model", "export again");
    }
}

} // namespace picme
