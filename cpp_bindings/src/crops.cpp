// From a mask to holes: connected components on a coarse grid, grouping, the square around each group, and its picture at the model's size.
#include "crops.hpp"

#include "contract.hpp"
#include "failure.hpp"
#include "resize.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace picme {
namespace {

constexpr int FAINT = 8;                // compressed masks are noisy: up to this a value counts as kept, from 255 - this on as hole
constexpr double MAX_HOLE_SHARE = 0.95; // a hole larger than this share of the photo means an inverted mask
constexpr int CELLS = 64;               // holes are separated on a grid of at most this many cells per side ...
constexpr std::size_t MAX_ISLANDS = 64; // ... and if there are more holes than this ...
constexpr int COARSER = 4;              // ... on a grid that is coarser by this factor
constexpr double GROWTH = 1.25;         // two holes share a square if it need not grow by more than this factor

int half_down(int value) { return value >= 0 ? value / 2 : (value - 1) / 2; }
std::size_t places(int count) { return static_cast<std::size_t>(count); }

Box united(const Box &a, const Box &b) {
    return {std::min(a.left, b.left), std::min(a.top, b.top), std::max(a.right, b.right), std::max(a.bottom, b.bottom)};
}

// The index of the first value above a limit and the index after the last one; equal if there is none.
std::pair<int, int> extent(const std::uint8_t *line, int width, int limit) {
    int first = 0, last = width;
    while (first < width && line[first] <= limit) ++first;
    while (last > first && line[last - 1] <= limit) --last;
    return {first, last};
}

// The smallest box around the nonzero values of a region of the mask's box.
Box bounds(const Mask &mask, const Box &region) {
    Box bounds{region.right, region.bottom, region.left, region.top};
    for (int y = region.top; y < region.bottom; ++y) {
        const auto [first, last] = extent(mask.row(y) + (region.left - mask.box().left), region.width(), 0);
        if (first < last) bounds = united(bounds, {region.left + first, y, region.left + last, y + 1});
    }
    return bounds;
}

struct Grid {
    int columns, rows;
    std::vector<char> used;
    char &at(int x, int y) { return used[places(y) * places(columns) + places(x)]; }
};

// A grid of cells of step x step pixels; a cell is set if any of its pixels is. `any(y, x0, x1)` tells whether part of a line is set.
template <typename Any>
Grid cells_of(int width, int height, int step, Any any) {
    Grid grid{(width + step - 1) / step, (height + step - 1) / step, {}};
    grid.used.resize(places(grid.columns) * places(grid.rows));
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < grid.columns; ++x) {
            char &cell = grid.at(x, y / step);
            if (!cell) cell = any(y, x * step, std::min((x + 1) * step, width));
        }
    return grid;
}

// Boxes, in cells, of the connected components, diagonals included.
std::vector<Box> islands(Grid grid) {
    std::vector<Box> components;
    for (int y = 0; y < grid.rows; ++y)
        for (int x = 0; x < grid.columns; ++x) {
            if (!std::exchange(grid.at(x, y), char{0})) continue;
            Box group{x, y, x + 1, y + 1};
            std::vector<std::pair<int, int>> edge{{x, y}};
            while (!edge.empty()) {
                const auto [cx, cy] = edge.back();
                edge.pop_back();
                group = united(group, {cx, cy, cx + 1, cy + 1});
                for (int ny = std::max(cy - 1, 0); ny <= std::min(cy + 1, grid.rows - 1); ++ny)
                    for (int nx = std::max(cx - 1, 0); nx <= std::min(cx + 1, grid.columns - 1); ++nx)
                        if (std::exchange(grid.at(nx, ny), char{0})) edge.emplace_back(nx, ny);
            }
            components.push_back(group);
        }
    return components;
}

