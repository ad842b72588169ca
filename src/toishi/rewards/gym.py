"""`gym`: reasoning_gym's own score of the answer.

Decisions:
1. Scorers never see the whole completion, but the answer taken out of it: several pay for a gold that stands anywhere in a
   text.
2. Only a full score is paid by default. Many scorers give consolation (0.01 for any text, a share for a near miss), which the
   spread of a group turns into full-sized advantages.
3. Scoring runs in a child process that is killed when it takes too long, and what the scorers would `eval` is not run
   (`gym_scoring`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from toishi.errors import MissingExtraError, nearest
from toishi.isolation.limits import Killed, Limits, NotStarted, Raised
from toishi.isolation.pool import call_each
from toishi.rewards.base import Judgement
from toishi.rewards.gym_scoring import packed
from toishi.types import Completion, Prompt

MEMORY_MB = 4096
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_LEAD = re.compile(r"(?:(?:so|thus|therefore),? )?(?:the |my )?(?:final )?answer(?: is:?|:| =)\s+(?=\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GymReward:
    r"""1 if reasoning_gym's scorer of the prompt's data set gives the answer its full score, else 0.

    where    what of the completion is the answer. "tags": the last <answer>...</answer>; "box": the last \boxed{...};
             "last_line": the last line that is not empty; "auto": the tags if they stand there, else a box, else the last line
    binary   false pays the scorer's number as it is, consolation included
    require_stop  an answer cut off at the token limit is not paid
    timeout_s     seconds that the scorer may take for one answer

    Rows come from the task `reasoning_gym`, or have a column `entry` like its.

    Traps: answers of several lines (grids, moves) need tags. With binary: false some scorers pay for any text at all. Where the
    scorer would pay for the gold with words around it, or for "no idea", such an answer gets 0.

    >>> from toishi.rewards.scripted import answered
    >>> from toishi.tasks.gym import Gym
    >>> prompt = Gym(dataset="chain_sum", config={"max_terms": 2}, heldout=0).build(seed=0).train_prompt(0)
    >>> answers = [answered(f"Well.\nThe answer is {prompt.gold}"), answered(f"{prompt.gold} or 1 or 2"), answered("")]
    >>> [(judgement.value, judgement.readable) for (judgement,) in GymReward().score_group(prompt, answers)]
    [(1.0, True), (0.0, True), (0.0, False)]
    """

    name: str = "gym"
    where: Literal["auto", "tags", "box", "last_line"] = "auto"
    binary: bool = True
    require_stop: bool = True
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0

    concurrent: bool = field(init=False, default=True)
    waits: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        try:
            import reasoning_gym  # noqa: F401
        except ImportError:
            raise MissingExtraError("reasoning-gym", extra="gym", purpose="the reward 'gym'") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("entry",)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        from reasoning_gym.factory import DATASETS

        entry = prompt.columns.get("entry")
        if not isinstance(entry, Mapping) or "answer" not in entry or not isinstance(entry.get("metadata"), Mapping):
            return f"the column 'entry' is no entry of reasoning_gym with answer and metadata: {entry!r:.80}"
        name = entry["metadata"].get("source_dataset")
        return None if name in DATASETS else f"reasoning_gym has no data set {name!r}; {nearest(str(name), DATASETS)}"

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem, kind="bad_row"),)] * len(completions)
        read = [self._read(completion) for completion in completions]
        entry = prompt.columns["entry"]
        call = {
            "dataset": entry["metadata"]["source_dataset"],
            "config": dict(prompt.columns.get("dataset_config") or {}),
            "entry": packed(entry),
        }
        calls = [call | {"answer": answer} for answer, _ in read if answer is not None]
        limits = Limits(wall_s=self.timeout_s, cpu_s=self.timeout_s, memory_mb=MEMORY_MB)
        try:
            said = iter(call_each("toishi.rewards.gym_scoring:score", calls, limits=limits, preload=("reasoning_gym", "sympy")))
        except NotStarted as error:
            return [(Judgement(value=None, status="failed", reason=str(error), kind="no_child"),)] * len(completions)
        return [(self._judgement(answer, why, next(said) if answer is not None else None),) for answer, why in read]

    def _judgement(self, answer: str | None, why: str, said: Any) -> Judgement:
        if answer is None:
            return Judgement(value=0.0, reason=why, readable=False)
        if isinstance(said, Killed | Raised):
            reason = f"the scorer {said}" if isinstance(said, Killed) else f"the scorer broke: {said}"
            return Judgement(
                value=None, status="failed", reason=reason, kind="killed" if isinstance(said, Killed) else "broken"
            )
        if said["value"] is None:
            return Judgement(value=None, status="failed", reason=said["why"], kind="broken")
        value = float(said["value"] >= 1) if self.binary else said["value"]
        return Judgement(value=value, reason=f"read {answer[:80]!r}, {said['why']}", readable=True)

    def _read(self, completion: Completion) -> tuple[str | None, str]:
        """The answer, or None and why there is none."""
        if self.require_stop and completion.is_truncated:
            return None, "cut off at the token limit"
        text = completion.text
        wanted = self.where
        tagged, box = _TAG.findall(text), _last_box(text)
        if wanted == "auto":
            wanted = "tags" if "<answer>" in text else "last_line" if box is None else "box"
        found = {"tags": tagged[-1] if tagged else None, "box": box, "last_line": _last_line(text)}[wanted]
        if found is None or not found.strip():
            return None, {"tags": "no <answer>...</answer>", "box": "no \\boxed{...}", "last_line": "no text"}[wanted]
        return found.strip(), ""


def _last_box(text: str) -> str | None:
    r"""What the last closed \boxed{...} holds."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + len("\\boxed"), len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start + len("\\boxed{") : place]
    return None


def _last_line(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    line = lines[-1].strip("*` ")
    return _LEAD.sub("", line, count=1).strip("*` ") if _LEAD.match(line) else line
