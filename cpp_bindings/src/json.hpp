// A strict JSON reader, small enough to trust with a file from anywhere: UTF-8 only, no key twice, no NaN, bounded depth.
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
    std::int64_t integer = 0; // as large as the type allows where the text is larger
    double number = 0;        // of integers too
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> object;
};

// The value of a text; std::invalid_argument says what is wrong with it.
Value parse(std::string_view text);

} // namespace picme::json
