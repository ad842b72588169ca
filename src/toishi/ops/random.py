"""Random numbers that depend on a key and on nothing else.

Decisions:
1. A stream is a function of its key, for example (seed, step, group, member): never of the batch, the order of calls or
   global state. Resume, replay and any batching then draw the same numbers.
2. Built on the raw bits of numpy's Philox counter generator and on SeedSequence, whose streams numpy keeps fixed for
   good; `Generator` methods may change between numpy versions, so none is used.
3. Keys are encoded without collisions: (1,) and (1, 0), or (2**32,) and (0, 1), give different streams.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WORD = 2**32


def uniforms(key: tuple[int, ...], n: int) -> NDArray[np.float64]:
    """n numbers strictly between 0 and 1. The first m of n numbers are the m numbers: prefix-stable.

    Raises ValueError for key parts outside [0, 2**64).

    >>> bool((uniforms((0, 1), 5)[:3] == uniforms((0, 1), 3)).all())
    True
    >>> bool(uniforms((0, 1), 1)[0] == uniforms((0, 2), 1)[0])
    False
    """
    bits = np.random.Philox(np.random.SeedSequence(_words(key))).random_raw(n)
    # 52 bits and a half step: neither 0 nor 1 can come out, and every value is exact in float64
    return (np.asarray(bits, dtype=np.uint64) >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 2.0**-53


def permutation(key: tuple[int, ...], n: int) -> NDArray[np.int64]:
    """A random order of 0..n-1.

    >>> sorted(permutation((7,), 4).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(uniforms(key, n), kind="stable").astype(np.int64)


def _words(key: tuple[int, ...]) -> list[int]:
    """The key's length, then two 32-bit words for each part."""
    words = [len(key)]
    for part in key:
        if not 0 <= part < _WORD**2:
            raise ValueError(f"random key {key}: every part must be in [0, 2**64), got {part}")
        words += [part % _WORD, part // _WORD]
    return words
