// A minimal test framework: tests are functions, a failed CHECK reports where, and run() runs all of them.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace check {

inline std::vector<std::pair<const char *, std::function<void()>>> &tests() {
    static std::vector<std::pair<const char *, std::function<void()>>> all;
    return all;
}

struct Register {
    Register(const char *name, std::function<void()> body) { tests().emplace_back(name, std::move(body)); }
};

inline void require(bool good, const char *what, const char *file, int line) {
    if (!good) throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

inline int run() {
    int failed = 0;
    for (const auto &[name, body] : tests()) {
        try {
            body();
            std::printf("ok    %s\n", name);
        } catch (const std::exception &error) {
            std::printf("FAIL  %s: %s\n", name, error.what());
            ++failed;
        }
    }
    return failed ? 1 : 0;
}

} // namespace check

#define CHECK(condition) check::require(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
#define TEST(name)                                                                                                                         \
    static void name();                                                                                                                    \
    static const check::Register register_##name(#name, name);                                                                             \
    static void name()
