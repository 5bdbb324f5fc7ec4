"""Counter-based random numbers: Philox 4x32-10.

Everything here is a pure function, so the same (seed, result, hole) gives the same numbers in any order, thread, process and language. The
C++ twin passes the same vectors (tests/vectors). The words come from

    key     = seed (low word, high word)
    counter = (block, purpose, result, hole)

Normals are Box-Muller in float64, rounded to float32: two libraries differ by at most one unit in the last place.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

CHOICE, NOISE, VARIATION = 0, 1, 2  # purposes: streams that never overlap

_FACTORS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_STEPS = (
    np.array([0x9E3779B9, 0xBB67AE85], np.uint32) * np.arange(10, dtype=np.uint32)[:, None]
)  # wraps around on purpose
_LITTLE_END = 1 if sys.byteorder == "little" else -1


def philox(counter: NDArray[np.uint64], seed: int) -> NDArray[np.uint32]:
    """Philox 4x32-10 (Salmon et al., 2011). `counter` [4, ...] holds 32-bit words in uint64; as many words are returned."""
    lanes = (2, *(1 for _ in counter.shape[1:]))
    seed = int(seed)  # a numpy integer would overflow below
    keys = (np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32) + _STEPS).reshape(10, *lanes)
    factors = _FACTORS.reshape(lanes)
    # Rows: the words that are multiplied, the other words, and room for products. Two rows take turns as products, because the low half of a
    # product is still needed one round later.
    state = np.empty((3, 2, *counter.shape[1:]), np.uint64)
    state[0], state[1] = counter[0::2], counter[1::2]
    halves = state.view(np.uint32).reshape(*state.shape, 2)[..., ::_LITTLE_END]
    crossed = halves[:, ::-1]  # a lane's product goes to the other lane
    word, other = halves[0, ..., 0], halves[1, ..., 0]
    turns = [(state[i], crossed[i, ..., 0], crossed[i, ..., 1]) for i in (2, 1)]
    for turn, key in enumerate(keys):
        products, low, high = turns[turn % 2]
        np.multiply(state[0], factors, out=products)
        np.bitwise_xor(high, other, out=word)
        np.bitwise_xor(word, key, out=word)
        other = low
    return np.stack([word, other], 1).reshape(counter.shape)


_GROUP = 8  # results whose numbers are computed in one pass, since neighbours are usually requested next


@lru_cache(maxsize=64)
def _numbers(seed: int, purpose: int, group: int, hole: int, count: int) -> tuple[list[float], F32]:
    """For each result of a group: the number that chooses a primitive, and `count` normals for a purpose. One pass computes both,
    because a pass costs about the same for few numbers as for many."""
    blocks = (count + 3) // 4
    counter = np.empty((4, _GROUP, blocks + 1), np.uint64)
    counter[0, :, :blocks] = np.arange(blocks, dtype=np.uint64)
    counter[1, :, :blocks] = purpose
    counter[0, :, blocks], counter[1, :, blocks] = 0, CHOICE
    counter[2] = np.arange(group * _GROUP, (group + 1) * _GROUP, dtype=np.uint64)[:, None]
    counter[3] = hole
    words = philox(counter, seed)
    first, second = words[:2, :, blocks].tolist()
    choices = [((a >> 5) * 67108864 + (b >> 6)) / 9007199254740992 for a, b in zip(first, second, strict=True)]
    return choices, _box_muller(words[:, :, :blocks])[:, :count]


def _box_muller(words: NDArray[np.uint32]) -> F32:
    """Words [4, result, block] -> normals [result, 4 * block], read-only: each block gives two pairs."""
    radius = np.sqrt(-2.0 * np.log((words[0::2] + 1.0) * 2.0**-32))
    angle = words[1::2] * (2.0 * np.pi * 2.0**-32)
    values = np.empty((*words.shape[1:], 2, 2), np.float32)
    values[..., 0] = (radius * np.cos(angle)).transpose(1, 2, 0)
    values[..., 1] = (radius * np.sin(angle)).transpose(1, 2, 0)
    values.setflags(write=False)
    return values.reshape(len(values), -1)


def uniform(seed: int, result: int, hole: int = 0, count: int = 0) -> float:
    """The number in [0, 1), with 53 bits, that chooses a primitive. `count` hints that so many normals of this result will be requested next."""
    return _numbers(seed, NOISE, result // _GROUP, hole, count)[0][result % _GROUP]


def normals(seed: int, result: int, count: int, hole: int = 0, purpose: int = NOISE) -> F32:
    """`count` standard normals, read-only."""
    row: F32 = _numbers(seed, purpose, result // _GROUP, hole, count)[1][result % _GROUP]
    return row
