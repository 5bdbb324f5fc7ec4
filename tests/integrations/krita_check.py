"""Runs inside Krita as a second plug-in: uses the picme plug-in on a small document, writes what it saw as JSON, and leaves."""

import json
import os
import traceback

from krita import Extension, Krita, Selection
from PyQt5.QtCore import QByteArray, QTimer

WIDTH, HEIGHT = 96, 80
HOLE = 30, 20, 30, 24  # x, y, width, height


def check():
    import picme

    application = Krita.instance()
    application.setBatchmode(True)
    window = application.activeWindow()
    document = application.createDocument(WIDTH, HEIGHT, "check", "RGBA", "U8", "", 72.0)
    window.addView(document)
    node = document.activeNode()
    before = bytes(v for y in range(HEIGHT) for x in range(WIDTH) for v in (x * 2, y * 2, 200, 255))
    node.setPixelData(QByteArray(before), 0, 0, WIDTH, HEIGHT)
    selection = Selection()
    selection.select(*HOLE, 255)
    document.setSelection(selection)
    layers = picme.complete_selection(document, 3, seed=5)
    document.waitForDone()
    whole = 0, 0, WIDTH, HEIGHT
    seen = bytes(document.pixelData(*whole))

    def inside(i):
        x, y = i % WIDTH - HOLE[0], i // WIDTH - HOLE[1]
        return 0 <= x < HOLE[2] and 0 <= y < HOLE[3]

    changed = [i for i in range(WIDTH * HEIGHT) if seen[4 * i : 4 * i + 4] != before[4 * i : 4 * i + 4]]
    found = {
        "version": application.version(),
        "action": application.action("picme_complete") is not None,
        "layers": [(child.name(), child.visible()) for child in document.rootNode().childNodes()],
        "layer_kept": bytes(node.pixelData(*whole)) == before,
        "opaque": [sum(alpha == 255 for alpha in bytes(layer.pixelData(*whole))[3::4]) for layer in layers],
        "different": len({bytes(layer.pixelData(*whole)) for layer in layers}),
        "changed_inside": sum(inside(i) for i in changed),
        "changed_outside": sum(not inside(i) for i in changed),
    }
    document.setSelection(None)
    try:
        picme.complete_selection(document, 1)
    except picme.bridge.PicmeFailed as error:
        found["without_selection"] = str(error)
    return found


class Check(Extension):
    def setup(self):
        pass

    def createActions(self, window):  # noqa: N802 (Krita's name)
        QTimer.singleShot(1500, self.run)  # when the window stands

    def run(self):
        try:
            found = check()
        except BaseException:
            found = {"error": traceback.format_exc()}
        with open(os.environ["PICME_CHECK"], "w") as file:
            json.dump(found, file)
        os._exit(0)  # the check is over; a tidy shutdown would ask and wait


Krita.instance().addExtension(Check(Krita.instance()))
