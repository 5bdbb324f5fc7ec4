// Weights are computed in double, as in Pillow, then rounded to 22 fractional bits for pictures.
#include "resize.hpp"

#include <algorithm>
#include <cmath>

namespace picme {
namespace {

constexpr int BITS = 22;         // 32, less 8 for the value and 2 for weights beyond 0..1
constexpr double TOUCHED = 1e-6; // the smallest share of a pixel that counts

double triangle(double x) {
    x = std::fabs(x);
    return x < 1 ? 1 - x : 0;
}

double cubic(double x) {
    constexpr double A = -0.5;
    x = std::fabs(x);
    if (x < 1) return ((A + 2) * x - (A + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * A : 0;
}

std::vector<std::int32_t> fixed(const std::vector<double> &weights) {
    std::vector<std::int32_t> fixed;
    fixed.reserve(weights.size());
    for (const double weight : weights) fixed.push_back(static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << BITS)));
    return fixed;
}

std::uint8_t clip(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> BITS, 0, 255)); }

std::size_t places(int count) { return static_cast<std::size_t>(count); }

} // namespace

const Filter BILINEAR{1.0, triangle};
const Filter BICUBIC{2.0, cubic};

Taps::Taps(int in, float low, float high, int out, const Filter &filter) {
    const double scale = double{high - low} / out, widened = std::max(scale, 1.0), support = filter.support * widened;
    for (int i = 0; i < out; ++i) {
        const double centre = double{low} + (i + 0.5) * scale;
        const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int end = std::min(static_cast<int>(centre + support + 0.5), in);
        Span span{first, end - first, weights.size()};
        double sum = 0;
        for (int x = first; x < end; ++x) {
            weights.push_back(filter.weight((x - centre + 0.5) * (1.0 / widened)));
            sum += weights.back();
        }
        for (std::size_t w = span.offset; sum != 0 && w < weights.size(); ++w) weights[w] /= sum;
        for (; span.length > 1 && weights.back() == 0; --span.length) weights.pop_back(); // one weight is left where nothing is scaled
        spans.push_back(span);
    }
}

std::vector<std::uint8_t> resample_rgb(const Taps &columns, const Taps &rows, const Window &window, const RowReader &read) {
    const auto across = fixed(columns.weights), down = fixed(rows.weights);
    const std::size_t width = columns.spans.size(), line_size = width * 3;
    const int top = std::max(rows.first(), window.top), bottom = std::min(rows.last(), window.bottom);
    std::vector<std::uint8_t> line(places(window.right - window.left) * 3), between(places(std::max(bottom - top, 0)) * line_size);
    for (int y = top; y < bottom; ++y) {
        read(y, line.data());
        std::uint8_t *out = between.data() + places(y - top) * line_size;
        for (const Taps::Span &span : columns.spans) {
            const int from = std::max(span.first, window.left), to = std::min(span.first + span.length, window.right);
            std::int32_t sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
            for (int x = from; x < to; ++x) {
                const std::int32_t weight = across[span.offset + places(x - span.first)];
                const std::uint8_t *pixel = line.data() + places(x - window.left) * 3;
                for (int c = 0; c < 3; ++c) sum[c] += pixel[c] * weight;
            }
            for (const std::int32_t value : sum) *out++ = clip(value);
        }
    }
    std::vector<std::uint8_t> pixels(rows.spans.size() * line_size);
    std::vector<std::int32_t> sums(line_size);
    for (std::size_t row = 0; row < rows.spans.size(); ++row) {
        const Taps::Span &span = rows.spans[row];
        std::fill(sums.begin(), sums.end(), 1 << (BITS - 1));
        for (int y = std::max(span.first, top); y < std::min(span.first + span.length, bottom); ++y) {
            const std::int32_t weight = down[span.offset + places(y - span.first)];
            const std::uint8_t *in = between.data() + places(y - top) * line_size;
            for (std::size_t i = 0; i < line_size; ++i) sums[i] += in[i] * weight;
        }
        std::transform(sums.begin(), sums.end(), pixels.begin() + static_cast<std::ptrdiff_t>(row * line_size), clip);
    }
    return pixels;
}

std::vector<std::uint8_t> resample_touched(const Taps &columns, const Taps &rows, const Window &window,
                                           const std::function<const std::uint8_t *(int row)> &read) {
    const std::size_t width = columns.spans.size(), line_size = places(window.right - window.left);
    std::vector<double> line(places(std::max(columns.last(), window.right)), 1.0); // a row outside the window: everything is unknown
    const auto horizontal = [&](float *out) {
        for (const Taps::Span &span : columns.spans) {
            double sum = 0;
            for (int i = 0; i < span.length; ++i) sum += columns.weights[span.offset + places(i)] * line[places(span.first + i)];
            *out++ = static_cast<float>(sum);
        }
    };
    const int top = std::max(rows.first(), window.top), bottom = std::min(rows.last(), window.bottom);
    std::vector<float> outside(width), between(places(std::max(bottom - top, 0)) * width);
    horizontal(outside.data());
    std::vector<std::uint8_t> before;
    for (int y = top; y < bottom; ++y) {
        const std::uint8_t *values = read(y);
        float *out = between.data() + places(y - top) * width;
        if (y > top && std::equal(before.begin(), before.end(), values)) { // neighbouring rows of a mask are often equal
            std::copy_n(out - width, width, out);
            continue;
        }
        before.assign(values, values + line_size);
        std::transform(before.begin(), before.end(), line.begin() + window.left, [](std::uint8_t v) { return v ? 1.0 : 0.0; });
        horizontal(out);
    }
    std::vector<std::uint8_t> touched(rows.spans.size() * width);
    std::vector<double> sums(width);
    for (std::size_t row = 0; row < rows.spans.size(); ++row) {
        const Taps::Span &span = rows.spans[row];
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int y = span.first; y < span.first + span.length; ++y) {
            const double weight = rows.weights[span.offset + places(y - span.first)];
            const float *in = y < top || y >= bottom ? outside.data() : between.data() + places(y - top) * width;
            for (std::size_t i = 0; i < width; ++i) sums[i] += double{in[i]} * weight;
        }
        for (std::size_t i = 0; i < width; ++i)
            touched[row * width + i] = static_cast<float>(sums[i]) > static_cast<float>(TOUCHED) ? 255 : 0;
    }
    return touched;
}

} // namespace picme
