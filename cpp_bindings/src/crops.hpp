// Masks and what follows from them: where the holes are, which square around each the model sees, and how a fill is put back.
// The Python counterpart is picme_sdk/pixels/crops.py; both pass tests/vectors/holes.json.
#pragma once

#include "photo.hpp"

#include <cstdint>
#include <vector>

namespace picme {

// A mask without its empty margins.
class Mask {
public:
    // One byte per pixel, of the photo's size: 255 = hole, 0 = keep, between = soft edge; or 1 and 0. A Failure if it is empty or inverted.
    Mask(const std::uint8_t *mask, std::size_t stride, int width, int height);

    const Box &box() const { return box_; }
    const std::uint8_t *row(int y) const; // of the box; y counts in the photo
    // The mask's values in a region of the photo.
    std::vector<std::uint8_t> window(const Box &region) const;

private:
    Box box_;
    std::vector<std::uint8_t> values; // 0 = kept, 255 = hole
};

// Hides the seam along a hole's edge. The decoder also paints what is visible around the hole; where that differs from the photo, pixels
// just inside the edge take over the difference of their visible neighbour, fading out inwards.
class Seam {
public:
    Seam(const std::vector<std::uint8_t> &unknown, const std::vector<std::uint8_t> &image, int side);

    void heal(std::uint8_t *square) const; // [s, s, 3], in place

private:
    struct Pixel {
        std::uint32_t at, anchor; // offsets of red: of a pixel inside, and of the visible one nearest to it
        std::uint8_t truth[3];    // the visible one in the photo
        std::uint8_t share;       // of its error that the pixel takes over, in 64ths
    };
    std::vector<Pixel> pixels;
};

// One square that the model fills.
struct Hole {
    Box square;                       // of the photo; may reach beyond it
    Box box;                          // of the photo: the pixels that may change
    int size;                         // side of the model's square
    std::vector<std::uint8_t> image;  // [size, size, 3], what the encoder sees
    std::vector<std::uint8_t> hidden; // [size, size], 255 = hole or outside the photo
    std::vector<std::uint8_t> alpha;  // of `box`, 0 = keep
    Seam seam;

    // Puts a healed square [size, size, 3] into a result.
    void fill(const Photo &photo, const PixelView &target, const std::uint8_t *square, bool opaque) const;
};

// Holes of a photo, largest first, each with its square scaled to the model's `size`. context 0: the model's own resolution.
std::vector<Hole> find_holes(const Photo &photo, const Mask &mask, int size, int context);

} // namespace picme
