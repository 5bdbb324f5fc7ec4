/* PICME: one photo, one hole, several different fills. This is the C interface; picme.hpp wraps it for C++17.
 *
 *     picme_completer *completer = NULL;
 *     picme_scene *scene = NULL;
 *     picme_load_params load;
 *     picme_load_params_init(&load, sizeof load);
 *     load.bundle = "pets256.picme";
 *     if (picme_load(&load, &completer) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_encode_params photo;                                   // the expensive half, once per photo
 *     picme_encode_params_init(&photo, sizeof photo);
 *     photo.pixels = rgb, photo.width = 640, photo.height = 480, photo.mask = mask;
 *     if (picme_encode(completer, &photo, &scene) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_result results[6];                                     // into your buffers, in the photo's own format
 *     for (int i = 0; i < 6; ++i) {
 *         picme_result_init(&results[i], sizeof results[i]);
 *         results[i].pixels = buffers[i], results[i].bytes = 640 * 480 * 3;
 *     }
 *     picme_sample_params sample;
 *     picme_sample_params_init(&sample, sizeof sample);
 *     sample.n = 6, sample.seed = 7;
 *     if (picme_sample(scene, &sample, results) != PICME_OK) return fail(picme_last_error());
 *
 *     picme_scene_destroy(&scene);
 *     picme_completer_destroy(&completer);
 *
 * Ownership
 *   - picme_load and picme_encode create a handle; its destroy function frees it and sets your pointer to NULL. Destroying NULL is allowed.
 *   - A scene keeps what it needs of its completer and copies its photo: you may free both as soon as picme_encode has returned.
 *   - Buffers that you pass stay yours. Inputs are read during the call only.
 *   - picme_last_error() belongs to the library and is valid until the thread's next call.
 *
 * Threads
 *   - Every function may be called from any thread, and from several at once on the same handle. A scene never changes.
 *   - Do not destroy a handle while another thread is in a call with it.
 *
 * Errors
 *   - A function returns PICME_OK or says what failed. After a failure nothing was created, outputs are undefined, and
 *     picme_last_error() reads "what was given | what was expected | how to fix it". The library never throws, prints or exits.
 *
 * Versions
 *   - Each struct starts with its size. Its *_init() function sets the size and all defaults; call it with sizeof. Later versions add
 *     fields at the end only. The library accepts the structs of older headers of its major version (of its minor version while the major
 *     version is 0), fills in the defaults of fields that they lack, and never reads or writes beyond the given size. It refuses structs
 *     of newer headers.
 *   - The elements of an array lie as far apart as the size of its first element says; all elements have the same size.
 *   - docs/use/compatibility.md says what stays, and for how long.
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
    PICME_BAD_ARGUMENT = 1,        /* a value out of range, a NULL pointer or a struct of an unknown size */
    PICME_BAD_IMAGE = 2,           /* a photo with an impossible size or stride */
    PICME_BAD_MASK = 3,            /* an empty, inverted or missing mask */
    PICME_BAD_BUNDLE = 4,          /* damaged, changed or of an unknown format; nothing of it was loaded */
    PICME_BAD_TOKEN = 5,           /* damaged, or made with another model, context or number of holes */
    PICME_BACKEND_UNAVAILABLE = 6, /* ONNX Runtime or the requested provider is not available */
    PICME_NUMERICAL_ERROR = 7,     /* a graph produced numbers that are not finite */
    PICME_BUFFER_TOO_SMALL = 8,
    PICME_OUT_OF_MEMORY = 9,
    PICME_INTERNAL_ERROR = 10 /* please report it */
} picme_status;

typedef enum picme_format { /* 8 bits per channel, in this order in memory */
                            PICME_RGB8 = 0,
                            PICME_BGR8 = 1,
                            PICME_RGBA8 = 2,
                            PICME_BGRA8 = 3,
                            PICME_GRAY8 = 4
} picme_format;

typedef enum picme_strategy {
    PICME_CATEGORICAL = 0, /* each result draws its primitive by weight */
    PICME_DIVERSE = 1,     /* the default: each primitive once, heaviest first, near-duplicates last; then as categorical */
    PICME_LIKELY = 2       /* the heaviest primitive's mean, then samples by falling log-density */
} picme_strategy;

