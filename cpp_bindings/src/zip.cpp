// Reads one entry of a zip whose entries are stored: no compression, no encryption, no zip64, every name once.
#include "bundle.hpp"
#include "failure.hpp"
#include "hash.hpp"

#include <algorithm>
#include <sys/stat.h>

namespace picme {
namespace {

constexpr std::int64_t END_SIZE = 22, MAX_COMMENT = 65535, CENTRAL_SIZE = 46, LOCAL_SIZE = 30;
constexpr std::int64_t MAX_DIRECTORY = 16 << 20;

struct Entry {
    std::int64_t method = 0, flags = 0, crc = 0, stored = 0, size = 0, offset = 0;
};

std::int64_t number(const std::string &data, std::size_t at, int bytes) {
    std::int64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(data.at(at + static_cast<std::size_t>(i)));
    return value;
}

Failure no_zip(const std::string &path) {
    return bad_bundle(path + ": not a plain zip", "a bundle: a folder or .picme file with a picme.json", "check the path");
}

// The central directory's bytes, found from the end of the file.
std::string directory(int file, const std::string &path, std::int64_t length) {
    const std::int64_t tail_size = std::min(length, END_SIZE + MAX_COMMENT);
    const std::string tail = read_at(file, length - tail_size, tail_size, path);
    const std::size_t end = tail.rfind("PK\5\6");
    if (end == tail.npos || static_cast<std::int64_t>(tail.size() - end) < END_SIZE) throw no_zip(path);
    const std::int64_t size = number(tail, end + 12, 4), offset = number(tail, end + 16, 4);
    const std::int64_t before_end = length - tail_size + static_cast<std::int64_t>(end);
    if (size > MAX_DIRECTORY || offset + size != before_end) throw no_zip(path);
    return read_at(file, offset, size, path);
}

Entry find(const std::string &central, const std::string &path, const std::string &name) {
    Entry entry;
    int count = 0;
    for (std::size_t at = 0; at < central.size();) {
        if (central.size() - at < CENTRAL_SIZE || central.compare(at, 4, "PK\1\2") != 0) throw no_zip(path);
        const auto name_size = static_cast<std::size_t>(number(central, at + 28, 2));
        const std::size_t next =
            at + CENTRAL_SIZE + name_size + static_cast<std::size_t>(number(central, at + 30, 2) + number(central, at + 32, 2));
        if (next > central.size()) throw no_zip(path);
        if (name_size == name.size() && central.compare(at + CENTRAL_SIZE, name_size, name) == 0) {
            entry = {number(central, at + 10, 2), number(central, at + 8, 2),  number(central, at + 16, 4),
                     number(central, at + 20, 4), number(central, at + 24, 4), number(central, at + 42, 4)};
            ++count;
        }
        at = next;
    }
    if (count != 1) throw bad_bundle(path + " has " + std::to_string(count) + " files " + name, "one");
    return entry;
}

} // namespace

std::string read_zip_entry(int file, const std::string &path, const std::string &name, std::int64_t size) {
    struct stat status{};
    if (fstat(file, &status) != 0 || status.st_size < END_SIZE) throw no_zip(path);
    const Entry entry = find(directory(file, path, status.st_size), path, name);
    if (entry.method != 0 || entry.stored != entry.size || (entry.flags & 1))
        throw bad_bundle(name + " is compressed or encrypted", "files that are only stored", "export the bundle again");
    check_size(name, entry.size, size);
    if (entry.offset + LOCAL_SIZE > status.st_size) throw no_zip(path);
    const std::string local = read_at(file, entry.offset, LOCAL_SIZE, path);
    const std::int64_t name_size = number(local, 26, 2), start = entry.offset + LOCAL_SIZE + name_size + number(local, 28, 2);
    if (local.compare(0, 4, "PK\3\4") != 0 || start + entry.size > status.st_size) throw no_zip(path);
    if (read_at(file, entry.offset + LOCAL_SIZE, name_size, path) != name) throw no_zip(path);
    std::string data = read_at(file, start, entry.size, name);
    if (crc32(data.data(), data.size()) != entry.crc) throw bad_bundle(name + " was changed", "its CRC-32");
    return data;
}

} // namespace picme