// Boxes of the separate holes. They are separated on a grid, and on a coarser one if there are many, so that thousands of islands cost no
// more than a few.
std::vector<Box> components(const Mask &mask, int longest) {
    int step = std::max(1, (longest + CELLS - 1) / CELLS);
    const Box &all = mask.box();
    const auto is_used = [](auto value) { return value != 0; };
    Grid grid = cells_of(all.width(), all.height(), step, [&](int y, int x0, int x1) {
        const std::uint8_t *line = mask.row(all.top + y);
        return std::any_of(line + x0, line + x1, is_used);
    });
    std::vector<Box> boxes = islands(grid);
    if (boxes.size() > MAX_ISLANDS) {
        step *= COARSER;
        boxes = islands(cells_of(grid.columns, grid.rows, COARSER, [&](int y, int x0, int x1) {
            return std::any_of(&grid.at(x0, y), &grid.at(x0, y) + (x1 - x0), is_used);
        }));
    }
    for (Box &box : boxes)
        box = bounds(mask, {all.left + box.left * step, all.top + box.top * step, std::min(all.left + box.right * step, all.right),
                            std::min(all.top + box.bottom * step, all.bottom)});
    return boxes;
}

// The square that the model sees around a box: twice the hole, at least its own resolution, inside the photo if it fits.
Box square_around(const Box &box, const Photo &photo, int size, int context) {
    const int longest = std::max(box.width(), box.height()), fits = std::min(photo.width(), photo.height());
    int side = std::max(2 * longest, context ? context : size);
    if (side > fits)
        side = std::max(fits, std::min(side, longest + longest / 2)); // a smaller square is better than one that reaches beyond the photo
    const auto start = [side](int low, int high, int length) {
        if (side > length) return half_down(length - side);
        return std::min(std::max(half_down(low + high - side), 0), length - side);
    };
    const int left = start(box.left, box.right, photo.width()), top = start(box.top, box.bottom, photo.height());
    return {left, top, left + side, top + side};
}

// Merges holes that one square shows as well as two would, and the nearest ones as long as there are too many.
std::vector<Box> grouped(std::vector<Box> boxes, const Photo &photo, int size, int context) {
    const auto side = [&](const Box &box) { return square_around(box, photo, size, context).width(); };
    std::sort(boxes.begin(), boxes.end());
    while (boxes.size() > 1) {
        auto best = std::make_tuple(1e300, std::size_t{0}, std::size_t{0});
        for (std::size_t i = 0; i < boxes.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                best = std::min(best,
                                std::make_tuple(double(side(united(boxes[i], boxes[j]))) / std::max(side(boxes[i]), side(boxes[j])), i, j));
        const auto [growth, i, j] = best;
        if (growth > GROWTH && boxes.size() <= MAX_HOLES) break;
        boxes[j] = united(boxes[i], boxes[j]);
        boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(i));
        std::sort(boxes.begin(), boxes.end());
    }
    return boxes;
}

Hole make_hole(const Photo &photo, const Mask &mask, const Box &box, const Box &square, int size) {
    const Box inside{std::max(square.left, 0), std::max(square.top, 0), std::min(square.right, photo.width()),
                     std::min(square.bottom, photo.height())};
    if (square.width() == size && inside == square) { // nothing to scale
        std::vector<std::uint8_t> image(places(size) * places(size) * 3), hidden = mask.window(square);
        for (int y = 0; y < size; ++y)
            photo.read_rgb(square.top + y, square.left, square.right, image.data() + places(y) * places(size) * 3);
        for (std::uint8_t &value : hidden) value = value ? 255 : 0;
        Seam seam(hidden, image, size);
        return {square, box, size, std::move(image), std::move(hidden), mask.window(box), std::move(seam)};
    }
    // The same filter for both: a pixel of the model's square belongs to the hole if any pixel that contributes to it does.
    const auto side = static_cast<float>(square.width());
    const Taps taps(square.width(), 0, side, size, BILINEAR);
    const Window window{inside.left - square.left, inside.top - square.top, inside.right - square.left, inside.bottom - square.top};
    std::vector<std::uint8_t> image = resample_rgb(
        taps, taps, window, [&](int y, std::uint8_t *line) { photo.read_rgb(square.top + y, inside.left, inside.right, line); });
    std::vector<std::uint8_t> line;
    std::vector<std::uint8_t> hidden = resample_touched(taps, taps, window, [&](int y) {
        line = mask.window({inside.left, square.top + y, inside.right, square.top + y + 1});
        return line.data();
    });
    Seam seam(hidden, image, size);
    return {square, box, size, std::move(image), std::move(hidden), mask.window(box), std::move(seam)};
}

} // namespace

