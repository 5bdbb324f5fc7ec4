// SHA-256, which names the files of a bundle, and CRC-32, which guards tokens and zip entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace picme {

std::string sha256(const void *data, std::size_t size); // 64 lower-case hexadecimal digits
std::uint32_t crc32(const void *data, std::size_t size);

} // namespace picme
