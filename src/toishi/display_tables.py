"""The texts and tables that the display prints: plain functions from values to text, without a console.

Decisions:
1. Lines of a run fit into 80 columns, since logs and small terminals are read too.
2. A number that does not exist is shown as "-", never as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from toishi.disk import DiskEstimate, estimate_disk
from toishi.explanation.render import signless
from toishi.policy.capabilities import capabilities

if TYPE_CHECKING:
    from toishi.evaluate import Evaluation
    from toishi.session import Session
    from toishi.types import Group

NOTES_ON_EVALUATION = {
    "tokens": "held-out: mean reward [95% interval] on prompts that are never trained on",
    "score": "held-out: share [95% interval] of pairs that are never trained on whose chosen answer gets the higher score",
}
"""By what the model predicts."""
TOO_FEW = "; too few prompts for an interval"
NOTE_ON_STEPS = (
    "reward: mean of the step's answers. mixed: groups whose answers got different rewards; by comparison, only these teach. "
    "The loss says nothing about learning here and is not shown: near 0 is normal. Watch reward and gradient norm."
)
LEADING = {
    "sampled": ("reward", "reward/mean"),
    "written": ("loss", "update/loss"),
    "written_pairs": ("loss", "preference/loss"),
    "mixed": ("loss", "update/loss"),
}
"""By where the answers come from: the column that says how it goes, and its metric."""
NOTES_ON_STEPS = {
    "sampled": NOTE_ON_STEPS,
    "written": "loss: of the step's written answers, before the update; it should fall. Held-out answers say what it is worth.",
    "written_pairs": "loss: of the step's pairs, before the update, 0.693 where nothing is preferred yet; it should fall.",
    "mixed": "loss: how far the step's answers, the model's own and written ones, are from the teacher's; it should fall.",
}
_COLUMNS = (
    ("step", 5),
    ("{leading}", 8),
    ("mixed", 7),
    ("tokens", 8),
    ("entropy", 9),
    ("grad norm", 11),
    ("tokens/s", 10),
    ("seconds", 9),
)


def step_header(source: str = "sampled") -> str:
    """The names of the columns of `step_line`."""
    return "".join(name.format(leading=LEADING[source][0]).rjust(width) for name, width in _COLUMNS)


def step_line(step: int, metrics: Mapping[str, Any], source: str = "sampled") -> str:
    """A step as one line under `step_header`.

    >>> step_line(3, {"reward/mean": 0.25, "groups/mixed": 2, "groups/count": 4, "answers/mean_tokens": 19.06})
    '    3   0.250    2/4    19.1        -          -         -        -'
    """
    cells = (
        str(step),
        number(metrics.get(LEADING[source][1]), 3),
        f"{metrics.get('groups/mixed', '-')}/{metrics.get('groups/count', '-')}",
        number(metrics.get("answers/mean_tokens"), 1),
        number(metrics.get("entropy/mean_nats"), 2),
        number(metrics.get("update/grad_norm"), 3),
        number(metrics.get("tokens/per_s"), 0),
        number(metrics.get("time/step_s"), 1),
    )
    return "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))


def plan(session: Session) -> dict[str, str]:
    """What is about to happen, in words."""
    config, policy = session.config, session.policy
    train, optimizer = config.train, config.optimizer
    rewards = ", ".join(f"{reward.name} (weight {reward.weight:g})" for reward in config.rewards)
    updates = train.num_updates
    return {
        "run": config.description.strip() or config.name,
        "model": f"{config.model.name} ({type(policy.module).__name__}), "
        f"{weights_in_words(policy.num_trained, policy.num_parameters)}, "
        f"computing in {str(policy.compute_dtype).removeprefix('torch.')} on {policy.device}",
        "path": path_in_words(session),
        "task": task_in_words(session.task.name, session.task.num_train, len(session.heldout)) + " for measuring",
        "rewards": rewards,
        "method": f"{config.algorithm.name}, {optimizer.name}, learning rate {optimizer.lr:g}"
        + (f", {updates} updates a step" if updates > 1 else ""),
        "plan": plan_in_words(train.prompts_per_step, train.group_size, train.steps),
        "folder": str(session.writer.folder),
        "disk": f"checkpoints: {disk_of(session).words}",
    }


def disk_of(session: Session) -> DiskEstimate:
    """What the run's checkpoints take, and what is free in its folder."""
    policy = session.policy
    return estimate_disk(
        session.config,
        trained=policy.num_trained,
        weight_bytes=next(iter(policy.masters.values())).element_size(),
        tokenizer=session.tokenizer,
        folder=session.writer.folder,
    )


def plan_in_words(prompts: int, group_size: int, steps: int) -> str:
    """
    >>> plan_in_words(4, 8, 30)
    '4 prompts × 8 answers = 32 answers a step, 30 steps (960 answers in all)'
    """
    a_step = prompts * group_size
    each = f"{counted(prompts, 'prompt')} × {counted(group_size, 'answer')} = {counted(a_step, 'answer')} a step"
    return f"{each}, {counted(steps, 'step')} ({counted(a_step * steps, 'answer')} in all)"


