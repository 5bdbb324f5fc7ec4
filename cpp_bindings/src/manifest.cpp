// Reads picme.json. The key set is closed: an unknown, missing or repeated key, a value of another type or a path that leaves the bundle
// is refused. The patterns of docs/deploy/bundle.md are written out as small matchers.
#include "manifest.hpp"

#include "failure.hpp"
#include "hash.hpp"
#include "json.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>

namespace picme {
namespace {

using json::Value;
using Choices = std::initializer_list<std::string_view>;

constexpr std::int64_t LARGEST_FILE = std::int64_t{2} << 30;
constexpr std::size_t MOST_FILES = 256;
const Choices GRAPHS = {"encoder", "mixture", "decoder"};

Failure bad(const std::string &given, const std::string &expected) {
    return bad_bundle("picme.json: " + given, expected, "export the bundle again");
}

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_lower(c) || is_digit(c) || c == '_'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

// [a-z0-9_][a-z0-9_-]*(\.[a-z0-9_-]+)* in each part, parts joined by "/": never absolute, never "." or "..".
bool is_file_name(std::string_view name) {
    char before = '/';
    for (const char c : name) {
        const bool starts = before == '/', ends = c == '/' || c == '.';
        if (starts ? !is_word(c) : ends ? before == '.' : !(is_word(c) || c == '-')) return false;
        before = c;
    }
    return before != '/' && before != '.';
}

bool is_hash(std::string_view text) { return text.size() == 64 && std::all_of(text.begin(), text.end(), is_hex); }

bool is_model_name(std::string_view text) {
    const auto alnum = [](char c) { return is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z'); };
    return !text.empty() && text.size() <= 64 && alnum(text[0]) &&
           std::all_of(text.begin(), text.end(), [&](char c) { return alnum(c) || c == ' ' || c == '.' || c == '_' || c == '-'; });
}

bool is_tensor_name(std::string_view text) {
    return !text.empty() && text.size() <= 41 && is_lower(text[0]) && std::all_of(text.begin(), text.end(), is_word);
}

// Two to five numbers joined by dots.
bool is_version(std::string_view text) {
    std::size_t dots = 0;
    char before = '.';
    for (const char c : text) {
        if (!is_digit(c) && (c != '.' || before == '.')) return false;
        dots += c == '.';
        before = c;
    }
    return before != '.' && dots >= 1 && dots <= 4;
}

// "ampere+", or sm_NN or sm_NNN joined by "+".
bool is_target(std::string_view text) {
    if (text == "ampere+") return true;
    while (true) {
        const std::string_view one = text.substr(0, text.find('+'));
        if (one.substr(0, 3) != "sm_" || one.size() < 5 || one.size() > 6 || !std::all_of(one.begin() + 3, one.end(), is_digit))
            return false;
        if (one.size() == text.size()) return true;
        text.remove_prefix(one.size() + 1);
    }
}

bool any_text(std::string_view) { return true; }

// Takes a JSON object apart; its keys must be exactly those expected.
class Reader {
public:
    Reader(const Value &value, std::string where, Choices keys) : where(std::move(where)), table(value.object) {
        if (value.kind != Value::Object) throw bad(this->where + " is no object", "an object");
        for (const auto &key : keys)
            if (!table.count(std::string(key))) throw bad(this->where + " lacks " + std::string(key), "every key of the format");
        for (const auto &entry : table)
            if (std::find(keys.begin(), keys.end(), entry.first) == keys.end())
                throw bad(this->where + " has the unknown key " + entry.first.substr(0, 60), "the keys of the format only");
    }

    const Value &at(const char *key) const { return table.at(key); }
    std::string name(const char *key) const { return where + "." + key; }

    std::string text(const char *key, bool (*fits)(std::string_view) = any_text) const {
        const Value &value = at(key);
        // Python counts characters: bytes that do not continue one.
        const auto length = std::count_if(value.text.begin(), value.text.end(), [](char c) { return (c & 0xC0) != 0x80; });
        if (value.kind != Value::Text || length > 4000 || value.text.find('\0') != std::string::npos)
            throw bad(name(key), "a text of at most 4,000 characters");
        if (!fits(value.text)) throw bad(name(key) + " is '" + value.text.substr(0, 60) + "'", "the form that docs/deploy/bundle.md gives");
        return value.text;
    }

    std::string choice(const char *key, Choices choices) const {
        std::string value = text(key);
        if (std::find(choices.begin(), choices.end(), value) == choices.end())
            throw bad(name(key) + " is '" + value.substr(0, 60) + "'", "one of the values of the format");
        return value;
    }

    std::int64_t integer(const char *key, std::int64_t low, std::int64_t high) const {
        const Value &value = at(key);
        if (value.kind != Value::Integer || value.integer < low || value.integer > high)
            throw bad(name(key), "an integer from " + std::to_string(low) + " to " + std::to_string(high));
        return value.integer;
    }

    void number(const char *key) const {
        const Value &value = at(key);
        if ((value.kind != Value::Integer && value.kind != Value::Number) || !(value.number <= 1e30 && value.number >= -1e30))
            throw bad(name(key), "a finite number");
    }

    const std::vector<Value> &items(const char *key) const {
        const Value &value = at(key);
        if (value.kind != Value::List || value.list.size() > MOST_FILES)
            throw bad(name(key), "a list of at most " + std::to_string(MOST_FILES));
        return value.list;
    }

private:
    std::string where;
    const std::map<std::string, Value> &table;
};

std::vector<Tensor> read_tensors(const Reader &parent, const char *key) {
    std::vector<Tensor> made;
    for (const Value &value : parent.items(key)) {
        const Reader r(value, parent.name(key), {"name", "dtype", "shape"});
        Tensor tensor{r.text("name", is_tensor_name), r.choice("dtype", {"uint8", "float32", "float16"}), {}};
        for (const Value &size : r.items("shape")) {
            const bool fixed = size.kind == Value::Integer && size.integer > 0 && size.integer < 1 << 20;
            if (!fixed && !(size.kind == Value::Text && size.text == "n")) throw bad(r.name("shape"), "positive sizes or \"n\"");
            tensor.shape.push_back(fixed ? size.integer : VARIES);
        }
        made.push_back(std::move(tensor));
    }
    return made;
}

void read_file_keys(const Reader &r, GraphFile &made, std::set<std::string> &listed) {
    made.file = r.text("file", is_file_name);
    if (made.file.size() > 200 || made.file == "picme.json")
        throw bad(r.name("file") + " is '" + made.file.substr(0, 60) + "'", "another name of at most 200 characters");
    made.sha256 = r.text("sha256", is_hash);
    made.bytes = r.integer("bytes", 1, LARGEST_FILE);
    if (!listed.insert(made.file).second) throw bad(made.file + " is listed twice", "every file once");
}

GraphFile read_graph_keys(const Reader &r, std::set<std::string> &listed) {
    GraphFile made;
    made.graph = r.choice("graph", GRAPHS);
    made.precision = r.choice("precision", {"float32", "float16", "int8"});
    read_file_keys(r, made, listed);
    made.inputs = read_tensors(r, "inputs");
    made.outputs = read_tensors(r, "outputs");
    return made;
}

void check_engine(const Value &value, std::set<std::string> &listed) {
    const Reader r(
        value, "manifest.engines",
        {"graph", "precision", "file", "sha256", "bytes", "inputs", "outputs", "builder", "version", "target", "source", "profile"});
    read_graph_keys(r, listed);
    r.choice("builder", {"tensorrt", "tensorrt_rtx"});
    r.text("version", is_version);
    r.text("target", is_target);
    r.text("source", is_hash);
    const auto &profile = r.items("profile");
    std::int64_t before = 1;
    for (const Value &size : profile) {
        if (size.kind != Value::Integer || size.integer < before)
            before = -1;
        else if (before > 0)
            before = size.integer;
    }
    if (profile.size() != 3 || before < 0) throw bad(r.name("profile"), "three rising positive integers");
}

// The seal is the hash of the manifest with the seal's own digits as zeros.
void check_seal(std::string_view data, const std::string &seal) {
    constexpr std::string_view HEAD = "\"seal\": \"";
    std::string zeroed(data);
    int found = 0;
    for (std::size_t at = data.find(HEAD); at != data.npos; at = data.find(HEAD, at + 1)) {
        const std::size_t digits = at + HEAD.size();
        if (!is_hash(data.substr(digits, 64)) || data.substr(digits + 64, 1) != "\"") continue;
        zeroed.replace(digits, 64, 64, '0');
        ++found;
    }
    if (found != 1) throw bad("no seal or several", "one entry \"seal\": \"<64 hexadecimal digits>\"");
    if (sha256(zeroed.data(), zeroed.size()) != seal) throw bad("the seal does not match", "an unchanged manifest");
}

} // namespace

const GraphFile &Manifest::graph(std::string_view wanted, std::string_view precision) const {
    const std::string_view own = wanted == "mixture" ? "float32" : precision;
    return *std::find_if(graphs.begin(), graphs.end(), [&](const GraphFile &g) { return g.graph == wanted && g.precision == own; });
}

bool Manifest::has(std::string_view precision) const {
    const auto listed = [&](const char *name) {
        return std::any_of(graphs.begin(), graphs.end(), [&](const GraphFile &g) { return g.graph == name && g.precision == precision; });
    };
    return listed("encoder") && listed("decoder");
}

std::string Manifest::model_id() const {
    const std::string all = graph("encoder").sha256 + graph("mixture").sha256 + graph("decoder").sha256;
    return sha256(all.data(), all.size());
}

Manifest parse_manifest(std::string_view data) {
    if (static_cast<std::int64_t>(data.size()) > LARGEST_MANIFEST)
        throw bad(std::to_string(data.size()) + " bytes", "at most " + std::to_string(LARGEST_MANIFEST));
    Value table;
    try {
        table = json::parse(data);
    } catch (const std::invalid_argument &error) {
        throw bad(std::string("not JSON (") + error.what() + ")", "plain JSON without repeated keys");
    }
    const auto format = table.object.find("format");
    if (table.kind == Value::Object &&
        (format == table.object.end() || format->second.kind != Value::Integer || format->second.integer != 1))
        throw bad("another format", "format 1; update picme-sdk or export again");
    const Reader r(table, "manifest",
                   {"format", "name", "licence", "image_size", "primitives", "latent", "max_batch", "graphs", "engines", "files", "made_by",
                    "verified", "card", "seal"});
    Manifest made;
    made.name = r.text("name", is_model_name);
    r.text("licence");
    made.image_size = static_cast<int>(r.integer("image_size", 8, 4096));
    made.primitives = static_cast<int>(r.integer("primitives", 1, 1024));
    made.latent = static_cast<int>(r.integer("latent", 1, 65536));
    made.max_batch = static_cast<int>(r.integer("max_batch", 1, 1024));
    std::set<std::string> listed;
    std::set<std::pair<std::string, std::string>> graphs;
    for (const Value &value : r.items("graphs")) {
        made.graphs.push_back(read_graph_keys(
            Reader(value, "manifest.graphs", {"graph", "precision", "file", "sha256", "bytes", "inputs", "outputs"}), listed));
        if (!graphs.emplace(made.graphs.back().graph, made.graphs.back().precision).second)
            throw bad("a graph twice", "each once a precision");
    }
    for (const auto &graph : GRAPHS)
        if (!graphs.count({std::string(graph), "float32"}))
            throw bad("no " + std::string(graph) + " in float32", "all three graphs in float32");
    for (const Value &value : r.items("engines")) check_engine(value, listed);
    for (const Value &value : r.items("files")) {
        GraphFile plain;
        read_file_keys(Reader(value, "manifest.files", {"file", "sha256", "bytes"}), plain, listed);
    }
    r.text("made_by");
    for (const Value &value : r.items("verified")) {
        const Reader check(value, "manifest.verified", {"graph", "compared", "measure", "input", "value", "limit"});
        check.choice("graph", GRAPHS);
        for (const char *key : {"compared", "measure", "input"}) check.text(key);
        for (const char *key : {"value", "limit"}) check.number(key);
    }
    const Reader card(r.at("card"), "manifest.card", {"training_data", "training", "metrics", "limits"});
    for (const char *key : {"training_data", "training", "metrics", "limits"}) card.text(key);
    check_seal(data, r.text("seal", is_hash));
    return made;
}

} // namespace picme
