// Refusals of bundles, without ONNX Runtime: manifests, names, links, pipes, zips, ONNX files that reach outside.
#include "bundle.hpp"
#include "check.hpp"
#include "failure.hpp"
#include "hash.hpp"
#include "json.hpp"
#include "onnx_check.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace std::string_literals;

static const std::string GRAPH = "\x3a\x00"s; // an ONNX model with one empty graph

// A temporary folder with a good bundle in it.
struct Folder {
    fs::path path;
    std::string manifest;

    explicit Folder(int format = 2) {
        const bool second = format == 2;
        const std::string hash = picme::sha256(GRAPH.data(), GRAPH.size());
        std::string name = (fs::temp_directory_path() / "picme-XXXXXX").string();
        path = mkdtemp(name.data());
        std::string graphs;
        for (const char *graph : {"encoder", "mixture", "decoder"}) {
            write(graph + ".onnx"s, GRAPH);
            graphs += (graphs.empty() ? "" : ", ") + R"({"graph": ")"s + graph + R"(", "precision": "float32", )" +
                      (second ? R"("storage": "float16", )" : "") + R"("file": ")" + graph + R"(.onnx", "sha256": ")" + hash +
                      R"(", "bytes": 2, "inputs": [{"name": "x", "dtype": "uint8", "shape": [1, "n"]}], "outputs": []})";
        }
        manifest =
            R"({"format": )" + std::to_string(format) +
            R"(, "name": "tiny", "licence": "CC0-1.0", "image_size": 32, "primitives": 4, "latent": 2, "max_batch": 4, )" +
            (second ? R"("knows": "drawn faces", "model_id": ")" + std::string(64, 'a') +
                          R"(", "ambiguity": {"scale": 0.5, "power": 2, "weights": [1, 0.25]}, "measured": [{"device": "a card", )"
                          R"("driver": "570.1", "clocks": "", "backend": "tensorrt 10.3", "graph": "encoder", "precision": "float16", )"
                          R"("results": 6, "rounds": 200, "p50_ms": 1.5, "p99_ms": 2}], )"
                    : ""s) +
            R"("graphs": [)" + graphs +
            R"(], "engines": [{"graph": "decoder", "precision": "float16", "file": "decoder.engine", "sha256": ")" + hash +
            R"(", "bytes": 2, "inputs": [], "outputs": [], "builder": "tensorrt", "version": "10.13.3.9.post1", "target": "sm_89", "source": ")" +
            hash + (second ? R"(", "profiles": [[1, 1, 1], [1, 6, 16]])" : R"(", "profile": [1, 6, 16])") +
            R"(}], "files": [], "made_by": "test", "verified": [{"graph": "encoder", "compared": "a", "measure": "b", "input": "c", "value": 1e-7, "limit": 1}], )"
            R"("card": {"training_data": "", "training": "", "metrics": "", "limits": "\u00e9\ud83d\ude00"}, "seal": ")" +
            std::string(64, '0') + "\"}";
        seal(manifest);
    }
    ~Folder() { fs::remove_all(path); }

    void write(const std::string &name, const std::string &data) const { std::ofstream(path / name, std::ios::binary) << data; }

    // Writes a manifest with the seal that belongs to it, as an attacker would.
    void seal(std::string text) const {
        const std::string zeros(64, '0'), own = picme::sha256(text.data(), text.size());
        const std::size_t at = text.find("\"seal\": \"" + zeros);
        if (at != text.npos) text.replace(at + 9, 64, own);
        write("picme.json", text);
    }

    void change(const std::string &old, const std::string &made) const {
        std::string text = manifest;
        const std::size_t at = text.find(old);
        CHECK(at != text.npos);
        seal(text.replace(at, old.size(), made));
    }
};

static std::string refusal(const std::function<void()> &work) {
    try {
        work();
    } catch (const picme::Failure &failure) {
        CHECK(failure.status == PICME_BAD_BUNDLE);
        return failure.what();
    }
    return "";
}

static std::string open_refusal(const fs::path &path) {
    return refusal([&] {
        const picme::Bundle bundle(path.string());
        for (const char *graph : {"encoder", "mixture", "decoder"}) bundle.read(bundle.manifest().graph(graph));
    });
}

