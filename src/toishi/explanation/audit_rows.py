"""Whether a step's two tables agree with each other, and whether rewards and advantages follow from the scores."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.composing import composed, sum_of
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.terms import Term
from toishi.explanation.ledger import EXACT_SUMS, Ledger, Tolerance
from toishi.explanation.rounding import single_bound
from toishi.record.tables import Row
from toishi.types import Group, GroupBaseline, Rollout

_SAMPLED = ("token_ids", "token_texts", "loss_mask", "sampled_logprob", "sampled_entropy")
_STREAMS = (
    "old_logprob",
    "logprob",
    "ref_logprob",
    "entropy",
    "ratio",
    "clip",
    "kl_policy_ref",
    "divergence",
    "advantage",
    "token_weight",
)
_GROUP_CELLS = (
    "prompt_id", "prompt", "prompt_messages", "prompt_token_ids", "prompt_prefill", "gold", "columns",
    "group_mean", "group_std", "group_count", "group_kept", "group_why",
)  # fmt: skip


def place(row: Row) -> str:
    """
    >>> place({"step": 3, "group": 0, "member": 2, "update": 1})
    '3/0/2, update 1'
    """
    name = f"{row['step']}/{row['group']}/{row['member']}"
    return f"{name}, update {row['update']}" if row.get("update") is not None else name


def check_tables(
    step: int, num_updates: int, rollouts: Sequence[Row], tokens: Sequence[Row], shard: str, ledger: Ledger
) -> None:
    """Every rollout once and with tokens, nothing about a rollout that is not there, lengths and siblings in agreement."""
    names = Counter(_name(row) for row in rollouts)
    first = {row["group"]: row for row in reversed(rollouts)}
    tokens_of: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in tokens:
        tokens_of[_name(row)].append(row)
    for row in rollouts:
        file, mine = f"rollouts/{shard}", tokens_of[_name(row)]
        ledger.equal(file, place(row), "step", row["step"], step)
        ledger.equal(file, place(row), "rows of this rollout", names[_name(row)], 1)
        ledger.equal(f"tokens/{shard}", place(row), "has a row", bool(mine), True)
        _check_status(row, file, ledger)
        _check_siblings(row, first[row["group"]], file, ledger)
        for other in mine:
            _check_lengths(row, other, mine[0], f"tokens/{shard}", ledger)
    _check_token_rows(step, num_updates, tokens, names, f"tokens/{shard}", ledger)


def _name(row: Row) -> tuple[int, int]:
    return row["group"], row["member"]


def _check_token_rows(
    step: int, num_updates: int, tokens: Sequence[Row], names: Counter[tuple[int, int]], file: str, ledger: Ledger
) -> None:
    repeated = Counter((*_name(row), row["update"]) for row in tokens)
    for row in tokens:
        ledger.equal(file, place(row), "step", row["step"], step)
        ledger.equal(file, place(row), "rows of this rollout and update", repeated[*_name(row), row["update"]], 1)
        ledger.equal(file, place(row), "rollout is in rollouts/", _name(row) in names, True)
        known = row["update"] is None or row["update"] in range(num_updates)
        ledger.equal(file, place(row), f"update is one of the step's {num_updates}", known, True)


def _check_status(row: Row, file: str, ledger: Ledger) -> None:
    if row["status"] != "failed":
        expected = "truncated" if row["finish_reason"] == "length" else "completed"
        ledger.equal(file, place(row), "status", row["status"], expected)


def _check_lengths(rollout: Row, tokens: Row, first: Row, file: str, ledger: Ledger) -> None:
    for name in (*_SAMPLED, *_STREAMS):
        if tokens[name] is not None:
            ledger.equal(file, place(tokens), f"length of {name}", len(tokens[name]), rollout["num_tokens"])
    for name in _SAMPLED:
        ledger.equal(file, place(tokens), f"{name}, same in every update", tokens[name], first[name])


def _check_siblings(row: Row, first: Row, file: str, ledger: Ledger) -> None:
    for name in _GROUP_CELLS:
        ledger.equal(file, place(row), f"{name}, same as its siblings'", row[name], first[name])


def check_scores(rollouts: Sequence[Row], shard: str, ledger: Ledger) -> None:
    """contribution = weight x value, where nothing else was paid; reward = their sum, and nothing when a reward failed."""
    for row in rollouts:
        for score in row["scores"]:
            _check_score(row, score, f"rollouts/{shard}", ledger)
        parts = [score["contribution"] for score in row["scores"] if score["contribution"] is not None]
        failed = row["status"] == "failed" or any(_fails(score) for score in row["scores"])
        expected = sum_of(parts, f"{place(row)}: its contributions") if parts and not failed else None
        ledger.close(f"rollouts/{shard}", place(row), "reward (sum of contributions)", row["reward"], expected)


def _fails(score: Row) -> bool:
    """Whether it leaves its answer without a reward: one that is left out of the whole group does not."""
    return bool(score["status"] == "failed" and score.get("use") != "left_out")


def _check_score(row: Row, score: Row, file: str, ledger: Ledger) -> None:
    name = f"score '{score['reward']}'"
    if (score.get("use") or "counted") == "counted":
        expected = None if score["value"] is None else score["value"] * score["weight"]
        ledger.close(file, place(row), f"{name}: contribution (weight x value)", score["contribution"], expected)
    ledger.equal(file, place(row), f"{name}: has a value", score["value"] is not None, score["status"] == "ok")
    if score["span_start"] is not None:
        inside = score["span_end"] is not None and 0 <= score["span_start"] < score["span_end"] <= row["num_tokens"]
        ledger.equal(file, place(row), f"{name}: span inside the answer", inside, True)


def check_composition(groups: Sequence[Group], terms: Sequence[Term], shard: str, ledger: Ledger) -> None:
    """Gates, caps, noise and failures again, from values and weights: what each score is used as and pays."""
    for group in groups:
        for got, expected in zip(group.rollouts, composed(group, terms).rollouts, strict=True):
            for score, again in zip(got.scores, expected.scores, strict=True):
                name = f"score '{score.reward}'"
                ledger.equal(f"rollouts/{shard}", str(got.id), f"{name}: use", score.use, again.use)
                ledger.close(f"rollouts/{shard}", str(got.id), f"{name}: what it pays", score.contribution, again.contribution)
            ledger.close(f"rollouts/{shard}", str(got.id), "reward (composed again)", got.reward, expected.reward)


def check_advantages(
    groups: Sequence[Group], row: Algorithm, max_new_tokens: int, shard: str, ledger: Ledger, *, single: bool = False
) -> None:
    """Group statistics and advantages again, from the rewards, by the run's algorithm.

    single  the advantages are float32 numbers, which is as near as they can come
    """
    expected = assign_advantages(groups, row, max_new_tokens=max_new_tokens)
    for got_group, expected_group in zip(groups, expected, strict=True):
        name = "/".join(str(got_group.rollouts[0].id).split("/")[:2])
        _check_baseline(name, got_group.baseline, expected_group.baseline, f"rollouts/{shard}", ledger)
        bound = Tolerance(relative=0.0, absolute=single_bound(expected_group, row)) if single else EXACT_SUMS
        for got, wanted in zip(got_group.rollouts, expected_group.rollouts, strict=True):
            _check_advantage(got, wanted, f"rollouts/{shard}", ledger, bound)


def _check_baseline(name: str, got: GroupBaseline | None, expected: GroupBaseline | None, file: str, ledger: Ledger) -> None:
    if got is None or expected is None:
        ledger.equal(file, name, "baseline", got, expected)
        return
    ledger.close(file, name, "group_mean", got.mean, expected.mean)
    ledger.close(file, name, "group_std", got.std, expected.std)
    ledger.equal(file, name, "group_count", got.count, expected.count)
    ledger.equal(file, name, "group_kept", got.kept, expected.kept)
    ledger.equal(file, name, "group_why", got.why, expected.why)


def _check_advantage(got: Rollout, expected: Rollout, file: str, ledger: Ledger, bound: Tolerance) -> None:
    if isinstance(got.advantage, tuple) and isinstance(expected.advantage, tuple):
        ledger.each_close(file, str(got.id), "token_advantages", got.advantage, expected.advantage, bound)
    elif isinstance(got.advantage, tuple) or isinstance(expected.advantage, tuple):
        ledger.found(file, str(got.id), "advantage", got.advantage, expected.advantage)
    else:
        ledger.close(file, str(got.id), "advantage", got.advantage, expected.advantage, bound)
