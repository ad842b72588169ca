"""The smallest language model that can be trained: two rows of logits, for an answer's first and second word.

Decisions:
1. The last word of the vocabulary ends an answer; an answer has at most two words, and one that does not end is cut.
2. The judge looks at the first word alone, so that "expected reward" is a sum over the vocabulary that a person can check.
   A score of None is a call of the judge that failed: its answers are left out, never counted as 0.
3. float64 throughout; a real model differs in how logits come about, not in what follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.errors import ConfigError, nearest
from toishi.ops.logprobs import logprobs_and_entropy
from toishi.ops.random import uniforms
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score

MAX_WORDS = 2
WORDS = ("good", "ok", "bad", "<end>")
VALUES = (0.5, 0.7, 0.6, 0.4)
SUM_TOLERANCE = 1e-6
PROMPT = Prompt(id="toy", text="?")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Model, judge and answers.

    first, second  probabilities of the words at the two positions
    scores         the judge's points for an answer that begins with each word; None: the judge failed
    points         the judge's maximum; reward = score / points
    comments       what the judge says about an answer that begins with each word; empty for none
    answers        the group, as indices of words
    target         the right answer that SFT is shown
    values         what a critic guesses that an answer will earn: before its first word, and after each first word but the
                   last; empty for the usual ones

    Raises ConfigError for counts that do not fit and probabilities that are none.

    >>> World(first=(0.5, 0.5, 0.5, 0.5))
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: the first word's probabilities sum to 2, expected 1; divide each by 2
    """

    words: tuple[str, ...] = WORDS
    first: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    second: tuple[float, ...] = (0.1, 0.1, 0.2, 0.6)
    scores: tuple[float | None, ...] = (8.0, 6.0, 3.0, 3.0)
    points: float = 10.0
    comments: tuple[str, ...] = ()
    answers: tuple[tuple[int, ...], ...] = ((0, 3), (1, 3), (2, 3), (3,))
    target: tuple[int, ...] = (0, 3)
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_words(self.words)
        for name, row in (("first", self.first), ("second", self.second)):
            _check_row(name, row, self.words)
        _check_scores(self.scores, self.points, self.words)
        if self.comments and len(self.comments) != len(self.words):
            raise ConfigError(_count("comments of the judge", len(self.comments), self.words))
        if self.values and len(self.values) != len(self.words):
            after = ", ".join(self.words[:-1])
            raise ConfigError(
                f"got {len(self.values)} values of the critic, expected {len(self.words)}: one before the first word, and one "
                f"after each of {after}"
            )
        if not self.answers:
            raise ConfigError("a group needs at least one answer, got none; name their first words")

    @property
    def end(self) -> int:
        return len(self.words) - 1

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """By first word."""
        return tuple(None if score is None else score / self.points for score in self.scores)

    @property
    def guesses(self) -> tuple[float, ...]:
        """The critic's: `values`, or the usual ones, which are all alike for another vocabulary."""
        usual = VALUES if len(self.words) == len(VALUES) else (VALUES[0],) * len(self.words)
        return self.values or usual

    def spelled(self, answer: Sequence[int]) -> str:
        """
        >>> World().spelled((0, 3))
        'good <end>'
        """
        return " ".join(self.words[token] for token in answer)


def written(first_word: str, words: Sequence[str]) -> tuple[int, ...]:
    """The answer that begins with that word and then ends.

    Raises ConfigError for a word that is not in the vocabulary.

    >>> written("ok", WORDS), written("<end>", WORDS)
    ((1, 3), (3,))
    """
    if first_word not in words:
        raise ConfigError(f"'{first_word}' is not a word of this vocabulary; {nearest(first_word, words)}")
    first, end = words.index(first_word), len(words) - 1
    return (first,) if first == end else (first, end)


