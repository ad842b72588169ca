"""Orders and draws that are functions of a key, not of a shared random stream.

Decisions:
1. Everything is derived from BLAKE2b of the key's text: the same on every platform and Python version.
2. A finite set is shuffled anew each epoch by sorting on the hash of (seed, epoch, position); nothing is stored for resume.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import lru_cache

from toishi.types import Prompt


def keyed_hash(*key: int | str) -> int:
    """A 64-bit number that is a function of `key` alone.

    >>> keyed_hash(0, "train", 1) == keyed_hash(0, "train", 1) != keyed_hash(0, "train", 2)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


@lru_cache(maxsize=8)
def keyed_order(count: int, *key: int | str) -> tuple[int, ...]:
    """The numbers 0..count-1 in an order that is a function of `key`.

    >>> sorted(keyed_order(4, 7, "split"))
    [0, 1, 2, 3]
    """
    return tuple(sorted(range(count), key=lambda position: keyed_hash(*key, position)))


def epoch_position(index: int, count: int, seed: int) -> int:
    """Which of `count` items training prompt number `index` shows: each once an epoch, every epoch in its own order.

    >>> sorted(epoch_position(index, 3, seed=0) for index in range(3, 6))
    [0, 1, 2]
    """
    epoch, place = divmod(index, count)
    return keyed_order(count, seed, "epoch", epoch)[place]


def text_key(prompt: Prompt) -> str:
    """What makes two prompts the same for the split: all their text, without regard to case, width and spacing.

    >>> text_key(Prompt(id="a", text="What is  2?")) == text_key(Prompt(id="b", text="what is 2? "))
    True
    """
    if prompt.messages is None:
        parts = [prompt.text or ""]
    else:
        parts = [part for message in prompt.messages for part in (message["role"], message["content"])]
    return "\x1f".join(" ".join(unicodedata.normalize("NFKC", part).casefold().split()) for part in parts)
