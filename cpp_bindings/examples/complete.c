/* Fills the hole of a photo, in plain C with nothing but libpicme:
 *
 *     complete BUNDLE PHOTO.ppm MASK.pgm OUT [N [SEED]]      -> OUT0.ppm OUT1.ppm ...
 *
 * PHOTO is a binary PPM (P6) or PGM (P5), MASK a binary PGM (P5) of the same size, 255 = hole. Each result's token goes to stdout.
 * Convert other pictures with `ffmpeg -i photo.jpg photo.ppm`.
 */
#include <picme.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *pixels;
    int32_t width, height;
    int channels;
} picture;

/* A number of a PNM header, after spaces and comments; -1 if there is none. */
static long read_number(FILE *file) {
    int c = fgetc(file);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = fgetc(file);
        c = fgetc(file);
    }
    long value = -1;
    for (; c >= '0' && c <= '9' && value < 1000000; c = fgetc(file)) value = (value < 0 ? 0 : value) * 10 + (c - '0');
    return value; /* one byte behind the number is gone: the header's last separator */
}

static int read_pnm(const char *path, picture *made) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    const int p = fgetc(file), kind = fgetc(file);
    const long width = read_number(file), height = read_number(file), most = read_number(file);
    made->pixels = NULL;
    if (p == 'P' && (kind == '5' || kind == '6') && width > 0 && height > 0 && width * height <= 100000000 && most == 255) {
        made->width = (int32_t)width, made->height = (int32_t)height, made->channels = kind == '6' ? 3 : 1;
        const size_t bytes = (size_t)width * (size_t)height * (size_t)made->channels;
        made->pixels = malloc(bytes);
        if (made->pixels && fread(made->pixels, 1, bytes, file) != bytes) {
            free(made->pixels);
            made->pixels = NULL;
        }
    }
    fclose(file);
    return made->pixels != NULL;
}

static int write_pnm(const char *path, const uint8_t *pixels, const picture *like) {
    FILE *file = fopen(path, "wb");
    if (!file) return 0;
    const size_t bytes = (size_t)like->width * (size_t)like->height * (size_t)like->channels;
    int good = fprintf(file, "P%c\n%d %d\n255\n", like->channels == 3 ? '6' : '5', (int)like->width, (int)like->height) > 0;
    good = fwrite(pixels, 1, bytes, file) == bytes && good;
    return fclose(file) == 0 && good;
}

static int fail(const char *why) {
    fprintf(stderr, "complete: %s\n", why);
    return 1;
}

int main(int argc, char **argv) {
    picture photo = {0}, mask = {0};
    picme_completer *completer = NULL;
    picme_scene *scene = NULL;
    if (argc < 5 || argc > 7) {
        fputs("usage: complete BUNDLE PHOTO.ppm MASK.pgm OUT [N [SEED]]\n", stderr);
        return 2;
    }
    if (!read_pnm(argv[2], &photo)) return fail("the photo is no binary PPM or PGM");
    if (!read_pnm(argv[3], &mask) || mask.channels != 1) return fail("the mask is no binary PGM");
    if (mask.width != photo.width || mask.height != photo.height) return fail("photo and mask have different sizes");

    picme_load_params load;
    picme_load_params_init(&load, sizeof load);
    load.bundle = argv[1];
    if (picme_load(&load, &completer) != PICME_OK) return fail(picme_last_error());

    picme_encode_params encode;
    picme_encode_params_init(&encode, sizeof encode);
    encode.pixels = photo.pixels, encode.width = photo.width, encode.height = photo.height;
    encode.format = photo.channels == 3 ? PICME_RGB8 : PICME_GRAY8;
    encode.mask = mask.pixels;
    if (picme_encode(completer, &encode, &scene) != PICME_OK) return fail(picme_last_error());

    picme_sample_params sample;
    picme_sample_params_init(&sample, sizeof sample);
    if (argc > 5) sample.n = atoi(argv[5]);
    if (argc > 6) sample.seed = strtoull(argv[6], NULL, 10);
    const size_t bytes = (size_t)photo.width * (size_t)photo.height * (size_t)photo.channels;
    if (sample.n < 1 || sample.n > PICME_MAX_RESULTS) return fail("N is 1 to 1000");
    picme_result *results = malloc((size_t)sample.n * sizeof *results);
    uint8_t *buffers = malloc((size_t)sample.n * bytes);
    if (!results || !buffers) return fail("not enough memory");
    for (int i = 0; i < sample.n; ++i) {
        picme_result_init(&results[i], sizeof results[i]);
        results[i].pixels = buffers + (size_t)i * bytes, results[i].bytes = bytes;
    }
    if (picme_sample(scene, &sample, results) != PICME_OK) return fail(picme_last_error());

    for (int i = 0; i < sample.n; ++i) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s%d.p%cm", argv[4], i, photo.channels == 3 ? 'p' : 'g') >= (int)sizeof path ||
            !write_pnm(path, results[i].pixels, &photo))
            return fail("a result can't be written");
        printf("%s primitive %d weight %.3f %s\n", path, (int)results[i].primitive, results[i].weight, results[i].token);
    }
    free(results);
    free(buffers);
    free(photo.pixels);
    free(mask.pixels);
    picme_scene_destroy(&scene);
    picme_completer_destroy(&completer);
    return 0;
}
