/* PICME: one photo, one hole, several different fills. The C contract; picme.hpp wraps it for C++17.
 *
 *     picme_completer *completer = NULL;
 *     picme_scene *scene = NULL;
 *     picme_load_params load = picme_load_params_default();
 *     load.bundle = "pets256.picme";
 *     if (picme_load(&load, &completer) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_encode_params photo = picme_encode_params_default();   // the expensive half, once a photo
 *     photo.pixels = rgb, photo.width = 640, photo.height = 480, photo.mask = mask;
 *     if (picme_encode(completer, &photo, &scene) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_result results[6];                                     // into your buffers, in the photo's own format
 *     for (int i = 0; i < 6; ++i) results[i] = picme_result_default(buffers[i], 640 * 480 * 3);
 *     picme_sample_params want = picme_sample_params_default();
 *     want.n = 6, want.seed = 7;
 *     if (picme_sample(scene, &want, results) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_scene_destroy(&scene);
 *     picme_completer_destroy(&completer);
 *
 * Ownership
 *   - picme_load and picme_encode make a handle; its destroy function frees it and sets your pointer to NULL. Destroying NULL is allowed.
 *   - A scene keeps what it needs of its completer and copies its photo: both may go once picme_encode has returned.
 *   - Buffers that you pass stay yours. Inputs are read during the call only.
 *   - picme_last_error() belongs to the library and is valid until the thread's next call.
 *
 * Threads
 *   - Every function may be called from any thread, several at once on the same handle. A scene never changes.
 *   - Do not destroy a handle while another thread is in a call with it.
 *
 * Errors
 *   - A function returns PICME_OK or says what failed; then nothing was made, outputs are undefined, and picme_last_error() reads
 *     "given | expected what | cure". The library never throws, prints or exits.
 *
 * Versions
 *   - Each struct starts with its size, set by its *_default() function. A library knows the structs of older headers of its major
 *     version; it refuses those of newer ones.
 */
#ifndef PICME_H
#define PICME_H

#include <stddef.h>
#include <stdint.h>

#if defined(PICME_BUILDING)
#define PICME_API __attribute__((visibility("default")))
#else
#define PICME_API
#endif

#define PICME_VERSION_MAJOR 0
#define PICME_VERSION_MINOR 1
#define PICME_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef enum picme_status {
    PICME_OK = 0,
    PICME_BAD_ARGUMENT = 1,        /* a value that can't be */
    PICME_BAD_IMAGE = 2,           /* a photo of impossible size or stride */
    PICME_BAD_MASK = 3,            /* an empty, inverted or missing mask */
    PICME_BAD_BUNDLE = 4,          /* damaged, tampered with or of another format; nothing of it was loaded */
    PICME_BAD_TOKEN = 5,           /* damaged, or of another model or number of holes */
    PICME_BACKEND_UNAVAILABLE = 6, /* ONNX Runtime or the wanted provider can't be had */
    PICME_NUMERICAL_ERROR = 7,     /* a graph produced numbers that are not finite */
    PICME_BUFFER_TOO_SMALL = 8,
    PICME_OUT_OF_MEMORY = 9,
    PICME_INTERNAL_ERROR = 10 /* please report it */
} picme_status;

typedef enum picme_format { /* 8 bits a channel, in this order in memory */
                            PICME_RGB8 = 0,
                            PICME_BGR8 = 1,
                            PICME_RGBA8 = 2,
                            PICME_BGRA8 = 3,
                            PICME_GRAY8 = 4
} picme_format;

typedef enum picme_strategy {
    PICME_CATEGORICAL = 0, /* each result draws its primitive by weight */
    PICME_DIVERSE = 1,     /* each primitive once, heaviest first, near-duplicates last; then as categorical */
    PICME_LIKELY = 2       /* the heaviest primitive's mean, then samples by falling log-probability */
} picme_strategy;

enum {
    PICME_TOKEN_SIZE = 2056, /* bytes of a token with its final NUL, at most */
    PICME_MOST_RESULTS = 1000
};

typedef struct picme_completer picme_completer; /* a loaded model */
typedef struct picme_scene picme_scene;         /* an encoded photo */

/* "0.1.0" */
PICME_API const char *picme_version(void);
/* Why the last call of this thread failed; "" if it did not. Never NULL. */
PICME_API const char *picme_last_error(void);

/* ---- Load ---------------------------------------------------------------------------------------------------------------- */

typedef struct picme_load_params {
    size_t size;
    const char *bundle;    /* folder or .picme file */
    const char *runtime;   /* ONNX Runtime library. NULL: environment PICME_ONNXRUNTIME, then where the loader looks */
    const char *provider;  /* "auto", "cpu", "cuda", "tensorrt" or "rtx". A named one is had or the call fails. NULL: "auto" */
    const char *precision; /* "float32", or "int8" or "float16" where the bundle has it: faster, a little different. NULL: "float32" */
    int32_t threads;       /* of the CPU, 1 to 1024; a call starts and ends its own. 0: all cores */
} picme_load_params;

/* Load a model. All its files are checked first. A process uses one ONNX Runtime library: the first that was loaded. */
PICME_API picme_status picme_load(const picme_load_params *params, picme_completer **completer);
PICME_API picme_status picme_completer_destroy(picme_completer **completer);

typedef struct picme_completer_info {
    size_t size;
    char name[65];      /* of the model */
    char model_id[65];  /* in hexadecimal; tokens belong to it */
    char backend[64];   /* such as "onnxruntime 1.31.1" */
    char device[16];    /* what runs the graphs: "cpu", "cuda", "tensorrt" or "rtx" */
    int32_t image_size; /* side of the model's square, pixels */
    int32_t primitives;
    int32_t latent;
    int32_t max_batch; /* most results of one decoder call */
    double load_ms;
} picme_completer_info;

