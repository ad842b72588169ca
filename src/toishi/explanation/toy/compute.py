"""The walk computed: SFT, advantages, updates, and what stands beside them.

Decisions:
1. Rows that divide by the group's spread use the papers' form here (population spread, nothing added), so that a person can
   redo the division; `std_ddof` and `std_epsilon` give back the library's. The row "trl" shows TRL's defaults as they are.
2. The second update of every row beside starts where the walk's own first update ended, so that the columns compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from torch import Tensor
from torch.optim import Optimizer

from toishi.algorithms.credit import table, valid_table
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.algorithms.shaping import Shaped, shaped
from toishi.errors import ConfigError, nearest
from toishi.explanation.toy.beside import (
    beside,
    identity,
    judge_distribution,
    kl_rows,
    supervised,
    tensor_of,
    value_model,
)
from toishi.explanation.toy.model import MAX_WORDS, World, group_of, initial_logits
from toishi.explanation.toy.moves import word_moves
from toishi.explanation.toy.pairs import pair_step
from toishi.explanation.toy.updating import Evaluated, applied, evaluated, one_step, optimizer_for, rows, scored, state
from toishi.explanation.toy.valued import valued
from toishi.explanation.toy.walk import Answer, Beside, Update, Walk
from toishi.explanation.toy.walk_beyond import PairStep
from toishi.ops.advantages import BASELINES, SCALES
from toishi.types import Group, Rollout

AGREES = 1e-9
SHOWN_BESIDE = ("grpo", "trl", "dapo", "dr_grpo", "rloo", "gspo", "cispo")


WALKED_SURROGATES = ("score_function", "clipped", "dual_clip", "stop_gradient")


def paper_row(name: str) -> Algorithm:
    """The row of that name with the spread as in its paper: population, nothing added. "trl" is TRL's default.

    >>> paper_row("grpo").std_ddof, paper_row("grpo").std_epsilon, paper_row("trl").std_epsilon
    (0, 0.0, 0.0001)
    """
    if name == "trl":
        return row_with(algorithm("dapo"), {"clip_high": 0.2})
    row = algorithm(name)
    return row_with(row, {"std_ddof": 0, "std_epsilon": 0.0}) if row.scale == "group_std" else row


def row_with(row: Algorithm, choices: Mapping[str, object]) -> Algorithm:
    """The row with some choices changed.

    Raises ConfigError for an unknown choice or a value that does not fit.

    >>> row_with(paper_row("grpo"), {"scal": "none"})
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: there is no choice 'scal' in an algorithm's row; did you mean 'scale'?
    """
    if unknown := [name for name in choices if name not in Algorithm.model_fields]:
        raise ConfigError(
            f"there is no choice '{unknown[0]}' in an algorithm's row; {nearest(unknown[0], Algorithm.model_fields)}"
        )
    try:
        return Algorithm.model_validate(row.model_dump() | dict(choices))
    except ValidationError as error:
        raise ConfigError("; ".join(_in_words(fault) for fault in error.errors())) from None


def _in_words(fault: Any) -> str:
    """Which choice, what was expected, what was got."""
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{fault['loc'][0]}: {message}, got {fault['input']!r}" if fault["loc"] else message


def walk(
    world: World,
    row: Algorithm | None = None,
    *,
    optimizer: str = "sgd",
    lr: float | None = None,
    beta: float = 0.04,
    inner_steps: int = 2,
) -> Walk:
    """Every number of one step.

    row          default: GRPO in the paper's form
    optimizer    "sgd" or "adam": carries the walk; the other one's first step stands beside it
    lr           of that optimizer; default 2 for SGD (the toy has no other scale), .1 for Adam
    beta         strength of the KL term in the comparison of estimators
    inner_steps  updates on the same answers
    Raises ConfigError for an optimizer that is neither, a learning rate or beta that is not above 0, no update at all, or a row
    that does not learn from judged answers by a formula of this walk.

    >>> found = walk(World())
    >>> [round(answer.advantage, 6) for answer in found.answers]
    [1.414214, 0.471405, -0.942809, -0.942809]
    >>> round(found.updates[0].step.after.expected_reward, 6)
    0.646261
    """
    _check(optimizer, lr, beta, inner_steps)
    row = paper_row("grpo") if row is None else row
    _require_walked(row)
    group, rollouts = scored(world, row)
    updates, pairs = _updates(world, row, optimizer, lr, inner_steps)
    moved_PV = initial_logits(world) + tensor_of(updates[0].step.change)
    first = evaluated(world, row, rollouts, initial_logits(world))
    return Walk(
        world=world,
        row=row.model_dump(),
        dropped=group.baseline.why if group.baseline else "",
        before=state(world, initial_logits(world)),
        sft=supervised(world, optimizer, lr),
        mean=group.baseline.mean if group.baseline else None,
        std=group.baseline.std if group.baseline else None,
        answers=_answers(world, row, group, rollouts),
        updates=updates,
        beside_step=one_step(world, "sgd" if optimizer == "adam" else "adam", None, first.gradient_PV),
        moves=word_moves(world, group, updates[0]),
        kl_rows=kl_rows(world, row, rollouts, moved_PV, beta),
        rows=_rows_beside(world, row, moved_PV),
        identity=identity(world, rollouts, first),
        value_model=value_model(world),
        judge=judge_distribution(),
        valued=valued(world, row, rollouts, optimizer, lr, inner_steps),
        pairs=pairs,
    )


def _require_walked(row: Algorithm) -> None:
    for choice, value, walked in (
        ("source", row.source, ("sampled", "written_pairs")),
        ("predicts", row.predicts, ("tokens",)),
        ("credit", row.credit, ("sequence", "reward_to_go", "gae", "preference")),
        ("truncation", row.truncation, ("keep", "mask", "soft_penalty")),
        ("surrogate", row.surrogate, WALKED_SURROGATES),
        ("needs_teacher", row.needs_teacher, (False,)),
    ):
        if value not in walked:
            raise ConfigError(
                f"row '{row.name}': {choice} '{value}' is not walked here, where a judge scores sampled answers; expected "
                f"{' or '.join(map(str, walked))}. SFT is part of every walk; `toishi algorithms {row.name}` explains this row"
            )


def _rows_beside(world: World, row: Algorithm, moved_PV: Tensor) -> tuple[Beside, ...]:
    """The walk's row first, marked when it is not as its name says, then the others."""
    known = {name: paper_row(name) for name in dict.fromkeys((row.name, *SHOWN_BESIDE))}
    own = next((name for name, other in known.items() if other == row), f"{row.name}*")
    others = [(name, known[name]) for name in SHOWN_BESIDE if name != own]
    return tuple(beside(world, name, other, moved_PV) for name, other in ((own, row), *others))


