// Separable resampling that gives the same bytes as Pillow: horizontal pass, rounding to 8 bits, vertical pass, in fixed point.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace picme {

struct Filter {
    double support;
    double (*weight)(double);
};

extern const Filter BILINEAR; // antialiased: widened when shrinking
extern const Filter BICUBIC;  // a = -0.5

// The inputs of each output sample: `length` weights, starting at `first`.
struct Taps {
    struct Span {
        int first = 0, length = 0;
        std::size_t offset = 0; // of the weights
    };
    std::vector<Span> spans;
    std::vector<double> weights;

    // `out` samples of [low, high), which is part of a line of `in` samples. The limits are floats because Pillow's are.
    Taps(int in, float low, float high, int out, const Filter &filter);

    int first() const { return spans.front().first; }
    int last() const { return spans.back().first + spans.back().length; } // the index after the last input
};

// Fills a line of interleaved RGB pixels: columns [left, right) of one row.
using RowReader = std::function<void(int row, std::uint8_t *line)>;

// The part of a picture that exists, [left, right) x [top, bottom); everything outside counts as zero.
struct Window {
    int left, top, right, bottom;
};

// RGB samples of a picture: `columns` and `rows` say where the outputs lie, `read` gives row y's pixels of the window.
std::vector<std::uint8_t> resample_rgb(const Taps &columns, const Taps &rows, const Window &window, const RowReader &read);

// Which outputs depend on a pixel that is not kept: a nonzero value of the window, or anything outside it.
std::vector<std::uint8_t> resample_touched(const Taps &columns, const Taps &rows, const Window &window,
                                           const std::function<const std::uint8_t *(int row)> &read);

} // namespace picme
