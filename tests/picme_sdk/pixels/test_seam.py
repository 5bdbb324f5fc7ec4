"""How a fill is led to the photo along the hole's edge."""

import numpy as np

from tests.picme_sdk.pixels.test_crops import holes_of


def test_healing_removes_an_offset_at_the_edge_and_leaves_the_middle() -> None:
    (hole,) = holes_of(32, 32, [(8, 8, 24, 24)])
    square = np.clip(hole.image.astype(int) - 20, 0, 255).astype(np.uint8)[None]
    before = square.copy()
    hole.seam.heal(square)
    outside = hole.mask == 0
    assert np.array_equal(square[0][outside], before[0][outside]), "nothing outside the hole"
    assert np.array_equal(square[0, 13:19, 13:19], before[0, 13:19, 13:19]), "nor in its middle"
    edge = (hole.image[8, 9:23].astype(int) - square[0, 8, 9:23]).mean()
    assert abs(edge) < 8, "20 without healing"
