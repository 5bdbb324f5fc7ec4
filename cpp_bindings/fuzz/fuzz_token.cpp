// Tokens: any text, and any settings and recipe behind a right head and checksum. What can be read reads the same after it was written again.
#include "fuzz.hpp"
#include "hash.hpp"
#include "token.hpp"

namespace {

const std::string MODEL_ID(64, '5');

std::string base64url(const std::string &data) {
    constexpr char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string text;
    for (std::size_t bit = 0; bit < data.size() * 8; bit += 6) {
        const unsigned first = static_cast<unsigned char>(data[bit / 8]),
                       second = bit / 8 + 1 < data.size() ? static_cast<unsigned char>(data[bit / 8 + 1]) : 0u;
        text += LETTERS[(first << 8 | second) >> (10 - bit % 8) & 63];
    }
    return text;
}

// A token whose version, model and checksum are right, so that only what follows can be wrong.
std::string sealed(char version, std::string_view rest) {
    std::string body = version + std::string(8, '\x55') + std::string(rest);
    const std::uint32_t check = picme::crc32(body.data(), body.size());
    for (int i = 0; i < 4; ++i) body += static_cast<char>(check >> 8 * i);
    return base64url(body);
}

void read(std::string_view token) {
    const picme::Token first = picme::decode_token(token, MODEL_ID);
    const std::string again = encode_token(*first.recipe, MODEL_ID, first.settings.value_or(picme::Settings{}));
    const picme::Token second = picme::decode_token(again, MODEL_ID);
    fuzz::require(encode_token(*second.recipe, MODEL_ID, second.settings.value()) == again);
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::attempt([&] { read(fuzz::text_of(data, size)); });
    for (const char version : {'\1', '\2'}) fuzz::attempt([&] { read(sealed(version, fuzz::text_of(data, size))); });
    return 0;
}
