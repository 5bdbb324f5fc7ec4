"""Krita plug-in: fill the selection of the active layer in several different ways, each on a layer of its own.

complete_selection   the work, on a document
Picme                the menu entry around it
"""

import os
import tempfile

from krita import Extension, Krita
from PyQt5.QtCore import QByteArray, Qt
from PyQt5.QtGui import QImage
from PyQt5.QtWidgets import QApplication, QInputDialog, QMessageBox

from . import bridge

TITLE = "Complete the selection"


def complete_selection(document, results, seed=None):
    """Add `results` layers above the active one; the first is shown. Returns them."""
    node, selection = document.activeNode(), document.selection()
    if selection is None:
        raise bridge.PicmeFailed("Select what should be filled first.")
    if (node.colorModel(), node.colorDepth()) != ("RGBA", "U8"):
        raise bridge.PicmeFailed(
            "The layer is not RGB with 8 bits. Convert it: Layer > Convert > Convert Layer Color Space."
        )
    area = 0, 0, document.width(), document.height()
    width, height = area[2:]
    chosen = bytes(selection.pixelData(*area))
    with tempfile.TemporaryDirectory(prefix="picme-") as folder:
        photo, mask = os.path.join(folder, "layer.png"), os.path.join(folder, "mask.png")
        bridge.write_png(photo, width, height, 3, bridge.rgb(bytes(node.projectionPixelData(*area)), red=2))
        bridge.write_png(mask, width, height, 1, bridge.hard(chosen))
        made = bridge.complete(folder, photo, mask, results, seed)
        layers = [_layer(document, result, chosen, area) for result in made]
    for number, layer in enumerate(layers):  # each goes right above the active one, so the first ends on top
        layer.setVisible(number == 0)
        node.parentNode().addChildNode(layer, node)
    document.refreshProjection()
    return layers


def _layer(document, result, chosen, area):
    image = QImage(result.file).convertToFormat(QImage.Format_ARGB32)  # in memory: blue, green, red, alpha
    bits = image.constBits()
    bits.setsize(image.byteCount())
    pixels = bytearray(bytes(bits))
    pixels[3::4] = chosen
    layer = document.createNode(result.name, "paintlayer")
    layer.setPixelData(QByteArray(bytes(pixels)), *area)
    return layer


class Picme(Extension):
    def setup(self):
        pass

    def createActions(self, window):  # noqa: N802 (Krita's name)
        action = window.createAction("picme_complete", TITLE + " (PICME)...", "tools/scripts")
        action.triggered.connect(self.ask)

    def ask(self):
        document = Krita.instance().activeDocument()
        if document is None:
            return
        results, wanted = QInputDialog.getInt(None, TITLE, "How many results?", 4, 1, 12)
        if not wanted:
            return
        QApplication.setOverrideCursor(Qt.WaitCursor)
        problem = None
        try:
            complete_selection(document, results)
        except bridge.PicmeFailed as error:
            problem = str(error)
        finally:
            QApplication.restoreOverrideCursor()
        if problem:
            QMessageBox.warning(None, TITLE, problem)


application = Krita.instance()
application.addExtension(Picme(application))
