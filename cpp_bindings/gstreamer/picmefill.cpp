// The GStreamer element picmefill: fills the same hole in every frame, with pinned primitive and noise.
//
//     gst-launch-1.0 videotestsrc num-buffers=25 ! video/x-raw,format=RGB,width=320,height=240 !
//         picmefill bundle=pets256.picme mask=mask.pgm seed=7 ! videoconvert ! autovideosink
//
// video/x-raw RGB in and out, changed in place. Properties: bundle, mask (binary PGM of the frame's size, 255 = hole), primitive (-1 = the
// first frame's heaviest), seed.
#include <gst/base/gstbasetransform.h>
#include <gst/gst.h>
#include <gst/video/gstvideofilter.h>
#include <gst/video/video.h>

#include <picme.hpp>

#include <algorithm>
#include <fstream>
#include <optional>

namespace {

enum Property { BUNDLE = 1, MASK, PRIMITIVE, SEED };

// State between start and stop.
struct State {
    picme::Completer completer;
    std::vector<std::uint8_t> mask;
    int width = 0, height = 0;
    int primitive; // -1: chosen by the first frame
};

std::vector<std::uint8_t> read_mask(const char *path, int &width, int &height) {
    std::ifstream file(path, std::ios::binary);
    std::string kind;
    int most = 0;
    file >> kind >> width >> height >> most;
    file.get();
    if (kind != "P5" || width < 1 || height < 1 || width > 20000 || height > 20000 || most != 255)
        throw std::runtime_error("the mask is no binary PGM");
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
    if (!file.read(reinterpret_cast<char *>(mask.data()), static_cast<std::streamsize>(mask.size())))
        throw std::runtime_error("the mask ends early");
    return mask;
}

} // namespace

struct PicmeFill {
    GstVideoFilter parent;
    gchar *bundle, *mask;
    gint primitive;
    guint64 seed;
    State *state;
};

struct PicmeFillClass {
    GstVideoFilterClass parent;
};

// The macro expands to GLib's code, which does not compile with our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
G_DEFINE_TYPE(PicmeFill, picme_fill, GST_TYPE_VIDEO_FILTER)
#pragma GCC diagnostic pop

static PicmeFill *own(void *object) { return static_cast<PicmeFill *>(object); }

static void picme_fill_init(PicmeFill *fill) { fill->primitive = -1; }

static void set_property(GObject *object, guint id, const GValue *value, GParamSpec *spec) {
    PicmeFill *fill = own(object);
    switch (id) {
    case BUNDLE:
        g_free(fill->bundle);
        fill->bundle = g_value_dup_string(value);
        break;
    case MASK:
        g_free(fill->mask);
        fill->mask = g_value_dup_string(value);
        break;
    case PRIMITIVE: fill->primitive = g_value_get_int(value); break;
    case SEED: fill->seed = g_value_get_uint64(value); break;
    default: G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
    }
}

static void get_property(GObject *object, guint id, GValue *value, GParamSpec *spec) {
    const PicmeFill *fill = own(object);
    switch (id) {
    case BUNDLE: g_value_set_string(value, fill->bundle); break;
    case MASK: g_value_set_string(value, fill->mask); break;
    case PRIMITIVE: g_value_set_int(value, fill->primitive); break;
    case SEED: g_value_set_uint64(value, fill->seed); break;
    default: G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
    }
}

static void finalize(GObject *object) {
    g_free(own(object)->bundle);
    g_free(own(object)->mask);
    G_OBJECT_CLASS(picme_fill_parent_class)->finalize(object);
}

static gboolean start(GstBaseTransform *transform) {
    PicmeFill *fill = own(transform);
    try {
        if (!fill->bundle || !fill->mask) throw std::runtime_error("picmefill needs the properties bundle and mask");
        fill->state = new State{picme::Completer(fill->bundle), {}, 0, 0, fill->primitive};
        fill->state->mask = read_mask(fill->mask, fill->state->width, fill->state->height);
        return TRUE;
    } catch (const std::exception &error) {
        delete fill->state;
        fill->state = nullptr;
        GST_ELEMENT_ERROR(fill, RESOURCE, SETTINGS, ("%s", error.what()), (nullptr));
        return FALSE;
    }
}

