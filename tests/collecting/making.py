"""Sampled answers by hand."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.collecting.samples import Answer, Asked, Header
from toishi.config import Config


def answer(text: str, reward: float | None, tokens: int = 3, *, cut: bool = False, readable: bool | None = None) -> Answer:
    return Answer(
        text=text,
        tokens=tokens,
        finish_reason="length" if cut else "stop",
        reward=reward,
        scores={"number": reward},
        readable=readable,
        failure="" if reward is not None else "broken",
    )


def asked(number: int, answers: Sequence[Answer], prompt: str | None = None) -> Asked:
    text = f"question number {number} of the set" if prompt is None else prompt
    return Asked(number=number, id=f"row {number}", prompt=text, columns={"gold": number}, answers=tuple(answers))


def header(count: int = 2, samples: int = 4) -> Header:
    return Header(
        model={"name": "tiny", "fingerprint": "f", "dtype": "float32", "step": 0, "run": None, "adapter_sha256": []},
        recipe="sums",
        config=Config().model_dump(mode="json"),
        samples=samples,
        prompts=count,
        data="d",
        toishi="0",
    )
