// The only exception type inside the library. picme.cpp turns it into a status and a text; no exception crosses the C boundary.
#pragma once

#include "picme.h"

#include <stdexcept>
#include <string>

namespace picme {

class Failure : public std::runtime_error {
public:
    Failure(picme_status status, const std::string &given, const std::string &expected, const std::string &cure)
        : std::runtime_error(given + " | expected " + expected + " | " + cure), status(status) {}

    const picme_status status;
};

inline Failure bad_bundle(const std::string &given, const std::string &expected,
                          const std::string &cure = "copy or export the bundle again") {
    return {PICME_BAD_BUNDLE, given, expected, cure};
}

inline Failure bad_argument(const std::string &given, const std::string &expected, const std::string &cure) {
    return {PICME_BAD_ARGUMENT, given, expected, cure};
}

} // namespace picme