enum {
    PICME_TOKEN_SIZE = 2056, /* the largest token with its final NUL, bytes */
    PICME_MAX_RESULTS = 1000
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
    const char *provider;  /* "auto", "cpu", "cuda", "tensorrt" or "rtx". If a named one is not available the call fails. NULL: "auto" */
    const char *precision; /* "float32", or "int8" or "float16" if the bundle has it: faster, slightly different. NULL: "float32" */
    int32_t threads;       /* CPU threads, 1 to 1024; each call starts and ends its own. 0: one per core */
} picme_load_params;

/* Loads a model after checking all its files. A process uses one ONNX Runtime library: the first that was loaded. */
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
    int32_t max_batch; /* the largest number of results in one decoder call */
    double load_ms;
    char knows[804]; /* what the model is for, in one line for people; "" where the bundle does not say */
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
    /* one byte per pixel: 255 = hole, 0 = keep, between = soft edge; or 1 and 0. NULL: transparent pixels are the hole */
    const uint8_t *mask;
    size_t mask_stride; /* 0: no gaps */
} picme_encode_params;

/* Encodes a photo with its hole. */
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
    double ambiguity; /* how many visibly different answers the largest hole has; without a calibration, exp(entropy of the weights) */
    double encode_ms;
} picme_scene_info;

PICME_API picme_status picme_scene_describe(const picme_scene *scene, picme_scene_info *info);
/* Writes the weight of each primitive (of the largest hole) into weights[0 .. count-1]; they add up to 1. count >= info.primitives. */
PICME_API picme_status picme_scene_weights(const picme_scene *scene, double *weights, size_t count);

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

typedef struct picme_result {
    size_t size;
    uint8_t *pixels; /* in: your buffer. Receives the photo with its hole filled; every other pixel is bit-identical */
    size_t bytes;    /* in: size of the buffer, at least (height - 1) * stride + width * channels */
    size_t stride;   /* in: bytes from row to row; gaps are left alone. 0: no gaps */
    int32_t primitive;
    int32_t reserved;
    double weight;                /* of the primitive, 0 to 1 */
    double log_density;           /* log of weight times density: ranks the results of one scene */
    double decode_ms;             /* this result's share of its batch */
    char token[PICME_TOKEN_SIZE]; /* replays the result, in C and Python, on any device */
} picme_result;

typedef struct picme_sample_params {
    size_t size;
    uint64_t seed; /* equal seeds give equal results; result i does not depend on n, except with PICME_LIKELY */
    int32_t n;     /* results, 1 to PICME_MAX_RESULTS */
    int32_t strategy;
    int32_t primitive; /* all results from this one, or -1 */
    float temperature; /* 0 to 100: scales the noise, sharpens (below 1) or flattens (above 1) the weights. 0 is deterministic */
} picme_sample_params;

/* Draws params->n results into results[0 .. n-1]. */
PICME_API picme_status picme_sample(const picme_scene *scene, const picme_sample_params *params, picme_result *results);

typedef struct picme_variation_params {
    size_t size;
    uint64_t seed;
    int32_t n;
    float strength; /* 0 = the same, 1 = any result of its primitive */
} picme_variation_params;

/* Draws results similar to the one that a token replays: its primitive, with the noise turned by `strength`. */
PICME_API picme_status picme_variations(const picme_scene *scene, const char *token, const picme_variation_params *params,
                                        picme_result *results);
/* Replays the result of a token, which must come from the same model, context and number of holes. */
PICME_API picme_status picme_replay(const picme_scene *scene, const char *token, picme_result *result);
/* Draws `steps` results, 2 or more, on the way from one token's result to another's, both ends included. */
PICME_API picme_status picme_interpolate(const picme_scene *scene, const char *first, const char *second, int32_t steps,
                                         picme_result *results);

/* ---- Defaults ------------------------------------------------------------------------------------------------------------ */

/* Set every field to its default and `size` to the given one, which is sizeof the struct. Call one before you fill in a struct. */
PICME_API picme_status picme_load_params_init(picme_load_params *params, size_t size);
PICME_API picme_status picme_completer_info_init(picme_completer_info *info, size_t size);
PICME_API picme_status picme_encode_params_init(picme_encode_params *params, size_t size);
PICME_API picme_status picme_scene_info_init(picme_scene_info *info, size_t size);
PICME_API picme_status picme_sample_params_init(picme_sample_params *params, size_t size);
PICME_API picme_status picme_variation_params_init(picme_variation_params *params, size_t size);
PICME_API picme_status picme_result_init(picme_result *result, size_t size);

#ifdef __cplusplus
}
#endif

#endif
