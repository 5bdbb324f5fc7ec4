// The bundle: a folder, or one .picme file (a zip with stored entries), with a manifest that lists every file with its size and hash.
#pragma once

#include "manifest.hpp"

#include <string>

namespace picme {

// An opened bundle: its manifest was checked; graphs are checked when they are read.
class Bundle {
public:
    explicit Bundle(std::string path);

    const Manifest &manifest() const { return manifest_; }
    // Returns exactly the bytes that were hashed. A Failure unless size and hash match the manifest and the graph is self-contained.
    std::string read(const GraphFile &graph) const;

private:
    std::string path;
    bool zipped = false;
    Manifest manifest_;
};

// A zip entry's bytes; size < 0 means the manifest, whose size is not known but bounded. Used by Bundle.
std::string read_zip_entry(int file, const std::string &path, const std::string &name, std::int64_t size);
// Refuses a size other than the expected one.
void check_size(const std::string &name, std::int64_t actual, std::int64_t expected);

// A file descriptor that closes itself.
class Descriptor {
public:
    explicit Descriptor(int number) : number(number) {}
    Descriptor(Descriptor &&other) noexcept : number(other.number) { other.number = -1; }
    Descriptor &operator=(Descriptor &&other) noexcept;
    ~Descriptor();

    int get() const { return number; }

private:
    int number;
};

// Exactly `size` bytes from an offset of a file.
std::string read_at(int file, std::int64_t offset, std::int64_t size, const std::string &name);

} // namespace picme