static gboolean stop(GstBaseTransform *transform) {
    delete own(transform)->state;
    own(transform)->state = nullptr;
    return TRUE;
}

static GstFlowReturn transform_frame(GstVideoFilter *filter, GstVideoFrame *frame) {
    State &state = *own(filter)->state;
    const int width = GST_VIDEO_FRAME_WIDTH(frame), height = GST_VIDEO_FRAME_HEIGHT(frame);
    auto *pixels = static_cast<std::uint8_t *>(GST_VIDEO_FRAME_PLANE_DATA(frame, 0));
    const auto stride = static_cast<std::size_t>(GST_VIDEO_FRAME_PLANE_STRIDE(frame, 0));
    try {
        if (width != state.width || height != state.height) throw std::runtime_error("the mask does not have the frame's size");
        const picme::Scene scene = state.completer.encode({pixels, width, height, PICME_RGB8, stride}, {state.mask.data()});
        if (state.primitive < 0) {
            const auto weights = scene.weights();
            state.primitive = static_cast<int>(std::max_element(weights.begin(), weights.end()) - weights.begin());
        }
        scene.sample_into({pixels, stride * static_cast<std::size_t>(height), stride}, own(filter)->seed,
                          {PICME_CATEGORICAL, state.primitive, 1.0f});
        return GST_FLOW_OK;
    } catch (const std::exception &error) {
        GST_ELEMENT_ERROR(filter, STREAM, FAILED, ("%s", error.what()), (nullptr));
        return GST_FLOW_ERROR;
    }
}

static void picme_fill_class_init(PicmeFillClass *klass) {
    auto *object = reinterpret_cast<GObjectClass *>(klass);
    object->set_property = set_property;
    object->get_property = get_property;
    object->finalize = finalize;
    const auto flags = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
    g_object_class_install_property(object, BUNDLE,
                                    g_param_spec_string("bundle", "Bundle", "Model: folder or .picme file", nullptr, flags));
    g_object_class_install_property(object, MASK,
                                    g_param_spec_string("mask", "Mask", "Binary PGM of the frame's size, 255 = hole", nullptr, flags));
    g_object_class_install_property(
        object, PRIMITIVE,
        g_param_spec_int("primitive", "Primitive", "Idea that all frames take; -1 = the first frame's heaviest", -1, 1023, -1, flags));
    g_object_class_install_property(
        object, SEED, g_param_spec_uint64("seed", "Seed", "Number of the noise that all frames share", 0, G_MAXUINT64, 0, flags));

    auto *element = reinterpret_cast<GstElementClass *>(klass);
    gst_element_class_set_static_metadata(element, "PICME fill", "Filter/Effect/Video", "Fills a hole of a video", "PICME SDK");
    GstCaps *caps = gst_caps_from_string(GST_VIDEO_CAPS_MAKE("RGB"));
    gst_element_class_add_pad_template(element, gst_pad_template_new("sink", GST_PAD_SINK, GST_PAD_ALWAYS, caps));
    gst_element_class_add_pad_template(element, gst_pad_template_new("src", GST_PAD_SRC, GST_PAD_ALWAYS, caps));
    gst_caps_unref(caps);

    auto *transform = reinterpret_cast<GstBaseTransformClass *>(klass);
    transform->start = start;
    transform->stop = stop;
    reinterpret_cast<GstVideoFilterClass *>(klass)->transform_frame_ip = transform_frame;
}

static gboolean plugin_init(GstPlugin *plugin) { return gst_element_register(plugin, "picmefill", GST_RANK_NONE, picme_fill_get_type()); }

GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, picme, "Pluralistic image completion", plugin_init, PICME_VERSION, "Apache 2.0",
                  PACKAGE, "picme-sdk")
