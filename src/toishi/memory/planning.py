"""The largest micro-batch that fits, and what to change when none does.

Decisions:
1. A smaller micro-batch feeds prompts again and makes products narrower, so it is taken only where memory asks for it. The
   usual one on a CPU is a trade as well: 2,048 tokens were measured 8% faster with long prompts, and need a third of a GB more
   with 135 million weights.
2. A twentieth of what can be had is left free: the estimate is not exact, and others live on the machine.
3. Remedies are tried on the same estimate, one at a time: what each is said to lower is what the estimate says, and one that
   lowers nothing is not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toishi.config import Config
from toishi.errors import OutOfMemoryError
from toishi.memory.estimate import MemoryEstimate, estimate_memory, row_tokens
from toishi.memory.methods import MethodMemory, adapted, by_method, this_recipe
from toishi.memory.shape import ModelShape
from toishi.memory.tensors import total

USUAL_BUDGET = 1280
DEVICE_BUDGET = 16384
_LEAST_BUDGET = 64
_MARGIN = 0.05
_WORTH_NAMING = 0.01


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the recipe, and how many bytes less it needs at its highest."""

    change: str
    saves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What a run will need, with the micro-batch that was chosen.

    reachable  bytes that this process could hold; None where the system does not say
    why        how the micro-batch came about
    remedies   what would lower it, by effect
    kept       the models with all that training keeps for their weights; `methods`: the same by other methods
    """

    estimate: MemoryEstimate
    reachable: int | None
    why: str
    remedies: tuple[Remedy, ...]
    kept: MethodMemory
    methods: tuple[MethodMemory, ...]

    @property
    def micro_batch_tokens(self) -> int:
        return self.estimate.budget

    @property
    def fits(self) -> bool | None:
        """None when what can be had is unknown."""
        return None if self.reachable is None else self.estimate.needed <= self.reachable

    def as_record(self) -> dict[str, Any]:
        """In plain values what does not stand in a field."""
        found = self.estimate
        return {
            "micro_batch_tokens": self.micro_batch_tokens,
            "needed": found.needed,
            "fits": self.fits,
            "peak": found.peak.name,
            "kept": self.kept.as_record(),
            "methods": [method.as_record() for method in self.methods],
            "by_phase": {phase.name: total(found.always) + phase.num_bytes for phase in found.phases},
        }

    def require(self) -> None:
        """Raises OutOfMemoryError when it does not fit."""
        if self.fits is False:
            raise OutOfMemoryError(self.refusal)

    @property
    def refusal(self) -> str:
        """What is needed, what there is, and what to change."""
        found = self.estimate
        largest = sorted((*found.always, *found.peak.parts), key=lambda part: -part.num_bytes)[:3]
        named = ", ".join(f"{part.name} {part.num_bytes / 1e9:.2f}" for part in largest)
        return (
            f"not enough memory: this run needs about {found.needed / 1e9:.2f} GB at its highest ({found.peak.name}; largest: "
            f"{named}), and {(self.reachable or 0) / 1e9:.2f} GB can be had here. {remedies_in_words(self.remedies)}"
        )


def remedies_in_words(remedies: tuple[Remedy, ...]) -> str:
    """One sentence, largest effect first.

    >>> remedies_in_words((Remedy("train adapters: model.lora={}", 1_600_000_000),))
    'What would lower it: train adapters: model.lora={} (-1.60 GB)'
    """
    if not remedies:
        return "Nothing in the recipe would lower it: take a smaller model, or a machine with more memory"
    listed = "; ".join(f"{remedy.change} (-{remedy.saves / 1e9:.2f} GB)" for remedy in remedies)
    return f"What would lower it: {listed}"


def fixed_budget(config: Config, device: str = "cpu") -> int:
    """The stated train.micro_batch_tokens, or what 'auto' takes where memory is no question.

    >>> fixed_budget(Config())
    1280
    """
    stated = config.train.micro_batch_tokens
    usual = DEVICE_BUDGET if device.startswith("cuda") else USUAL_BUDGET
    return usual if stated == "auto" else stated


def plan_memory(config: Config, shape: ModelShape, *, prompt_tokens: int, reachable: int | None) -> MemoryPlan:
    """Choose the micro-batch where the recipe leaves it open, and find remedies where nothing fits.

    prompt_tokens  the longest prompt
    reachable      bytes that this process could hold altogether (`reachable_memory`)
    """
    most = fixed_budget(config, shape.device)
    is_open = config.train.micro_batch_tokens == "auto"
    room = None if reachable is None else round(reachable * (1 - _MARGIN))

    def estimate(budget: int) -> MemoryEstimate:
        return estimate_memory(config, shape, prompt_tokens=prompt_tokens, budget=budget)

    found = estimate(most)
    if not is_open:
        why = "as train.micro_batch_tokens says"
    elif room is None:
        why = "usual; free memory is unknown here"
    elif found.needed <= room:
        why = "the largest that pays here, and it fits"
    else:
        budgets = _smaller(config, prompt_tokens, most)
        found = next((smaller for smaller in map(estimate, budgets) if smaller.needed <= room), estimate(budgets[-1]))
        fits = found.needed <= room
        why = "the largest that fits" if fits else "the smallest there is"
    lowering = tuple(remedies(config, shape, prompt_tokens, found))
    kept, methods = this_recipe(config, shape), by_method(config, shape)
    return MemoryPlan(estimate=found, reachable=reachable, why=why, remedies=lowering, kept=kept, methods=methods)


def _smaller(config: Config, prompt_tokens: int, most: int) -> list[int]:
    """Budgets by halves, down to a row of one answer."""
    one = prompt_tokens + config.sampling.max_new_tokens - 1
    found = []
    while most > max(one, _LEAST_BUDGET):
        most //= 2
        found.append(most)
    return found or [most]


def remedies(config: Config, shape: ModelShape, prompt_tokens: int, found: MemoryEstimate) -> list[Remedy]:
    """Changes of the recipe with what each lowers by itself, largest first."""
    known = []
    for words, changed, changed_shape, budget in _changes(config, shape, prompt_tokens, found.budget):
        after = estimate_memory(changed, changed_shape, prompt_tokens=prompt_tokens, budget=budget)
        known.append(Remedy(words, found.needed - after.needed))
    worth = [remedy for remedy in known if remedy.saves >= _WORTH_NAMING * found.needed]
    return sorted(worth, key=lambda remedy: -remedy.saves)


def _changes(
    config: Config, shape: ModelShape, prompt_tokens: int, budget: int
) -> Iterator[tuple[str, Config, ModelShape, int]]:
    """(in words, the recipe after it, the model after it, the micro-batch after it)."""
    train, size = config.train, config.sampling.max_new_tokens
    one = prompt_tokens + size - 1
    smaller = max(budget // 4, one)
    if smaller < row_tokens(config, prompt_tokens, budget):
        yield f"train.micro_batch_tokens={smaller}", config, shape, smaller
    if not train.gradient_checkpointing:
        yield "train.gradient_checkpointing=true", _with(config, "train", gradient_checkpointing=True), shape, budget
    if config.model.lora is None and config.model.adapter is None:
        yield "train adapters: model.lora={}", config, adapted(shape), budget
    if config.algorithm.needs_critic and config.critic.kind == "separate":
        yield "critic.kind=shared", _with(config, "critic", kind="shared"), shape, budget
    if config.optimizer.name == "adamw":
        yield "optimizer.name=sgd (with a larger optimizer.lr)", _with(config, "optimizer", name="sgd"), shape, budget
    if shape.compute_bytes == 4:
        narrow = replace(
            shape, compute_bytes=2, kept_per_token=shape.kept_per_token / 2, kept_per_square=shape.kept_per_square / 2
        )
        yield "model.dtype=bfloat16", config, narrow, budget
    if train.prompts_per_step > 1:
        half = train.prompts_per_step // 2
        yield f"train.prompts_per_step={half}", _with(config, "train", prompts_per_step=half), shape, budget
    if train.group_size > 2:
        half = train.group_size // 2
        yield f"train.group_size={half}", _with(config, "train", group_size=half), shape, budget
    if size > 1:
        yield f"sampling.max_new_tokens={size // 2}", _with(config, "sampling", max_new_tokens=size // 2), shape, budget
    if config.record.trace_every or config.record.trace_when:
        untraced = _with(config, "record", trace_every=0, trace_when=())
        yield "no traces: record.trace_every=0 record.trace_when=[]", untraced, shape, budget


def _with(config: Config, section: str, **values: Any) -> Config:
    """The recipe with some values of a section changed."""
    changed: Mapping[str, Any] = {section: getattr(config, section).model_copy(update=values)}
    return config.model_copy(update=changed)
