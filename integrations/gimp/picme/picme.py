#!/usr/bin/env python3
"""GIMP 3 plug-in: fill the selection of the active layer in several different ways, each on a layer of its own.

complete_selection   the work, on an image and a layer
Picme                the menu entry around it
"""

import os
import sys
import tempfile

import bridge
import gi

gi.require_version("Gimp", "3.0")
gi.require_version("Gegl", "0.4")
from gi.repository import Gegl, Gimp, Gio, GLib, GObject  # noqa: E402 (versions come first)

PROCEDURE = "plug-in-picme-complete"
TITLE = "Complete the selection"


def complete_selection(image, layer, results):
    """Add `results` layers above `layer`; the first is shown, and the selection is their layer mask."""
    width, height = layer.get_width(), layer.get_height()
    _, left, top = layer.get_offsets()
    chosen = _pixels(image.get_selection(), left, top, width, height, "Y u8")
    if Gimp.Selection.is_empty(image) or not any(chosen):
        raise bridge.PicmeFailed("Select what should be filled first, on the active layer.")
    with tempfile.TemporaryDirectory(prefix="picme-") as folder:
        photo, mask = os.path.join(folder, "layer.png"), os.path.join(folder, "mask.png")
        bridge.write_png(photo, width, height, 3, bridge.rgb(_pixels(layer, 0, 0, width, height, "R'G'B'A u8")))
        bridge.write_png(mask, width, height, 1, bridge.hard(chosen))
        made = bridge.complete(folder, photo, mask, results)
        image.undo_group_start()
        try:
            for number, result in enumerate(made):  # each goes right above the active one, so the first ends on top
                _insert(image, layer, result, (left, top), number == 0)
        finally:
            image.undo_group_end()
    Gimp.displays_flush()


def _pixels(drawable, left, top, width, height, form):
    area = Gegl.Rectangle.new(left, top, width, height)
    return bytes(drawable.get_buffer().get(area, 1.0, form, Gegl.AbyssPolicy.NONE))


def _insert(image, layer, result, offsets, shown):
    made = Gimp.file_load_layer(Gimp.RunMode.NONINTERACTIVE, image, Gio.File.new_for_path(result.file))
    made.set_name(result.name)
    image.insert_layer(made, layer.get_parent(), image.get_item_position(layer))
    made.set_offsets(*offsets)
    made.add_mask(made.create_mask(Gimp.AddMaskType.SELECTION))
    made.set_visible(shown)


class Picme(Gimp.PlugIn):
    def do_query_procedures(self):
        return [PROCEDURE]

    def do_set_i18n(self, name):
        return False

    def do_create_procedure(self, name):
        procedure = Gimp.ImageProcedure.new(self, name, Gimp.PDBProcType.PLUGIN, self.run, None)
        procedure.set_image_types("RGB*, GRAY*")
        procedure.set_sensitivity_mask(Gimp.ProcedureSensitivityMask.DRAWABLE)
        procedure.set_menu_label(TITLE + " (PICME)...")
        procedure.add_menu_path("<Image>/Filters/Enhance/")
        procedure.set_documentation(TITLE, "Fills what is selected in several different ways, each on a layer", name)
        procedure.set_attribution("PICME SDK", "PICME SDK", "2026")
        procedure.add_int_argument(
            "results", "_Results", "How many fills to make", 1, 12, 4, GObject.ParamFlags.READWRITE
        )
        return procedure

    def run(self, procedure, run_mode, image, drawables, config, data):
        if run_mode == Gimp.RunMode.INTERACTIVE and not _ask(procedure, config):
            return procedure.new_return_values(Gimp.PDBStatusType.CANCEL, GLib.Error())
        try:
            if len(drawables) != 1:
                raise bridge.PicmeFailed("Choose one layer.")
            complete_selection(image, drawables[0], config.get_property("results"))
        except bridge.PicmeFailed as problem:
            return procedure.new_return_values(Gimp.PDBStatusType.EXECUTION_ERROR, GLib.Error(str(problem)))
        return procedure.new_return_values(Gimp.PDBStatusType.SUCCESS, GLib.Error())


def _ask(procedure, config):
    gi.require_version("GimpUi", "3.0")
    from gi.repository import GimpUi

    GimpUi.init("picme")
    dialog = GimpUi.ProcedureDialog.new(procedure, config, TITLE)
    dialog.fill(None)
    answer = dialog.run()
    dialog.destroy()
    return answer


if __name__ == "__main__":
    Gimp.main(Picme.__gtype__, sys.argv)
