// Checks an ONNX file before a runtime may load it. The Python counterpart is picme_sdk/bundle/onnx_check.py.
#pragma once

#include <string>
#include <string_view>

namespace picme {

// A Failure unless the ONNX model is self-contained and uses standard operators only.
void check_self_contained(std::string_view model, const std::string &name);

} // namespace picme
