// Bundles: every input is tried as a manifest (as it is, and sealed anew), as an ONNX graph and as a .picme file.
#include "bundle.hpp"
#include "fuzz.hpp"
#include "hash.hpp"
#include "onnx_check.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace {

// As somebody who changes a manifest on purpose would do.
std::string resealed(std::string_view data) {
    constexpr std::string_view HEAD = "\"seal\": \"";
    std::string made(data);
    const std::size_t at = made.find(HEAD);
    if (at == made.npos || made.size() < at + HEAD.size() + 64) return made;
    made.replace(at + HEAD.size(), 64, 64, '0');
    return made.replace(at + HEAD.size(), 64, picme::sha256(made.data(), made.size()));
}

void read(std::string_view data) {
    const picme::Manifest manifest = picme::parse_manifest(data);
    fuzz::require(manifest.model_id.size() == 64);
    for (const picme::GraphFile &graph : manifest.graphs) fuzz::require(graph.file[0] != '/' && graph.file.find("..") == std::string::npos);
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const picme::Descriptor file(memfd_create("fuzz", 0));
    const std::string_view text = fuzz::text_of(data, size);
    fuzz::require(ftruncate(file.get(), 0) == 0 && pwrite(file.get(), data, size, 0) == static_cast<ssize_t>(size));
    fuzz::attempt([&] { read(text); });
    fuzz::attempt([&] { read(resealed(text)); });
    fuzz::attempt([&] { picme::check_self_contained(text, "graph.onnx"); });
    fuzz::attempt([&] { read(picme::read_zip_entry(file.get(), "fuzz.picme", "picme.json", -1)); });
    return 0;
}