def task_in_words(name: str, num_train: int | None, num_heldout: int) -> str:
    """
    >>> task_in_words("sums", 274, 64), task_in_words("mine", None, 0)
    ('sums: 274 training prompts, 64 held out', 'mine: endless training prompts, 0 held out')
    """
    training = "endless training prompts" if num_train is None else counted(num_train, "training prompt")
    return f"{name}: {training}, {num_heldout} held out"


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "answer"), counted(2000, "answer")
    ('1 answer', '2,000 answers')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def weights_in_words(trained: int, total: int) -> str:
    """
    >>> weights_in_words(134_515_008, 134_515_008)
    'all of its 134.5 million weights are trained'
    >>> weights_in_words(9_216, 139_399_488)
    '9,216 of 139.4 million weights are trained'
    """
    if trained == total:
        return f"all of its {_amount(total)} weights are trained"
    return f"{_amount(trained)} of {_amount(total)} weights are trained"


def _amount(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,}"


def path_in_words(session: Session) -> str:
    """Which parts run fast, or why they cannot."""
    shared, batched = session.settings.shared_prompt, getattr(session.engine, "batched_prompts", False)
    if shared and batched:
        return "fast: a prompt is computed once for its whole group, and prompts are decoded together"
    return capabilities(session.policy.module.config).why  # type: ignore[attr-defined, unused-ignore]


def facts_table(facts: Mapping[str, str]) -> Table:
    """Names in bold with texts beside them, wrapped in their own column."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(name, Text(text))
    return table


def evaluation_line(found: Evaluation) -> str:
    """A held-out measurement in one line, with its change since the first one."""
    text = f"step {found.step} held-out, {mode_in_words(found)}: {span(found.value, found.interval)}"
    if found.change is not None and found.step > 0:
        text += f" (change {span(found.change, found.change_interval, signed=True)})"
    text += f", {counted(found.num_prompts, 'prompt')}"
    text += "".join(f", {name.replace('_', ' ')} {number(value, 3)}" for name, value in found.details.items())
    text += TOO_FEW if found.interval is None and math.isfinite(found.value) else ""
    return text + (f", {found.unscored} answers without a score left out" if found.unscored else "")


def mode_in_words(found: Evaluation) -> str:
    """How the answers of an evaluation were drawn."""
    return f"sampled × {found.samples}" if found.mode == "sampled" else found.mode


def before_after(evaluations: Sequence[Evaluation]) -> Table | None:
    """First and last held-out measurement of each mode, with 95% intervals; None where there is nothing to compare."""
    pairs = [(found[0], found[-1]) for mode in ("greedy", "sampled", "pairs") if len(found := _of_mode(evaluations, mode)) > 1]
    if not pairs:
        return None
    final = pairs[0][1]
    title = f"Held-out prompts ({final.num_prompts}), before and after {counted(final.step, 'step')}"
    title += TOO_FEW if final.interval is None and math.isfinite(final.value) else ""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for _, last in pairs:
        table.add_column(mode_in_words(last), no_wrap=True)
    table.add_row("before", *(span(first.value, first.interval) for first, _ in pairs))
    table.add_row("after", *(span(last.value, last.interval) for _, last in pairs), style="bold")
    table.add_row("change", *(_change(last) for _, last in pairs), end_section=True)
    for label, attribute, digits in (
        ("readable answers", "readable", 3),
        ("reward of those", "value_readable", 3),
        ("cut at the limit", "truncated", 3),
        ("mean tokens", "mean_tokens", 1),
    ):
        moves = [(getattr(first, attribute), getattr(last, attribute)) for first, last in pairs]
        if any(value is not None for move in moves for value in move):
            cells = (f"{number(before, digits)} → {number(after, digits)}" for before, after in moves)
            table.add_row(label, *cells, style="dim")
    for name in final.details:
        cells = (f"{number(first.details.get(name), 3)} → {number(last.details.get(name), 3)}" for first, last in pairs)
        table.add_row(name.replace("_", " "), *cells, style="dim")
    return table


def _of_mode(evaluations: Sequence[Evaluation], mode: str) -> list[Evaluation]:
    return [found for found in evaluations if found.mode == mode]


def _change(last: Evaluation) -> str:
    return "-" if last.change is None else span(last.change, last.change_interval, signed=True)


def interesting(groups: Sequence[Group]) -> Group | None:
    """The group with the widest spread of rewards, or None when every group is tied."""
    mixed = [group for group in groups if not group.is_tied]
    return max(mixed, key=lambda group: group.baseline.std or 0.0 if group.baseline else 0.0) if mixed else None


def span(value: float, interval: Sequence[float] | None, *, signed: bool = False) -> str:
    """A value with its interval, if there is one.

    >>> span(0.5, (0.41, 0.6)), span(0.2, (0.1, 0.3), signed=True)
    ('0.500 [0.410, 0.600]', '+0.200 [+0.100, +0.300]')
    >>> span(float("nan"), (0.0, 0.0)), span(0.5, None), span(-0.0001, None)
    ('-', '0.500', '0.000')
    """
    if not math.isfinite(value):
        return "-"
    form = "+.3f" if signed else ".3f"
    ends = "" if interval is None else f" [{signless(interval[0], form)}, {signless(interval[1], form)}]"
    return signless(value, form) + ends


def number(value: float | int | None, digits: int = 2) -> str:
    """
    >>> number(1.005, 1), number(None), number(-0.004)
    ('1.0', '-', '0.00')
    """
    return "-" if value is None or not math.isfinite(value) else signless(value, f".{digits}f")


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(130), duration(7260)
    ('42 s', '2 min 10 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
