// Photos in and out: reads RGB from any pixel format, and changes only pixels inside a hole. The Python counterpart is picme_sdk/pixels/photo.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace picme {

struct Box {
    int left = 0, top = 0, right = 0, bottom = 0;

    int width() const { return right - left; }
    int height() const { return bottom - top; }
    bool operator==(const Box &other) const;
    bool operator<(const Box &other) const; // by left, top, right, bottom
};

// Pixels that the caller owns.
struct PixelView {
    std::uint8_t *pixels = nullptr;
    std::size_t stride = 0;

    std::uint8_t *row(int y) const { return pixels + static_cast<std::size_t>(y) * stride; }
};

// A photo in its own format, copied without gaps.
class Photo {
public:
    Photo(const std::uint8_t *pixels, std::size_t stride, int width, int height, int format);

    int width() const { return width_; }
    int height() const { return height_; }
    int format() const { return format_; }
    int channels() const { return channels_; }
    std::size_t row_bytes() const { return static_cast<std::size_t>(width_) * static_cast<std::size_t>(channels_); }

    bool has_alpha() const { return channels_ == 4; }
    std::vector<std::uint8_t> alpha() const;
    // RGB of the columns [left, right) of one row.
    void read_rgb(int row, int left, int right, std::uint8_t *rgb) const;
    void copy_to(const PixelView &target) const;
    // Changes the target where alpha > 0 and not a bit elsewhere. `rgb` and `alpha` cover the box; `opaque` also sets the alpha channel.
    void blend(const PixelView &target, const Box &box, const std::uint8_t *rgb, std::size_t rgb_stride, const std::uint8_t *alpha,
               bool opaque) const;

private:
    int width_, height_, format_, channels_;
    std::vector<std::uint8_t> pixels;

    bool swapped() const; // blue first
};

// The number of channels of a picme_format; 0 if there is no such format.
int channels_of(int format);

} // namespace picme
