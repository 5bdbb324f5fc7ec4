// Pixel formats, and the blend of a fill into a photo with the same rounding as Python.
#include "photo.hpp"

#include "picme.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

namespace picme {
namespace {

// Weights of red, green and blue in grey, in 65536ths (ITU-R BT.601), as in Pillow.
std::uint8_t grey_of(const std::uint8_t *rgb) {
    return static_cast<std::uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

std::uint8_t mix(std::uint8_t old, std::uint8_t fill, double weight) {
    return static_cast<std::uint8_t>(std::nearbyint(old * (1 - weight) + fill * weight));
}

} // namespace

bool Box::operator==(const Box &o) const { return std::tie(left, top, right, bottom) == std::tie(o.left, o.top, o.right, o.bottom); }
bool Box::operator<(const Box &o) const { return std::tie(left, top, right, bottom) < std::tie(o.left, o.top, o.right, o.bottom); }

int channels_of(int format) {
    switch (format) {
    case PICME_RGB8:
    case PICME_BGR8: return 3;
    case PICME_RGBA8:
    case PICME_BGRA8: return 4;
    case PICME_GRAY8: return 1;
    default: return 0;
    }
}

Photo::Photo(const std::uint8_t *source, std::size_t stride, int width, int height, int format)
    : width_(width), height_(height), format_(format), channels_(channels_of(format)),
      pixels(row_bytes() * static_cast<std::size_t>(height)) {
    for (int y = 0; y < height; ++y)
        std::memcpy(pixels.data() + static_cast<std::size_t>(y) * row_bytes(), source + static_cast<std::size_t>(y) * stride, row_bytes());
}

bool Photo::swapped() const { return format_ == PICME_BGR8 || format_ == PICME_BGRA8; }

std::vector<std::uint8_t> Photo::alpha() const {
    std::vector<std::uint8_t> values(pixels.size() / 4);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = pixels[4 * i + 3];
    return values;
}

void Photo::read_rgb(int row, int left, int right, std::uint8_t *rgb) const {
    const auto step = static_cast<std::size_t>(channels_);
    const std::uint8_t *pixel = pixels.data() + static_cast<std::size_t>(row) * row_bytes() + static_cast<std::size_t>(left) * step;
    if (format_ == PICME_RGB8) {
        std::memcpy(rgb, pixel, static_cast<std::size_t>(right - left) * 3);
        return;
    }
    const std::size_t red = channels_ == 1 ? 0 : swapped() ? 2 : 0, green = channels_ == 1 ? 0 : 1, blue = channels_ == 1 ? 0 : 2 - red;
    for (int x = left; x < right; ++x, pixel += step, rgb += 3) {
        rgb[0] = pixel[red];
        rgb[1] = pixel[green];
        rgb[2] = pixel[blue];
    }
}

void Photo::copy_to(const PixelView &target) const {
    for (int y = 0; y < height_; ++y) std::memcpy(target.row(y), pixels.data() + static_cast<std::size_t>(y) * row_bytes(), row_bytes());
}

void Photo::blend(const PixelView &target, const Box &box, const std::uint8_t *rgb, std::size_t rgb_stride, const std::uint8_t *alpha,
                  bool opaque) const {
    const auto step = static_cast<std::size_t>(channels_), red = swapped() ? std::size_t{2} : std::size_t{0};
    const std::uint8_t *const end = alpha + static_cast<std::size_t>(box.width()) * static_cast<std::size_t>(box.height());
    for (int y = box.top; alpha < end; ++y, rgb += rgb_stride) {
        std::uint8_t *pixel = target.row(y) + static_cast<std::size_t>(box.left) * step;
        const std::uint8_t *fill = rgb;
        for (const std::uint8_t *line = alpha + box.width(); alpha < line;) {
            if (format_ == PICME_RGB8 && *alpha == 255) { // the usual case: whole runs are copied
                const auto run = static_cast<std::size_t>(std::find_if(alpha, line, [](std::uint8_t v) { return v != 255; }) - alpha);
                std::memcpy(pixel, fill, run * 3);
                pixel += run * 3, fill += run * 3, alpha += run;
                continue;
            }
            if (*alpha != 0) {
                const std::uint8_t colour[3] = {channels_ == 1 ? grey_of(fill) : fill[red], fill[1], fill[2 - red]};
                for (std::size_t c = 0; c < std::min<std::size_t>(step, 3); ++c)
                    pixel[c] = *alpha == 255 ? colour[c] : mix(pixel[c], colour[c], *alpha / 255.0);
                if (opaque && has_alpha()) pixel[3] = 255;
            }
            pixel += step, fill += 3, ++alpha;
        }
    }
}

} // namespace picme