def drawn(world: World, count: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Answers sampled from the model, the same ones for the same seed.

    >>> drawn(World(), 3, seed=0)
    ((0, 0), (0, 3), (0, 2))
    """
    if count < 1:
        raise ConfigError(f"a group needs at least one answer, got {count}")
    draws = uniforms((seed,), count * MAX_WORDS).reshape(count, MAX_WORDS).tolist()
    answers = []
    for first_draw, second_draw in draws:
        first = _pick(world.first, first_draw)
        answers.append((first,) if first == world.end else (first, _pick(world.second, second_draw)))
    return tuple(answers)


def initial_logits(world: World) -> Tensor:
    """Logs of the two rows, [2, V] float64."""
    return torch.tensor([world.first, world.second], dtype=torch.float64).log()


@dataclass(frozen=True, slots=True)
class Tokens:
    """The words of some answers in one line: which row of logits predicts each, and which answer it belongs to."""

    position_N: Tensor
    target_N: Tensor
    sequence_N: Tensor
    lengths_B: Tensor


def packed(answers: Sequence[Sequence[int]]) -> Tokens:
    """
    >>> packed([(0, 3), (3,)]).position_N.tolist()
    [0, 1, 0]
    """
    lengths = [len(answer) for answer in answers]
    return Tokens(
        position_N=torch.tensor([place for length in lengths for place in range(length)], dtype=torch.long),
        target_N=torch.tensor([token for answer in answers for token in answer], dtype=torch.long),
        sequence_N=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.long)),
        lengths_B=torch.tensor(lengths, dtype=torch.long),
    )


def evaluate(logits_PV: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Log-prob of each word and entropy of the row that it was drawn from, [N] each."""
    return logprobs_and_entropy(logits_PV[tokens.position_N], tokens.target_N, 1.0)


def place_of(answer: Sequence[int], position: int) -> int:
    """Which of the critic's guesses stands before that word of the answer.

    >>> place_of((2, 3), 0), place_of((2, 3), 1)
    (0, 3)
    """
    return 0 if position == 0 else 1 + answer[position - 1]


def group_of(world: World, logits_PV: Tensor | None = None) -> Group:
    """The answers as the library's rollouts, scored by the judge; the model of step 0 is the reference, and the sampler unless
    another one's logits are given."""
    now_PV = initial_logits(world) if logits_PV is None else logits_PV
    return Group(prompt=PROMPT, rollouts=tuple(_rollout(world, member, now_PV) for member in range(len(world.answers))))


def _rollout(world: World, member: int, logits_PV: Tensor) -> Rollout:
    answer = world.answers[member]
    logprobs_N, entropy_N = evaluate(logits_PV, packed([answer]))
    ref_N, _ = evaluate(initial_logits(world), packed([answer]))
    ends = answer[-1] == world.end
    completion = Completion(
        token_ids=answer,
        loss_mask=(1,) * len(answer),
        sampled_logprobs=tuple(logprobs_N.tolist()),
        entropies=tuple(entropy_N.tolist()),
        text=world.spelled(answer),
        finish_reason="stop" if ends else "length",
    )
    reward = world.rewards[answer[0]]
    comment = world.comments[answer[0]] if world.comments else ""
    score = Score(reward="judge", value=reward, reason=comment, status="failed" if reward is None else "ok")
    return Rollout(
        id=RolloutId(0, 0, member),
        prompt=PROMPT,
        completion=completion,
        scores=(score,),
        reward=reward,
        ref_logprobs=tuple(ref_N.tolist()),
        values=tuple(world.guesses[place_of(answer, position)] for position in range(len(answer))),
        status="completed" if ends else "truncated",
    )


def _pick(row: Sequence[float], draw: float) -> int:
    total = 0.0
    for index, probability in enumerate(row):
        total += probability
        if draw < total:
            return index
    return len(row) - 1


def _check_words(words: Sequence[str]) -> None:
    if len(words) < 2 or len(set(words)) != len(words) or not all(words):
        raise ConfigError(f"a vocabulary needs at least two different words, the last one ends an answer; got {list(words)}")


def _check_row(name: str, row: Sequence[float], words: Sequence[str]) -> None:
    if len(row) != len(words):
        raise ConfigError(_count(f"probabilities of the {name} word", len(row), words))
    if not all(0 < probability < 1 for probability in row):
        raise ConfigError(
            f"the {name} word's probabilities must lie between 0 and 1 (a softmax gives neither), got {list(row)}"
        )
    total = math.fsum(row)
    if abs(total - 1) > SUM_TOLERANCE:
        raise ConfigError(f"the {name} word's probabilities sum to {total:g}, expected 1; divide each by {total:g}")


def _check_scores(scores: Sequence[float | None], points: float, words: Sequence[str]) -> None:
    if len(scores) != len(words):
        raise ConfigError(_count("scores of the judge", len(scores), words))
    if not points > 0 or not math.isfinite(points):
        raise ConfigError(f"the judge's maximum must be a number above 0, got {points}")
    if outside := [score for score in scores if score is not None and not 0 <= score <= points]:
        raise ConfigError(f"scores {outside} lie outside 0 to {points:g}; give scores in that range, or another maximum")


def _count(what: str, got: int, words: Sequence[str]) -> str:
    return f"got {got} {what}, expected {len(words)}: one for each of {', '.join(words)}"
