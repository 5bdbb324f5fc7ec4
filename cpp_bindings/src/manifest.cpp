// Reads picme.json in formats 1 and 2. The key set of each is closed: an unknown, missing or repeated key, a value of another type or a path
// that leaves the bundle is refused. The patterns of docs/deploy/bundle.md are implemented as small matchers.
#include "manifest.hpp"

#include "contract.hpp"
#include "failure.hpp"
#include "hash.hpp"
#include "json.hpp"

#include <algorithm>
#include <set>

namespace picme {
namespace {

using json::Value;

Failure bad(const std::string &given, const std::string &expected) {
    return bad_bundle(std::string(MANIFEST) + ": " + given, expected, "export the bundle again");
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

// Two to five numbers joined by dots, then maybe a suffix such as ".post1", "rc2" or "+cu12":
// [0-9]+(\.[0-9]+){1,4}([.+-]?[a-z][a-z0-9.]{0,30})?
bool is_version(std::string_view text) {
    const auto skip_digits = [&] {
        std::size_t count = 0;
        while (count < text.size() && is_digit(text[count])) ++count;
        text.remove_prefix(count);
        return count > 0;
    };
    if (!skip_digits()) return false;
    int numbers = 1;
    while (numbers < 5 && text.size() > 1 && text[0] == '.' && is_digit(text[1])) {
        text.remove_prefix(1);
        skip_digits();
        ++numbers;
    }
    if (numbers < 2 || text.empty()) return numbers >= 2;
    if (text[0] == '.' || text[0] == '+' || text[0] == '-') text.remove_prefix(1);
    return !text.empty() && text.size() <= 31 && is_lower(text[0]) &&
           std::all_of(text.begin(), text.end(), [](char c) { return is_lower(c) || is_digit(c) || c == '.'; });
}

// One line: no control characters.
bool is_line(std::string_view text) {
    return std::none_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
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
    Reader(const Value &value, std::string where, Names keys) : where(std::move(where)), table(value.object) {
        if (value.kind != Value::Object) throw bad(this->where + " is no object", "an object");
        for (const auto &key : keys)
            if (!table.count(std::string(key))) throw bad(this->where + " lacks " + std::string(key), "every key of the format");
        for (const auto &entry : table)
            if (std::find(keys.begin(), keys.end(), entry.first) == keys.end())
                throw bad(this->where + " has the unknown key " + entry.first.substr(0, 60), "the keys of the format only");
    }

    const Value &at(const char *key) const { return table.at(key); }
    std::string name(const char *key) const { return where + "." + key; }

    std::string text(const char *key, bool (*fits)(std::string_view) = any_text, int max_length = MAX_TEXT_LENGTH) const {
        const Value &value = at(key);
        // Python counts characters: bytes that do not continue one.
        const auto length = std::count_if(value.text.begin(), value.text.end(), [](char c) { return (c & 0xC0) != 0x80; });
        if (value.kind != Value::Text || length > max_length || value.text.find('\0') != std::string::npos)
            throw bad(name(key), "a text of at most " + std::to_string(max_length) + " characters");
        if (!fits(value.text)) throw bad(name(key) + " is '" + value.text.substr(0, 60) + "'", "the form that docs/deploy/bundle.md gives");
        return value.text;
    }

    std::string choice(const char *key, Names choices) const {
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

    double number(const char *key, double low = -MAX_NUMBER, double high = MAX_NUMBER) const {
        return number(at(key), name(key), low, high);
    }

    static double number(const Value &value, const std::string &name, double low, double high) {
        if ((value.kind != Value::Integer && value.kind != Value::Number) || !(value.number >= low && value.number <= high))
            throw bad(name, "a finite number in the range that docs/deploy/bundle.md gives");
        return value.number;
    }

    const std::vector<Value> &items(const char *key, int max_count = MAX_BUNDLE_FILES) const {
        const Value &value = at(key);
        if (value.kind != Value::List || value.list.size() > static_cast<std::size_t>(max_count))
            throw bad(name(key), "a list of at most " + std::to_string(max_count));
        return value.list;
    }

private:
    std::string where;
    const std::map<std::string, Value> &table;
};

std::vector<Tensor> read_tensors(const Reader &parent, const char *key) {
    std::vector<Tensor> tensors;
    for (const Value &value : parent.items(key)) {
        const Reader r(value, parent.name(key), format_2::TENSOR_KEYS);
        Tensor tensor{r.text("name", is_tensor_name), r.choice("dtype", {"uint8", "float32", "float16"}), {}};
        for (const Value &size : r.items("shape")) {
            const bool fixed = size.kind == Value::Integer && size.integer > 0 && size.integer < 1 << 20;
            if (!fixed && !(size.kind == Value::Text && size.text == "n")) throw bad(r.name("shape"), "positive sizes or \"n\"");
            tensor.shape.push_back(fixed ? size.integer : VARIES);
        }
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

void read_file_keys(const Reader &r, GraphFile &entry, std::set<std::string> &listed) {
    entry.file = r.text("file", is_file_name);
    if (entry.file.size() > 200 || entry.file == MANIFEST)
        throw bad(r.name("file") + " is '" + entry.file.substr(0, 60) + "'", "another name of at most 200 characters");
    entry.sha256 = r.text("sha256", is_hash);
    entry.bytes = r.integer("bytes", 1, MAX_FILE_BYTES);
    if (!listed.insert(entry.file).second) throw bad(entry.file + " is listed twice", "every file once");
}

GraphFile read_graph_keys(const Reader &r, std::set<std::string> &listed) {
    GraphFile entry;
    entry.graph = r.choice("graph", GRAPHS);
    entry.precision = r.choice("precision", PRECISIONS);
    read_file_keys(r, entry, listed);
    entry.inputs = read_tensors(r, "inputs");
    entry.outputs = read_tensors(r, "outputs");
    return entry;
}

void check_profile(const Value &profile, const std::string &name) {
    bool good = profile.kind == Value::List && profile.list.size() == 3;
    std::int64_t before = 1;
    for (std::size_t i = 0; good && i < 3; ++i) {
        good = profile.list[i].kind == Value::Integer && profile.list[i].integer >= before;
        before = profile.list[i].integer;
    }
    if (!good) throw bad(name, "three rising positive integers");
}

void check_engine(const Value &value, bool first_format, std::set<std::string> &listed) {
    const Reader r(value, "manifest.engines", first_format ? format_1::ENGINE_KEYS : format_2::ENGINE_KEYS);
    read_graph_keys(r, listed);
    r.choice("builder", BUILDERS);
    r.text("version", is_version);
    r.text("target", is_target);
    r.text("source", is_hash);
    if (first_format) return check_profile(r.at("profile"), r.name("profile"));
    if (r.items("profiles").empty()) throw bad(r.name("profiles"), "at least one");
    for (const Value &profile : r.items("profiles")) check_profile(profile, r.name("profiles"));
}

void check_measurement(const Value &value) {
    const Reader r(value, "manifest.measured", format_2::MEASUREMENT_KEYS);
    for (const char *key : {"device", "driver", "clocks", "backend"}) r.text(key);
    r.choice("graph", GRAPHS);
    r.choice("precision", PRECISIONS);
    r.integer("results", 1, MAX_BATCH);
    r.integer("rounds", 1, std::int64_t{1} << 31);
    for (const char *key : {"p50_ms", "p99_ms"}) r.number(key, 0);
}

std::optional<Ambiguity> read_ambiguity(const Value &value, int latent) {
    if (value.kind == Value::Null) return {};
    const Reader r(value, "manifest.ambiguity", format_2::AMBIGUITY_KEYS);
    Ambiguity calibration;
    if (r.at("weights").kind != Value::Null) {
        for (const Value &weight : r.items("weights", MAX_LATENT))
            calibration.weights.push_back(Reader::number(weight, r.name("weights"), 0, MAX_NUMBER));
        if (calibration.weights.size() != static_cast<std::size_t>(latent)) throw bad(r.name("weights"), "one for each dimension");
    }
    calibration.scale = r.number("scale", 0), calibration.power = r.number("power", 0, MAX_AMBIGUITY_POWER);
    if (calibration.scale == 0 || calibration.power == 0) throw bad("manifest.ambiguity", "a positive scale and power");
    return calibration;
}

// The model id of format 1: the hash of the hashes of the three float32 graphs.
std::string hash_of_graphs(const Manifest &manifest) {
    const std::string all = manifest.graph("encoder").sha256 + manifest.graph("mixture").sha256 + manifest.graph("decoder").sha256;
    return sha256(all.data(), all.size());
}

// The seal is the hash of the manifest with the seal's own digits as zeros.
void check_seal(std::string_view data, const std::string &seal) {
    constexpr std::string_view HEAD = "\"seal\": \"";
    std::string zeroed(data);
    int count = 0;
    for (std::size_t at = data.find(HEAD); at != data.npos; at = data.find(HEAD, at + 1)) {
        const std::size_t digits = at + HEAD.size();
        if (!is_hash(data.substr(digits, 64)) || data.substr(digits + 64, 1) != "\"") continue;
        zeroed.replace(digits, 64, 64, '0');
        ++count;
    }
    if (count != 1) throw bad("no seal or several", "one entry \"seal\": \"<64 hexadecimal digits>\"");
    if (sha256(zeroed.data(), zeroed.size()) != seal) throw bad("the seal does not match", "an unchanged manifest");
}

} // namespace

const GraphFile &Manifest::graph(std::string_view wanted, std::string_view precision) const {
    const auto find = [&](std::string_view own) {
        return std::find_if(graphs.begin(), graphs.end(), [&](const GraphFile &g) { return g.graph == wanted && g.precision == own; });
    };
    const auto exact = find(precision);
    return exact != graphs.end() ? *exact : *find("float32");
}

bool Manifest::has(std::string_view precision) const {
    if (precision == "float32") return true;
    if (std::none_of(graphs.begin(), graphs.end(), [&](const GraphFile &g) { return g.precision == precision; })) return false;
    const std::vector<Tensor> &outputs = graph("encoder", precision).outputs, &inputs = graph("decoder", precision).inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](const Tensor &tensor) {
        return tensor.name == "z" || std::any_of(outputs.begin(), outputs.end(), [&](const Tensor &own) {
                   return own.name == tensor.name && own.dtype == tensor.dtype && own.shape == tensor.shape;
               });
    });
}

Manifest parse_manifest(std::string_view data) {
    if (data.size() > static_cast<std::size_t>(MAX_MANIFEST_BYTES))
        throw bad(std::to_string(data.size()) + " bytes", "at most " + std::to_string(MAX_MANIFEST_BYTES));
    Value table;
    try {
        table = json::parse(data);
    } catch (const std::invalid_argument &error) {
        throw bad(std::string("not JSON (") + error.what() + ")", "plain JSON without repeated keys");
    }
    const auto format = table.object.find("format");
    if (table.kind == Value::Object && (format == table.object.end() || format->second.kind != Value::Integer ||
                                        format->second.integer < 1 || format->second.integer > BUNDLE_FORMAT))
        throw bad("an unknown format", "format 1 or 2; update picme-sdk or export again");
    const bool first_format = table.kind == Value::Object && format->second.integer == 1;
    const Reader r(table, "manifest", first_format ? format_1::MANIFEST_KEYS : format_2::MANIFEST_KEYS);
    Manifest manifest;
    manifest.name = r.text("name", is_model_name);
    r.text("licence");
    manifest.image_size = static_cast<int>(r.integer("image_size", MIN_IMAGE_SIZE, MAX_IMAGE_SIZE));
    manifest.primitives = static_cast<int>(r.integer("primitives", 1, MAX_PRIMITIVES));
    manifest.latent = static_cast<int>(r.integer("latent", 1, MAX_LATENT));
    manifest.max_batch = static_cast<int>(r.integer("max_batch", 1, MAX_BATCH));
    if (!first_format) {
        manifest.knows = r.text("knows", is_line, MAX_KNOWS_LENGTH);
        manifest.model_id = r.text("model_id", is_hash);
        manifest.ambiguity = read_ambiguity(r.at("ambiguity"), manifest.latent);
        for (const Value &value : r.items("measured")) check_measurement(value);
    }
    std::set<std::string> listed;
    std::set<std::pair<std::string, std::string>> graphs;
    for (const Value &value : r.items("graphs")) {
        const Reader graph(value, "manifest.graphs", first_format ? format_1::GRAPH_KEYS : format_2::GRAPH_KEYS);
        manifest.graphs.push_back(read_graph_keys(graph, listed));
        if (!first_format) graph.choice("storage", STORAGES);
        if (!graphs.emplace(manifest.graphs.back().graph, manifest.graphs.back().precision).second)
            throw bad("a graph twice", "each once per precision");
    }
    for (const auto &graph : GRAPHS)
        if (!graphs.count({std::string(graph), "float32"}))
            throw bad("no " + std::string(graph) + " in float32", "all three graphs in float32");
    if (first_format) manifest.model_id = hash_of_graphs(manifest);
    for (const Value &value : r.items("engines")) check_engine(value, first_format, listed);
    for (const Value &value : r.items("files")) {
        GraphFile plain;
        read_file_keys(Reader(value, "manifest.files", format_2::FILE_KEYS), plain, listed);
    }
    r.text("made_by");
    for (const Value &value : r.items("verified")) {
        const Reader check(value, "manifest.verified", format_2::CHECK_KEYS);
        check.choice("graph", GRAPHS);
        for (const char *key : {"compared", "measure", "input"}) check.text(key);
        for (const char *key : {"value", "limit"}) check.number(key);
    }
    const Reader card(r.at("card"), "manifest.card", format_2::CARD_KEYS);
    for (const std::string_view key : format_2::CARD_KEYS) card.text(key.data());
    check_seal(data, r.text("seal", is_hash));
    return manifest;
}

} // namespace picme
