// What the targets share. A target returns for a result or a Failure; any other exception, a sanitizer's report or `require` ends it.
#pragma once

#include "failure.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fuzz {

inline void require(bool good) {
    if (!good) std::abort();
}

template <typename Work>
void attempt(Work work) {
    try {
        work();
    } catch (const picme::Failure &) {
    }
}

inline std::string_view text_of(const std::uint8_t *data, std::size_t size) { return {reinterpret_cast<const char *>(data), size}; }

// Takes numbers from the front of an input; zeros when it is used up.
class Numbers {
public:
    Numbers(const std::uint8_t *data, std::size_t size) : data(data), size(size) {}

    template <typename Number>
    Number take() {
        Number value{};
        const std::size_t used = sizeof value < size ? sizeof value : size;
        std::memcpy(&value, data, used);
        data += used, size -= used;
        return value;
    }

    std::string_view rest() const { return text_of(data, size); }

private:
    const std::uint8_t *data;
    std::size_t size;
};

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
