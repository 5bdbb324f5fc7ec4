"""Random numbers against published words and statistics."""

import math

import numpy as np

from picme_sdk.mixture.philox import normals, philox, uniform


def test_philox_gives_the_words_of_its_authors() -> None:
    """The known answers of the Random123 library."""
    known = {
        ((0, 0, 0, 0), 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((2**32 - 1,) * 4, 2**64 - 1): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }  # fmt: skip
    for (counter, seed), words in known.items():
        assert tuple(philox(np.array(counter, np.uint64)[:, None], seed)[:, 0].tolist()) == words


def test_normals_are_normal() -> None:
    drawn = np.sort(np.concatenate([normals(11, r, 128) for r in range(400)]).astype(float))
    cumulative = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in drawn[::16]])
    positions = (np.arange(len(drawn)) + 0.5)[::16] / len(drawn)
    statistic = np.abs(cumulative - positions).max() * math.sqrt(len(drawn))
    assert statistic < 1.63, "Kolmogorov-Smirnov, 1 %"
    pairs = np.stack([normals(11, r, 128) for r in range(400)])
    assert abs((pairs[:, :-1] * pairs[:, 1:]).mean()) < 0.02, "neighbours are independent"
    assert abs((pairs[:-1] * pairs[1:]).mean()) < 0.02, "results are independent"


def test_uniforms_are_uniform() -> None:
    values = np.array([uniform(5, r) for r in range(8000)])
    counts, _ = np.histogram(values, 20, (0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 36.2, "chi-square with 19 degrees of freedom, 1 %"
    assert 0 <= values.min() < values.max() < 1