def _check(optimizer: str, lr: float | None, beta: float, inner_steps: int) -> None:
    if optimizer not in ("sgd", "adam"):
        raise ConfigError(f"unknown optimizer '{optimizer}'; known: sgd, adam")
    if lr is not None and not 0 < lr < float("inf"):
        raise ConfigError(f"the learning rate must be a number above 0, got {lr}")
    if not 0 < beta < float("inf"):
        raise ConfigError(f"beta, the strength of the KL term, must be a number above 0, got {beta}")
    if inner_steps < 1:
        raise ConfigError(f"a step needs at least one update on its answers, got {inner_steps}")


def _updates(
    world: World, row: Algorithm, optimizer: str, lr: float | None, count: int
) -> tuple[tuple[Update, ...], tuple[PairStep, ...]]:
    theta_PV = initial_logits(world).requires_grad_()
    stepping = optimizer_for(optimizer, theta_PV, lr)
    updates: list[Update] = []
    pairs: list[PairStep | None] = []
    for index in range(1, count + 1):
        now_PV = theta_PV.detach().clone()
        pairs.append(pair_step(world, row, now_PV, index))
        updates.append(_update(world, index, evaluated(world, row, scored(world, row, now_PV)[1], now_PV), stepping))
    return tuple(updates), tuple(pair for pair in pairs if pair is not None)


def _update(world: World, index: int, numbers: Evaluated, stepping: Optimizer) -> Update:
    return Update(
        index=index,
        tokens=numbers.tokens,
        loss=numbers.loss,
        clip_fraction=numbers.clip_fraction,
        gradient=rows(numbers.gradient_PV),
        autograd=rows(numbers.autograd_PV),
        max_difference=numbers.max_difference,
        by_answer=tuple(rows(part) for part in numbers.by_answer),
        entropy_part=rows(numbers.entropy_PV),
        gradient_norm=numbers.gradient_PV.norm().item(),
        step=applied(world, stepping, numbers.gradient_PV),
    )


def _answers(world: World, row: Algorithm, group: Group, rollouts: Sequence[Rollout]) -> tuple[Answer, ...]:
    answers = [shaped(rollout, row, MAX_WORDS) for rollout in group_of(world).rollouts]
    parts = [(None, None)] * len(answers) if row.needs_critic else _parts(answers, row)
    learning = {rollout.id.member for rollout in rollouts}
    found = []
    for member, (rollout, answer, (subtracted, divisor)) in enumerate(zip(group.rollouts, answers, parts, strict=True)):
        advantage = sum(rollout.advantage_per_token) / rollout.completion.num_tokens
        result = _by_formula(answer.total, subtracted, divisor, row.std_epsilon)
        found.append(
            Answer(
                number=member + 1,
                text=rollout.completion.text,
                tokens=rollout.completion.token_ids,
                score=world.scores[rollout.completion.token_ids[0]],
                comment=rollout.scores[0].reason,
                reward=rollout.reward,
                subtracted=subtracted,
                divisor=divisor,
                advantage=advantage,
                formula_holds=rollout.reward is not None and abs(result - advantage) < AGREES,
                takes_part=member in learning,
            )
        )
    return tuple(found)


def _parts(answers: Sequence[Shaped], row: Algorithm) -> list[tuple[float | None, float | None]]:
    """(what is subtracted, what is divided by) for each answer, by the row's own functions."""
    totals_PG, valid_PG = table([[answer.total for answer in answers]]), valid_table([answers])
    by_token = row.statistics_over == "tokens"
    counts_PG = table([[float(answer.num_tokens) for answer in answers]]) if by_token else None
    centred_PG = BASELINES[row.baseline](totals_PG, valid_PG, counts_PG, None)
    subtracted = (totals_PG - centred_PG)[0].tolist()
    divisor = SCALES[row.scale](totals_PG, valid_PG, row.std_ddof, counts_PG).expand_as(totals_PG)[0].tolist()
    return [
        (None if row.baseline == "none" else minus, None if row.scale == "none" else by)
        for minus, by in zip(subtracted, divisor, strict=True)
    ]


def _by_formula(earned: float, subtracted: float | None, divisor: float | None, epsilon: float) -> float:
    difference = earned - (subtracted or 0.0)
    if divisor is None:
        return difference
    return difference / (divisor + epsilon) if divisor else 0.0
