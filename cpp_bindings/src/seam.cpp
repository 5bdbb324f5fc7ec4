// Puts fills back: adapts a decoded square to the photo along the hole's edge, scales it to the photo and blends it in.
#include "crops.hpp"
#include "resize.hpp"

#include <algorithm>
#include <utility>

namespace picme {
namespace {

constexpr int SEAM = 4; // width of the band in which a fill is adapted to its neighbours, in the model's pixels
constexpr std::uint8_t SHARES[SEAM] = {51, 38, 26, 13}; // round(64 * (1 - step / (SEAM + 1)))
constexpr int SHARE_BITS = 6;

std::size_t places(int count) { return static_cast<std::size_t>(count); }

} // namespace

// Grows from the visible pixels along the edge, a ring at a time: right, left, down, up, first come first served. Python grows in the same
// order, so that both choose the same neighbours.
Seam::Seam(const std::vector<std::uint8_t> &unknown, const std::vector<std::uint8_t> &image, int side) {
    const auto at = [side](int x, int y) { return places(y) * places(side) + places(x); };
    const auto within = [side](int x, int y) { return x >= 0 && x < side && y >= 0 && y < side; };
    constexpr std::pair<int, int> STEPS[] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    std::vector<char> open(unknown.begin(), unknown.end()); // hole pixels that were not reached yet
    struct Reached {
        int x, y;
        std::size_t owner;
    };
    std::vector<Reached> front, next;
    std::vector<char> used(places(side) + 2); // rows that contain hole pixels, shifted by one
    for (int y = 0; y < side; ++y)
        used[places(y) + 1] = std::any_of(&open[at(0, y)], &open[at(0, y)] + side, [](char c) { return c != 0; });
    for (int y = 0; y < side; ++y)
        for (int x = 0; x < side && (used[places(y)] || used[places(y) + 1] || used[places(y) + 2]); ++x) {
            const std::size_t here = at(x, y);
            const bool beside = (x > 0 && open[here - 1]) || (x + 1 < side && open[here + 1]) || (y > 0 && open[here - places(side)]) ||
                                (y + 1 < side && open[here + places(side)]);
            if (beside && !open[here]) front.push_back({x, y, here});
        }
    for (const std::uint8_t share : SHARES) {
        for (const auto &[dx, dy] : STEPS)
            for (const Reached &from : front) {
                const int x = from.x + dx, y = from.y + dy;
                if (!within(x, y) || !open[at(x, y)]) continue;
                open[at(x, y)] = 0;
                next.push_back({x, y, from.owner});
                const std::uint8_t *truth = image.data() + 3 * from.owner;
                pixels.push_back({static_cast<std::uint32_t>(3 * at(x, y)),
                                  static_cast<std::uint32_t>(3 * from.owner),
                                  {truth[0], truth[1], truth[2]},
                                  share});
            }
        front.swap(next);
        next.clear();
    }
}

void Seam::heal(std::uint8_t *square) const {
    for (const Pixel &pixel : pixels)
        for (std::size_t c = 0; c < 3; ++c) {
            // A shift rounds half up on both signs, as Python's does.
            const int moved = ((pixel.truth[c] - square[pixel.anchor + c]) * pixel.share + (1 << (SHARE_BITS - 1))) >> SHARE_BITS;
            square[pixel.at + c] = static_cast<std::uint8_t>(std::clamp(moved + square[pixel.at + c], 0, 255));
        }
}

void Hole::fill(const Photo &photo, const PixelView &target, const std::uint8_t *decoded, bool opaque) const {
    const int side = square.width(), x = box.left - square.left, y = box.top - square.top;
    const auto line = static_cast<std::size_t>(size) * 3;
    if (side == size) {
        photo.blend(target, box, decoded + places(y) * line + places(x) * 3, line, alpha.data(), opaque);
        return;
    }
    const double scale = double(size) / side;
    const auto edge = [scale](int value) { return static_cast<float>(value * scale); };
    const Taps columns(size, edge(x), edge(x + box.width()), box.width(), BICUBIC),
        rows(size, edge(y), edge(y + box.height()), box.height(), BICUBIC);
    const auto rgb = resample_rgb(columns, rows, {0, 0, size, size},
                                  [&](int row, std::uint8_t *out) { std::copy_n(decoded + places(row) * line, line, out); });
    photo.blend(target, box, rgb.data(), places(box.width()) * 3, alpha.data(), opaque);
}

} // namespace picme