PICME_API picme_status picme_completer_describe(const picme_completer *completer, picme_completer_info *info);

/* ---- Encode -------------------------------------------------------------------------------------------------------------- */

typedef struct picme_encode_params {
    size_t size;
    const uint8_t *pixels; /* rows from top to bottom */
    int32_t width;
    int32_t height;
    int32_t format;  /* picme_format */
    int32_t context; /* smallest side, in photo pixels, of the square that the model sees around a hole. 0: its own resolution */
    size_t stride;   /* bytes from row to row. 0: no gaps */
    const uint8_t
        *mask;          /* one byte a pixel: 255 = hole, 0 = keep, between = soft edge; or 1 and 0. NULL: transparent pixels are the hole */
    size_t mask_stride; /* 0: no gaps */
} picme_encode_params;

/* Encode a photo with its hole. */
PICME_API picme_status picme_encode(const picme_completer *completer, const picme_encode_params *params, picme_scene **scene);
PICME_API picme_status picme_scene_destroy(picme_scene **scene);

typedef struct picme_scene_info {
    size_t size;
    int32_t width;
    int32_t height;
    int32_t format;
    int32_t holes;      /* separate squares that are filled */
    int32_t primitives; /* length of picme_scene_weights */
    int32_t reserved;
    double ambiguity; /* how many answers there are: exp(entropy of the weights), of the largest hole */
    double encode_ms;
} picme_scene_info;

PICME_API picme_status picme_scene_describe(const picme_scene *scene, picme_scene_info *info);
/* The weight of each primitive (of the largest hole), adding up to 1, into weights[0 .. count-1]; count is at least info.primitives. */
PICME_API picme_status picme_scene_weights(const picme_scene *scene, double *weights, size_t count);

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

typedef struct picme_result {
    size_t size;
    uint8_t *pixels; /* in: your buffer. Gets the photo with its hole filled; every other pixel is bit-identical */
    size_t bytes;    /* in: of the buffer, at least (height - 1) * stride + width * channels */
    size_t stride;   /* in: bytes from row to row; gaps are left alone. 0: no gaps */
    int32_t primitive;
    int32_t reserved;
    double weight;                /* of the primitive, 0 to 1 */
    double log_prob;              /* log of weight times density, to rank results of one scene */
    double decode_ms;             /* this result's share of its batch */
    char token[PICME_TOKEN_SIZE]; /* replays the result, in C and Python, on any device */
} picme_result;

typedef struct picme_sample_params {
    size_t size;
    uint64_t seed; /* equal seeds give equal results; result i does not depend on n, except with PICME_LIKELY */
    int32_t n;     /* results, 1 to PICME_MOST_RESULTS */
    int32_t strategy;
    int32_t primitive; /* all results from this one, or -1 */
    float temperature; /* 0 to 100: scales the noise, sharpens (below 1) or flattens (above 1) the weights. 0 is deterministic */
} picme_sample_params;

/* Draw params->n results into results[0 .. n-1]. */
PICME_API picme_status picme_sample(const picme_scene *scene, const picme_sample_params *params, picme_result *results);

typedef struct picme_variation_params {
    size_t size;
    uint64_t seed;
    int32_t n;
    float strength; /* 0 = the same, 1 = any result of its primitive */
} picme_variation_params;

/* Draw results like the one that a token replays: its primitive, with the noise turned by `strength`. */
PICME_API picme_status picme_variations(const picme_scene *scene, const char *token, const picme_variation_params *params,
                                        picme_result *results);
/* The result of a token. It must come from the same model and as many holes. */
PICME_API picme_status picme_replay(const picme_scene *scene, const char *token, picme_result *result);
/* `steps` results, 2 or more, on the way from one token's result to another's, both ends included. */
PICME_API picme_status picme_interpolate(const picme_scene *scene, const char *first, const char *second, int32_t steps,
                                         picme_result *results);

/* ---- Defaults: compiled into the caller, so that `size` is the size the caller knows ------------------------------------------ */

static inline picme_load_params picme_load_params_default(void) {
    picme_load_params params = {sizeof(picme_load_params), NULL, NULL, NULL, NULL, 0};
    return params;
}

static inline picme_encode_params picme_encode_params_default(void) {
    picme_encode_params params = {sizeof(picme_encode_params), NULL, 0, 0, PICME_RGB8, 0, 0, NULL, 0};
    return params;
}

static inline picme_sample_params picme_sample_params_default(void) {
    picme_sample_params params = {sizeof(picme_sample_params), 0, 6, PICME_CATEGORICAL, -1, 1.0f};
    return params;
}

static inline picme_variation_params picme_variation_params_default(void) {
    picme_variation_params params = {sizeof(picme_variation_params), 0, 4, 0.3f};
    return params;
}

static inline picme_completer_info picme_completer_info_default(void) {
    picme_completer_info info = {sizeof(picme_completer_info), "", "", "", "", 0, 0, 0, 0, 0.0};
    return info;
}

static inline picme_scene_info picme_scene_info_default(void) {
    picme_scene_info info = {sizeof(picme_scene_info), 0, 0, 0, 0, 0, 0, 0.0, 0.0};
    return info;
}

static inline picme_result picme_result_default(uint8_t *pixels, size_t bytes) {
    picme_result result = {sizeof(picme_result), pixels, bytes, 0, -1, 0, 0.0, 0.0, 0.0, ""};
    return result;
}

#ifdef __cplusplus
}
#endif

#endif
