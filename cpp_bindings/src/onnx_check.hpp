// What must be known of an ONNX file before a runtime may load it. Twin of picme_sdk/bundle/onnx_check.py.
#pragma once

#include <string>
#include <string_view>

namespace picme {

// Failure unless the ONNX model needs nothing but itself and the standard operators.
void check_self_contained(std::string_view model, const std::string &name);

} // namespace picme
