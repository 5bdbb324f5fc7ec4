"""Contact sheets: labelled pictures in a grid."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from picme_sdk.scene import Completion

CELL = 256  # pixels, picture without its caption
CAPTION = 34
GAP = 8
PAPER, INK = (250, 250, 250), (30, 30, 30)


def contact_sheet(cells: Sequence[tuple[Image.Image, str]], columns: int = 4) -> Image.Image:
    """Pictures with captions, scaled to fit, row by row."""
    rows = -(-len(cells) // columns)
    sheet = Image.new("RGB", (columns * (CELL + GAP) + GAP, rows * (CELL + CAPTION + GAP) + GAP), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, (picture, caption) in enumerate(cells):
        x, y = GAP + i % columns * (CELL + GAP), GAP + i // columns * (CELL + CAPTION + GAP)
        scale = CELL / max(picture.size)
        size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
        shown = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        sheet.paste(shown, (x + (CELL - size[0]) // 2, y + (CELL - size[1]) // 2))
        draw.multiline_text((x, y + CELL + 2), caption, INK, font, spacing=2)
    return sheet


def results_sheet(photo: Image.Image, mask: Image.Image, results: Sequence[Completion]) -> Image.Image:
    """Input, hole, and each result with its primitive, weight and log-density."""
    hole = Image.composite(Image.new("RGB", photo.size, (235, 60, 90)), photo.convert("RGB"), mask.convert("L"))
    cells = [(photo, "input"), (hole, "hole")]
    for number, result in enumerate(results, 1):
        caption = (
            f"{number}: primitive {result.primitive}, weight {result.weight:.2f}\nlog-density {result.log_density:.1f}"
        )
        cells.append((result.image, caption))
    return contact_sheet(cells)
