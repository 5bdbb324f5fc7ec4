// A strict JSON reader, small enough to be trusted with untrusted files: UTF-8 only, no duplicate keys, no NaN, bounded depth.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace picme::json {

struct Value {
    enum Kind { Null, Boolean, Integer, Number, Text, List, Object } kind = Null;
    bool boolean = false;
    std::int64_t integer = 0; // saturated where the text is out of range
    double number = 0;        // also set for integers
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> object;
};

// Parses a text; std::invalid_argument says what is wrong with it.
Value parse(std::string_view text);

} // namespace picme::json
