// Pixels: photos of every format with masks of any content, through holes, seams and fills, with noise in the place of the model.
// Buffers are exactly as large as they must be; not a bit outside the hole may change.
#include "fuzz.hpp"
#include "crops.hpp"

#include <algorithm>
#include <vector>

namespace {

constexpr int SIDE = 16; // of the square that the model would see

std::vector<std::uint8_t> filled(std::string_view values, std::size_t size) {
    std::vector<std::uint8_t> made(size);
    for (std::size_t i = 0; i < size && !values.empty(); ++i) made[i] = static_cast<std::uint8_t>(values[i % values.size()]);
    return made;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Numbers head(data, size);
    const int width = 1 + head.take<std::uint8_t>() % 100, height = 1 + head.take<std::uint8_t>() % 100,
              format = head.take<std::uint8_t>() % 5, context = head.take<std::uint8_t>();
    const std::size_t gap = head.take<std::uint8_t>() % 4, pixel = static_cast<std::size_t>(picme::channels_of(format)),
                      row = static_cast<std::size_t>(width) * pixel, stride = row + gap,
                      mask_stride = static_cast<std::size_t>(width) + gap, rows = static_cast<std::size_t>(height);
    std::vector<std::uint8_t> pixels = filled(head.rest(), (rows - 1) * stride + row);
    const std::vector<std::uint8_t> values = filled(head.rest(), (rows - 1) * mask_stride + static_cast<std::size_t>(width));
    fuzz::attempt([&] {
        const picme::Photo photo(pixels.data(), stride, width, height, format);
        const picme::Mask mask(values.data(), mask_stride, width, height);
        const std::vector<std::uint8_t> kept = mask.window({0, 0, width, height});
        std::vector<std::uint8_t> result(pixels.size());
        const picme::PixelView target{result.data(), stride};
        photo.copy_to(target);
        for (const picme::Hole &hole : picme::find_holes(photo, mask, SIDE, context)) {
            std::vector<std::uint8_t> square = filled(head.rest(), SIDE * SIDE * 3);
            hole.seam.heal(square.data());
            hole.fill(photo, target, square.data(), format % 2 == 0);
        }
        for (std::size_t y = 0; y < rows; ++y)
            for (std::size_t x = 0; x < static_cast<std::size_t>(width); ++x)
                fuzz::require(kept[y * static_cast<std::size_t>(width) + x] != 0 ||
                              std::equal(&result[y * stride + x * pixel], &result[y * stride + x * pixel] + pixel,
                                         pixels.begin() + static_cast<std::ptrdiff_t>(y * stride + x * pixel)));
    });
    return 0;
}