Mask::Mask(const std::uint8_t *mask, std::size_t stride, int width, int height) {
    std::vector<std::uint8_t> tops(places(height)); // the largest value of each row: most rows of most masks are empty
    for (int y = 0; y < height; ++y) {
        std::uint8_t top = 0;
        for (int x = 0; x < width; ++x) top = std::max(top, mask[places(y) * stride + places(x)]);
        tops[places(y)] = top;
    }
    const bool binary = *std::max_element(tops.begin(), tops.end()) == 1; // a mask of 0 and 1
    const int limit = binary ? 0 : FAINT;
    box_ = {width, height, 0, 0};
    for (int y = 0; y < height; ++y) {
        if (tops[places(y)] <= limit) continue;
        const auto [first, last] = extent(mask + places(y) * stride, width, limit);
        box_ = united(box_, {first, y, last, y + 1});
    }
    if (box_.right <= box_.left)
        throw Failure(PICME_BAD_MASK, "an empty mask", "some pixels of 255: they are the hole", "draw the hole, or invert the mask");
    values.resize(places(box_.width()) * places(box_.height()));
    std::size_t used = 0;
    auto out = values.begin();
    for (int y = box_.top; y < box_.bottom; ++y)
        for (int x = box_.left; x < box_.right; ++x, ++out) {
            const std::uint8_t value = mask[places(y) * stride + places(x)];
            *out = value <= limit ? std::uint8_t{0} : binary || value >= 255 - FAINT ? std::uint8_t{255} : value;
            used += *out != 0;
        }
    const double share = static_cast<double>(used) / (static_cast<double>(width) * height);
    if (share > MAX_HOLE_SHARE)
        throw Failure(PICME_BAD_MASK, "a mask that is hole on " + std::to_string(static_cast<int>(share * 100 + 0.5)) + "% of the photo",
                      "255 = hole, 0 = keep", "invert the mask: 255 - mask");
}

const std::uint8_t *Mask::row(int y) const { return values.data() + places(y - box_.top) * places(box_.width()); }

std::vector<std::uint8_t> Mask::window(const Box &region) const {
    std::vector<std::uint8_t> values(places(region.width()) * places(region.height()));
    const Box common{std::max(region.left, box_.left), std::max(region.top, box_.top), std::min(region.right, box_.right),
                     std::min(region.bottom, box_.bottom)};
    for (int y = common.top; y < common.bottom && common.left < common.right; ++y)
        std::copy_n(row(y) + (common.left - box_.left), common.width(),
                    values.begin() + (y - region.top) * std::ptrdiff_t{region.width()} + (common.left - region.left));
    return values;
}

std::vector<Hole> find_holes(const Photo &photo, const Mask &mask, int size, int context) {
    std::vector<Hole> holes;
    for (const Box &box : grouped(components(mask, std::max(photo.width(), photo.height())), photo, size, context))
        holes.push_back(make_hole(photo, mask, box, square_around(box, photo, size, context), size));
    const auto used = [](const Hole &hole) {
        return hole.alpha.size() - places(static_cast<int>(std::count(hole.alpha.begin(), hole.alpha.end(), 0)));
    };
    std::stable_sort(holes.begin(), holes.end(), [&](const Hole &a, const Hole &b) { return used(a) > used(b); });
    return holes;
}

} // namespace picme
