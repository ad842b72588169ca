"""What a judge says of two answers, shown in both orders several times; written down before the next pair is asked.

Decisions:
1. The verdict of a pair is a line of its own, on the disk before the next pair is asked, so a killed run pays no call twice.
2. A line names its pair by a hash of the prompt and both texts: other samples never meet an older pair's verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toishi.collecting.journal import JournalWriter, require_seals
from toishi.collecting.samples import ASKED_AGAIN, Answer, Asked, sha256_of
from toishi.config import Config
from toishi.errors import ConfigError, nearest
from toishi.record.files import read_lines
from toishi.rewards import build_rewards
from toishi.rewards.base import ComparesPairs, Repeatable, Reward
from toishi.rewards.hooks import closing, prepare_rewards
from toishi.rewards.scripted import answered

VALUE = {"first": 1.0, "second": -1.0, "tie": 0.0}
SUFFIX = ".verdicts.jsonl"

Progress = Callable[[int, int], None]
"""(pairs done, pairs in all)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Two answers to a prompt; the first has the higher reward, or an equal one."""

    asked: Asked
    first: int
    second: int

    @property
    def answers(self) -> tuple[Answer, Answer]:
        return self.asked.answers[self.first], self.asked.answers[self.second]

    @property
    def key(self) -> str:
        """Names the pair by its texts."""
        first, second = self.answers
        return sha256_of([self.asked.asked, first.text, second.text])

    @property
    def difference(self) -> float:
        """Of the rewards."""
        first, second = self.answers
        return (first.reward or 0.0) - (second.reward or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge said of a pair.

    said    one number a call: 1 for the pair's first answer, -1 for its second, 0 for a tie; None = not readable
    orders  for each call 0 where the pair's first answer was shown first, else 1

    >>> Verdict(said=(1.0, 1.0, 0.0, None), orders=(0, 1, 0, 1)).margin
    0.6666666666666666
    >>> Verdict(said=(1.0, None, None, None), orders=(0, 1, 0, 1)).margin is None
    True
    """

    said: tuple[float | None, ...]
    orders: tuple[int, ...]

    @property
    def margin(self) -> float | None:
        """The mean of the calls that could be read; None when they are fewer than half."""
        read = [one for one in self.said if one is not None]
        return sum(read) / len(read) if read and 2 * len(read) >= len(self.said) else None


def verdicts_path(out: Path) -> Path:
    """Where the judge's verdicts lie from which `out` was made.

    >>> verdicts_path(Path("pairs.jsonl")).name
    'pairs.verdicts.jsonl'
    """
    return out.with_name(out.name.removesuffix(".jsonl") + SUFFIX)


def judged(
    judge: Reward,
    pairs: Sequence[Candidate],
    path: Path,
    *,
    calls: int,
    go_on: bool = False,
    on_progress: Progress | None = None,
) -> dict[str, Verdict]:
    """What the judge says of each pair, by its key: with `go_on` out of the file `path` as far as it goes, else asked.

    Raises what `require_judge` raises, RecordError for a damaged file.
    """
    require_judge(judge, calls)
    if not go_on:
        path.unlink(missing_ok=True)
    done = _read(path, judge.name, calls)
    with JournalWriter(path) as journal:
        for place, pair in enumerate(pairs, start=1):
            if pair.key not in done:
                found = done[pair.key] = _verdict(judge, pair, calls)
                line = {"judge": judge.name, "calls": calls, "pair": pair.key, "said": found.said, "orders": found.orders}
                journal.append(line)
            if on_progress is not None:
                on_progress(place, len(pairs))
    return done


def judge_of(config: Config, name: str, calls: int) -> Reward:
    """The recipe's judge of that name. Raises ConfigError where there is none, and as `require_judge`."""
    found = next((one for one in config.rewards if one.name == name), None)
    if found is None:
        raise ConfigError(f"--judge: the recipe has no reward '{name}'; {nearest(name, [one.name for one in config.rewards])}")
    (judge,) = build_rewards([found], columns=None)
    require_judge(judge, calls)
    return judge


def judged_by(
    config: Config,
    name: str,
    pairs: Sequence[Candidate],
    path: Path,
    *,
    calls: int,
    go_on: bool = False,
    on_progress: Progress | None = None,
) -> tuple[dict[str, Verdict], list[str]]:
    """`judged` by the recipe's judge of that name, and what it has to say of itself."""
    judge = judge_of(config, name, calls)
    with closing([judge]):
        notes = prepare_rewards([judge], [one.asked.as_prompt for one in pairs])
        return judged(judge, pairs, path, calls=calls, go_on=go_on, on_progress=on_progress), notes


def require_judge(judge: Reward, calls: int) -> None:
    """Raises ConfigError unless the reward compares pairs, and can be asked so often, each order equally often."""
    if not isinstance(judge, ComparesPairs) or getattr(judge, "mode", "pairwise") != "pairwise":
        raise ConfigError(f"--judge {judge.name}: it does not compare two answers; take a reward `judge` with mode: pairwise")
    if getattr(judge, "anchor_column", None) is not None:
        raise ConfigError(f"--judge {judge.name}: it compares with an anchor, not two answers; leave anchor_column out")
    if calls % 2:
        raise ConfigError(f"--calls {calls}: each order is shown equally often, so the number has to be even")
    if calls > 2 and not isinstance(judge, Repeatable):
        raise ConfigError(f"--judge {judge.name}: it says the same each time it is asked; use --calls 2")


def _read(path: Path, judge: str, calls: int) -> dict[str, Verdict]:
    found = {}
    lines = read_lines(path, otherwise=ASKED_AGAIN)
    require_seals(path, lines, ASKED_AGAIN)
    for line in lines:
        if (line["judge"], line["calls"]) == (judge, calls):
            found[str(line["pair"])] = Verdict(said=tuple(line["said"]), orders=tuple(line["orders"]))
    return found


def _verdict(judge: Reward, pair: Candidate, calls: int) -> Verdict:
    assert isinstance(judge, ComparesPairs)
    completions = [answered(answer.text) for answer in pair.answers]
    said: list[float | None] = []
    orders: list[int] = []
    repeat = 0
    while len(said) < calls:
        heard = judge.comparisons(pair.asked.as_prompt, completions, repeat)
        if not heard:  # one of the two has no text that could be shown
            return Verdict(said=(None,) * calls, orders=(0, 1) * (calls // 2))
        for one in heard:
            value = None if one.preferred is None else VALUE[one.preferred]
            said.append(value if value is None or one.first == 0 else -value + 0.0)
            orders.append(one.first)
        repeat += 1
    return Verdict(said=tuple(said), orders=tuple(orders))
