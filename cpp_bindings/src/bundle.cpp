// Opens bundle folders so that nothing outside them can be reached: each path component is opened with openat, without following links.
#include "bundle.hpp"

#include "contract.hpp"
#include "failure.hpp"
#include "hash.hpp"
#include "onnx_check.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace picme {
namespace {

Failure no_bundle(const std::string &path, const std::string &why) {
    return bad_bundle(path + ": " + why, "a bundle: a folder or .picme file with a picme.json", "check the path");
}

bool is_link(int folder, const char *name) {
    struct stat status{};
    return fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

// Non-blocking, because a pipe in place of a file would hang here.
Descriptor open_regular(int folder, const std::string &part, const std::string &name, int flags) {
    Descriptor file(openat(folder, part.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags));
    if (file.get() < 0) {
        const int error = errno;
        if (flags && is_link(folder, part.c_str()))
            throw bad_bundle(name + " is a symbolic link", "plain files", "copy the bundle with its files");
        throw bad_bundle(name + ": " + std::strerror(error), "a readable file");
    }
    struct stat status{};
    if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) throw bad_bundle(name + " is no regular file", "plain files");
    return file;
}

std::string read_folder_file(const std::string &path, const std::string &name, std::int64_t size) {
    Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) throw no_bundle(path, std::strerror(errno));
    std::size_t start = 0;
    for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', start)) {
        const std::string part = name.substr(start, slash - start);
        Descriptor next(openat(folder.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (next.get() < 0) {
            const int error = errno;
            if (is_link(folder.get(), part.c_str()))
                throw bad_bundle(name + " is a symbolic link", "plain files", "copy the bundle with its files");
            throw bad_bundle(name + ": " + std::strerror(error), "a readable file");
        }
        folder = std::move(next);
        start = slash + 1;
    }
    const Descriptor file = open_regular(folder.get(), name.substr(start), name, O_NOFOLLOW);
    struct stat status{};
    if (fstat(file.get(), &status) != 0) throw bad_bundle(name + ": " + std::strerror(errno), "a readable file");
    check_size(name, status.st_size, size);
    return read_at(file.get(), 0, status.st_size, name);
}

std::string read_file(const std::string &path, bool zipped, const std::string &name, std::int64_t size) {
    if (!zipped) return read_folder_file(path, name, size);
    const Descriptor file = open_regular(AT_FDCWD, path, path, 0);
    return read_zip_entry(file.get(), path, name, size);
}

} // namespace

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
}

Descriptor::~Descriptor() {
    if (number >= 0) close(number);
}

void check_size(const std::string &name, std::int64_t actual, std::int64_t expected) {
    if (expected < 0 ? actual > MAX_MANIFEST_BYTES : actual != expected)
        throw bad_bundle(name + " has " + std::to_string(actual) + " bytes",
                         expected < 0 ? "at most " + std::to_string(MAX_MANIFEST_BYTES) : std::to_string(expected));
}

std::string read_at(int file, std::int64_t offset, std::int64_t size, const std::string &name) {
    std::string data(static_cast<std::size_t>(size), '\0');
    for (std::size_t have = 0; have < data.size();) {
        const ssize_t got = pread(file, data.data() + have, data.size() - have, static_cast<off_t>(offset) + static_cast<off_t>(have));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw bad_bundle(name + " ends early", std::to_string(size) + " bytes");
        have += static_cast<std::size_t>(got);
    }
    return data;
}

Bundle::Bundle(std::string given) : path(std::move(given)) {
    struct stat status{};
    if (stat(path.c_str(), &status) != 0) throw no_bundle(path, std::strerror(errno));
    zipped = !S_ISDIR(status.st_mode);
    if (!zipped) {
        const std::string inside = path + "/" + std::string(MANIFEST);
        if (lstat(inside.c_str(), &status) != 0) throw no_bundle(inside, std::strerror(errno));
    }
    manifest_ = parse_manifest(read_file(path, zipped, std::string(MANIFEST), -1));
}

std::string Bundle::read(const GraphFile &graph) const {
    std::string data = read_file(path, zipped, graph.file, graph.bytes);
    if (sha256(data.data(), data.size()) != graph.sha256) throw bad_bundle(graph.file + " was changed", "SHA-256 " + graph.sha256);
    check_self_contained(data, graph.file);
    return data;
}

} // namespace picme