static bool mentions(const std::string &text, const char *part) { return text.find(part) != text.npos; }

TEST(hashes_are_right) {
    CHECK(picme::sha256("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(picme::sha256("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const std::string million(1'000'000, 'a');
    CHECK(picme::sha256(million.data(), million.size()) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    CHECK(picme::crc32("123456789", 9) == 0xCBF43926u);
}

TEST(a_good_bundle_opens) {
    const Folder folder;
    CHECK(open_refusal(folder.path).empty());
    CHECK(picme::Bundle(folder.path.string()).manifest().graph("mixture").inputs[0].shape == (std::vector<std::int64_t>{1, picme::VARIES}));
}

TEST(format_2_is_read) {
    const Folder folder;
    const picme::Manifest manifest = picme::Bundle(folder.path.string()).manifest();
    CHECK(manifest.knows == "drawn faces" && manifest.model_id == std::string(64, 'a'));
    CHECK(manifest.ambiguity && manifest.ambiguity->scale == 0.5 && manifest.ambiguity->power == 2);
    CHECK(manifest.ambiguity->weights == (std::vector<double>{1, 0.25}));
    folder.change("{\"scale\": 0.5, \"power\": 2, \"weights\": [1, 0.25]}", "null");
    CHECK(!picme::Bundle(folder.path.string()).manifest().ambiguity);
}

TEST(format_1_is_read) {
    const Folder folder(1);
    CHECK(open_refusal(folder.path).empty());
    const picme::Manifest manifest = picme::Bundle(folder.path.string()).manifest();
    const std::string hash = picme::sha256(GRAPH.data(), GRAPH.size()), all = hash + hash + hash;
    CHECK(manifest.model_id == picme::sha256(all.data(), all.size()) && manifest.knows.empty() && !manifest.ambiguity);
    for (const auto &[old, made] :
         {std::pair{"\"format\": 1", "\"format\": 2"}, {"\"name\": \"tiny\"", "\"name\": \"tiny\", \"knows\": \"\""}}) {
        folder.change(old, made);
        CHECK(mentions(open_refusal(folder.path), "picme.json"));
    }
}

TEST(precision_is_per_graph) {
    const Folder folder;
    folder.change(
        "\"graphs\": [",
        "\"graphs\": [{\"graph\": \"decoder\", \"precision\": \"int8\", \"storage\": \"float32\", \"file\": \"decoder.int8.onnx\", "
        "\"sha256\": \"" +
            std::string(64, 'b') + "\", \"bytes\": 2, \"inputs\": [], \"outputs\": []}, ");
    const picme::Manifest manifest = picme::Bundle(folder.path.string()).manifest();
    CHECK(manifest.has("int8") && manifest.has("float32") && !manifest.has("float16"));
    CHECK(manifest.graph("decoder", "int8").precision == "int8" && manifest.graph("encoder", "int8").precision == "float32");
}

TEST(builder_versions_may_have_suffixes) {
    for (const char *good : {"10.3", "10.13.3.9", "1.2.0.54rc1", "10.0.0b6", "1.2.3.4.5", "1.2+cu12", "1.2.3-dev.4"}) {
        const Folder folder;
        folder.change("10.13.3.9.post1", good);
        CHECK(open_refusal(folder.path).empty());
    }
    for (const char *bad : {"10", "latest", "", "10.", "10.3.", "1.2.3.4.5.6", "10.3/x", "10.3.post1/../x", "1.2 3", "10.3++a", "10.3.A"}) {
        const Folder folder;
        folder.change("10.13.3.9.post1", bad);
        CHECK(mentions(open_refusal(folder.path), "version"));
    }
}

TEST(manifests_of_another_form_are_refused) {
    const std::pair<const char *, const char *> changes[] = {
        {"\"name\": \"tiny\"", "\"name\": \"tiny\", \"new\": 1"},
        {", \"made_by\": \"test\"", ""},
        {"\"format\": 2", "\"format\": 1"},
        {"\"format\": 2", "\"format\": 3"},
        {"\"format\": 2", "\"format\": 0"},
        {"\"format\": 2", "\"format\": true"},
        {"\"knows\": \"drawn faces\"", "\"knows\": \"two\\nlines\""},
        {"\"knows\": \"drawn faces\"", "\"knows\": 7"},
        {"\"model_id\": \"a", "\"model_id\": \"A"},
        {"\"storage\": \"float16\"", "\"storage\": \"int4\""},
        {"\"scale\": 0.5", "\"scale\": 0"},
        {"\"scale\": 0.5, ", ""},
        {"\"power\": 2", "\"power\": -2"},
        {"\"power\": 2", "\"power\": 17"},
        {"[1, 0.25]", "[1]"},
        {"[1, 0.25]", "[1, -0.25]"},
        {"[[1, 1, 1], [1, 6, 16]]", "[]"},
        {"[[1, 1, 1], [1, 6, 16]]", "[[1, 1, 1], [6, 1, 16]]"},
        {"[[1, 1, 1], [1, 6, 16]]", "[1, 6, 16]"},
        {"\"p50_ms\": 1.5", "\"p50_ms\": -1"},
        {"\"rounds\": 200, ", ""},
        {"\"image_size\": 32", "\"image_size\": \"32\""},
        {"\"image_size\": 32", "\"image_size\": 32.0"},
        {"\"image_size\": 32", "\"image_size\": 99999999999999999999"},
        {"\"primitives\": 4", "\"primitives\": true"},
        {"\"latent\": 2", "\"latent\": -1"},
        {"\"latent\": 2", "\"latent\": NaN"},
        {"\"latent\": 2", "\"latent\": 2, \"latent\": 2"},
        {"\"latent\": 2", "\"latent\": 08"},
        {"\"files\": []", "\"files\": {}"},
        {"\"graph\": \"decoder\"", "\"graph\": \"upsampler\""},
        {"\"graph\": \"decoder\"", "\"graph\": \"mixture\""},
        {"\"precision\": \"float32\"", "\"precision\": \"float64\""},
        {"\"bytes\": 2", "\"bytes\": 0"},
        {"\"bytes\": 2", "\"bytes\": 1e1"},
        {"\"shape\": [1, \"n\"]", "\"shape\": [1, \"m\"]"},
        {"\"shape\": [1, \"n\"]", "\"shape\": [0]"},
        {"\"dtype\": \"uint8\"", "\"dtype\": \"object\""},
        {"\"CC0-1.0\"", "\"a\\u0000b\""},
        {"\"CC0-1.0\"", "\"a\\ud800b\""},
        {"\"CC0-1.0\"", "\"a\nb\""},
        {"\"CC0-1.0\"", "\"a\\x\""},
        {"\"value\": 1e-7", "\"value\": 1e31"},
        {"\"value\": 1e-7", "\"value\": Infinity"},
        {"\"training\": \"\"", "\"training\": null"},
        {"\"name\": \"tiny\"", "\"name\": \"-tiny\""},
        {"\"seal\"", "\"Seal\""},
    };
    for (const auto &[old, made] : changes) {
        const Folder folder;
        folder.change(old, made);
        CHECK(mentions(open_refusal(folder.path), "picme.json"));
    }
    const Folder folder;
    folder.change("\"CC0-1.0\"", "\"" + std::string(5000, 'x') + "\"");
    CHECK(mentions(open_refusal(folder.path), "licence"));
}

TEST(names_that_leave_the_bundle_are_refused) {
    for (const char *name : {"../x", "/etc/passwd", "C:\\\\x", "c:/x", "a/../../x", "x#/../../y", "A.onnx", "a//b", "./a", "a/", ".",
                             "a\\u0000b", "picme.json", "", "a.", "-a"}) {
        const Folder folder;
        folder.change("\"file\": \"encoder.onnx\"", "\"file\": \"" + std::string(name) + "\"");
        CHECK(mentions(open_refusal(folder.path), "file"));
    }
    const Folder folder;
    folder.change("\"file\": \"encoder.onnx\"", "\"file\": \"" + std::string(201, 'a') + "\"");
    CHECK(mentions(open_refusal(folder.path), "file"));
}

TEST(text_that_is_no_manifest_is_refused) {
    const Folder folder;
    for (const std::string &text : {""s, "{"s, "[]"s, "null"s, "\xff\xfe"s, std::string(100000, '['), "{\"format\": NaN}"s,
                                    "{\"a\": 1, \"a\": 1}"s, std::string((1 << 20) + 1, ' '), "\xef\xbb\xbf{}"s, "{} x"s,
                                    "{\"a\": \"\xc0\x80\"}"s, "{\"a\": \"\xed\xa0\x80\"}"s, "\"\\u12\""s}) {
        folder.write("picme.json", text);
        CHECK(mentions(open_refusal(folder.path), "picme.json"));
    }
    std::string damaged = folder.manifest; // its seal is zeros
    folder.write("picme.json", damaged);
    CHECK(mentions(open_refusal(folder.path), "seal"));
}

TEST(changed_and_missing_files_are_found) {
    const Folder folder;
    folder.write("encoder.onnx", "\x3a\x01"s);
    CHECK(mentions(open_refusal(folder.path), "was changed"));
    folder.write("encoder.onnx", "\x3a"s);
    CHECK(mentions(open_refusal(folder.path), "1 bytes"));
    fs::remove(folder.path / "encoder.onnx");
    CHECK(mentions(open_refusal(folder.path), "encoder.onnx"));
    CHECK(mentions(open_refusal(folder.path / "nothing"), "expected a bundle"));
    fs::create_directory(folder.path / "empty");
    CHECK(mentions(open_refusal(folder.path / "empty"), "expected a bundle"));
    folder.write("text.picme", "hello");
    CHECK(mentions(open_refusal(folder.path / "text.picme"), "expected a bundle"));
}

TEST(links_pipes_and_folders_in_place_of_files_are_refused) {
    const Folder folder;
    const fs::path model = folder.path / "encoder.onnx";
    fs::rename(model, folder.path / "outside");
    fs::create_symlink(folder.path / "outside", model);
    CHECK(mentions(open_refusal(folder.path), "symbolic link"));
    fs::remove(model);
    CHECK(mkfifo(model.c_str(), 0600) == 0);
    CHECK(mentions(open_refusal(folder.path), "no regular file"));
    fs::remove(model);
    fs::create_directory(model);
    CHECK(mentions(open_refusal(folder.path), "encoder.onnx"));
    fs::rename(folder.path / "picme.json", folder.path / "real.json");
    fs::create_symlink("real.json", folder.path / "picme.json");
    CHECK(mentions(open_refusal(folder.path), "symbolic link"));
    CHECK(mkfifo((folder.path / "pipe.picme").c_str(), 0600) == 0);
    CHECK(mentions(open_refusal(folder.path / "pipe.picme"), "no regular file"));
}

TEST(a_folder_of_the_bundle_may_not_be_a_link) {
    const Folder folder;
    fs::create_directory(folder.path / "elsewhere");
    fs::rename(folder.path / "encoder.onnx", folder.path / "elsewhere" / "encoder.onnx");
    folder.change("\"file\": \"encoder.onnx\"", "\"file\": \"deep/encoder.onnx\"");
    fs::create_symlink("elsewhere", folder.path / "deep");
    CHECK(mentions(open_refusal(folder.path), "symbolic link"));
    fs::remove(folder.path / "deep");
    fs::rename(folder.path / "elsewhere", folder.path / "deep");
    CHECK(open_refusal(folder.path).empty());
}

static std::string number(std::size_t value, int bytes) {
    std::string made;
    for (int i = 0; i < bytes; ++i) made += static_cast<char>(i < 8 ? value >> 8 * i : 0);
    return made;
}

// A zip of stored entries; `method` and `flags` for those that do more.
static std::string zip(const std::vector<std::pair<std::string, std::string>> &files, std::size_t method = 0, std::size_t flags = 0) {
    std::string body, central;
    for (const auto &[name, data] : files) {
        const std::string common = number(flags, 2) + number(method, 2) + number(0, 4) + number(picme::crc32(data.data(), data.size()), 4) +
                                   number(data.size(), 4) + number(data.size(), 4) + number(name.size(), 2) + number(0, 2);
        central += "PK\1\2" + number(20, 2) + number(20, 2) + common + number(0, 10) + number(body.size(), 4) + name;
        body += "PK\3\4" + number(20, 2) + common + name + data;
    }
    const std::string count = number(files.size(), 2);
    return body + central + "PK\5\6" + number(0, 4) + count + count + number(central.size(), 4) + number(body.size(), 4) + number(0, 2);
}

TEST(zips_may_only_store_and_hold_every_name_once) {
    const Folder folder;
    std::string manifest;
    {
        std::ifstream file(folder.path / "picme.json", std::ios::binary);
        manifest.assign(std::istreambuf_iterator<char>(file), {});
    }
    std::vector<std::pair<std::string, std::string>> files{{"picme.json", manifest}};
    for (const char *graph : {"encoder.onnx", "mixture.onnx", "decoder.onnx"}) files.emplace_back(graph, GRAPH);
    const auto verdict = [&](const std::string &data) {
        folder.write("b.picme", data);
        return open_refusal(folder.path / "b.picme");
    };
    const std::string good = zip(files);
    CHECK(verdict(good).empty());
    CHECK(mentions(verdict(zip(files, 8)), "compressed"));
    CHECK(mentions(verdict(zip(files, 0, 1)), "encrypted"));
    files.emplace_back("picme.json", manifest);
    CHECK(mentions(verdict(zip(files)), "2 files"));
    // Damage anywhere is a verdict, never a crash or a wrong byte.
    for (std::size_t at = 0; at < good.size(); at += 3) {
        std::string damaged = good;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
        verdict(damaged);
        verdict(good.substr(0, at));
    }
}

static std::string field(int number, const std::string &data) {
    return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(data.size())) + data;
}

TEST(models_that_reach_outside_are_refused) {
    const auto verdict = [](const std::string &model) { return refusal([&] { picme::check_self_contained(model, "m.onnx"); }); };
    const std::string external = field(13, field(1, "location")),
                      located = "\x70\x01"s; // TensorProto.external_data, data_location = EXTERNAL
    const auto graph = [](const std::string &content) { return field(7, content); };
    const auto attribute = [](const std::string &content) { return field(1, field(5, content)); };
    CHECK(verdict(graph(field(5, field(9, "data")))).empty());
    for (const std::string &tensor : {external, located}) {
        CHECK(mentions(verdict(graph(field(5, tensor))), "another file"));
        CHECK(mentions(verdict(graph(attribute(field(5, tensor)))), "another file"));
        CHECK(mentions(verdict(graph(attribute(field(10, tensor)))), "another file"));
        CHECK(mentions(verdict(graph(attribute(field(6, field(5, tensor))))), "another file"));
        CHECK(mentions(verdict(graph("\x7a"s + std::string(1, static_cast<char>(field(1, tensor).size())) + field(1, tensor))),
                       "another file"));
    }
    CHECK(mentions(verdict(graph(field(1, field(7, "evil.ops")))), "domain"));
    CHECK(verdict(graph(field(1, field(7, "ai.onnx")))).empty());
    CHECK(mentions(verdict(graph("") + field(8, field(1, "evil.ops"))), "domain"));
    CHECK(mentions(verdict(graph("") + "\xca\x01\x01\x00"s), "local functions"));
    CHECK(mentions(verdict(graph("") + graph("")), "2 graphs"));
    std::string nested = field(5, "");
    for (int i = 0; i < 20; ++i) nested = attribute(field(6, nested));
    CHECK(mentions(verdict(graph(nested)), "deep"));
    for (const std::string &bytes : {""s, "hello"s, std::string(50, '\xff'), "\x3a\x05"s, "\x3a"s})
        CHECK(mentions(verdict(bytes), "m.onnx"));
}

TEST(random_damage_to_a_model_is_a_verdict) {
    const std::string good =
        field(7, field(1, field(5, field(5, field(9, std::string(40, 'x'))))) + field(5, field(9, "data"))) + field(8, field(1, ""));
    std::uint32_t random = 1;
    const auto next = [&random](std::size_t below) { return (random = random * 1664525u + 1013904223u) / 256 % below; };
    for (int i = 0; i < 5000; ++i) {
        std::string damaged = good;
        for (int change = 0; change < 3; ++change) damaged[next(damaged.size())] = static_cast<char>(next(256));
        refusal([&] { picme::check_self_contained(damaged, "m.onnx"); });
    }
}

int main() { return check::run(); }
