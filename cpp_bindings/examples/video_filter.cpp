// Fills the same hole in every frame of a video: raw RGB24 frames from stdin to stdout, so that it can run between two ffmpeg processes.
//
//     ffmpeg -i in.mp4 -f rawvideo -pix_fmt rgb24 - | video_filter BUNDLE WIDTH HEIGHT MASK.pgm [PRIMITIVE [SEED]] |
//         ffmpeg -f rawvideo -pix_fmt rgb24 -s WIDTHxHEIGHT -r 25 -i - out.mp4
//
// Primitive and noise are pinned: every frame asks for the same idea with the same random numbers, so the fill follows the scene
// instead of flickering between ideas. Without PRIMITIVE the first frame's heaviest is taken.
#include <picme.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>

namespace {

std::vector<std::uint8_t> read_mask(const char *path, int width, int height) {
    std::ifstream file(path, std::ios::binary);
    std::string kind;
    int w = 0, h = 0, most = 0;
    file >> kind >> w >> h >> most;
    file.get();
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
    if (kind != "P5" || w != width || h != height || most != 255 ||
        !file.read(reinterpret_cast<char *>(mask.data()), static_cast<std::streamsize>(mask.size())))
        throw std::runtime_error("the mask is no binary PGM of the frame's size");
    return mask;
}

int heaviest(const picme::Scene &scene) {
    const auto weights = scene.weights();
    return static_cast<int>(std::max_element(weights.begin(), weights.end()) - weights.begin());
}

// Any number of whole frames; an incomplete one at the end is an error.
int filter(const char *bundle, int width, int height, const char *mask_path, int primitive, std::uint64_t seed) {
    const auto mask = read_mask(mask_path, width, height);
    const picme::Completer completer(bundle);
    std::vector<std::uint8_t> frame(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
    int frames = 0;
    for (std::size_t got; (got = std::fread(frame.data(), 1, frame.size(), stdin)) != 0; ++frames) {
        if (got != frame.size()) throw std::runtime_error("the last frame is not whole: are WIDTH and HEIGHT right?");
        const picme::Scene scene = completer.encode({frame.data(), width, height}, {mask.data()});
        if (primitive < 0) primitive = heaviest(scene);
        scene.sample_into({frame.data(), frame.size()}, seed, {PICME_CATEGORICAL, primitive, 1.0f});
        if (std::fwrite(frame.data(), 1, frame.size(), stdout) != frame.size()) return frames; // the reader has closed the pipe
    }
    return frames;
}

} // namespace

int main(int argc, char **argv) {
    const int width = argc > 2 ? std::atoi(argv[2]) : 0, height = argc > 3 ? std::atoi(argv[3]) : 0;
    if (argc < 5 || argc > 7 || width < 1 || height < 1 || static_cast<long long>(width) * height > 100'000'000) {
        std::fputs("usage: video_filter BUNDLE WIDTH HEIGHT MASK.pgm [PRIMITIVE [SEED]] < rgb24 > rgb24\n", stderr);
        return 2;
    }
    try {
        const int frames =
            filter(argv[1], width, height, argv[4], argc > 5 ? std::atoi(argv[5]) : -1, argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 0);
        std::fprintf(stderr, "video_filter: %d frames\n", frames);
        return std::fflush(stdout) == 0 ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "video_filter: %s\n", error.what());
        return 1;
    }
}
