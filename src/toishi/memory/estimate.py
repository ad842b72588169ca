"""How much memory a run needs, by arithmetic from the sizes of the model and what it keeps of a forward pass.

Decisions:
1. An estimate is a sum of named parts with the formula in words, so that a person sees what to make smaller.
2. Weights, gradients and optimizer are there all the time. On top of them come the phases of a step in turn, so only the
   largest of them counts.
3. Answers are taken to be as long as the recipe lets them be: an estimate that a long answer breaks would be worth nothing.
4. Where an update is one forward pass, gradients come as activations go and take their places. Freed places do not always fit:
   about two thirds of the smaller of the two are shared (fitted to measured runs of ten methods, benchmarks/memory.py). Where
   masters are apart, memory for gradients is kept between updates, and both count.
5. A CPU's allocator gives large pieces of memory back and keeps small ones. Of what sampling leaves, the laid-out weights of
   the layers are such pieces; activations, which are larger, do not fit into them.
"""

from __future__ import annotations

from dataclasses import dataclass

from toishi.config import Config
from toishi.engines.packed import LEAST_STEPS
from toishi.memory.shape import ModelShape
from toishi.memory.tensors import Part, optimizer_states, total, training_tensors

LIBRARIES = 700_000_000
"""Python, torch, transformers and pyarrow with their buffers, after a step."""
ENGINE_ROWS = 64
_PREFILL_TOKENS = 2048
_FIRST_ROOM = 64
_PLAIN_HEAD_COPIES = 5
"""fp32 numbers for each plain logit: logits, log-softmax, probabilities and two gradients."""
_ANSWER, _TOKEN = 4000, 300
"""Bytes held of a step's answer, and of each of its tokens: ids, log-probs, entropies and weights as numbers of Python."""
_IN_FLIGHT = 6
"""Numbers of a token's widest layer that exist at the same time inside a layer, fp32, besides what is kept."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What one stage of a step adds to what is always there."""

    name: str
    parts: tuple[Part, ...]

    @property
    def num_bytes(self) -> int:
        return total(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What is needed all the time, and on top of it in each phase.

    budget  packed tokens of a forward pass that this holds for
    """

    always: tuple[Part, ...]
    phases: tuple[Phase, ...]
    budget: int

    @property
    def peak(self) -> Phase:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.num_bytes)

    @property
    def needed(self) -> int:
        """Bytes at the highest moment of a run."""
        return total(self.always) + self.peak.num_bytes


def estimate_memory(config: Config, shape: ModelShape, *, prompt_tokens: int, budget: int) -> MemoryEstimate:
    """The parts of a run's memory.

    prompt_tokens  the longest prompt
    budget         packed tokens of a forward pass
    """
    update = _update(config, shape, prompt_tokens, budget)
    sampling = [Phase("sampling", _sampling(config, shape, prompt_tokens))] if config.algorithm.predicts == "tokens" else []
    phases = [*sampling, Phase("update", update)]
    if config.record.trace_every or config.record.trace_when:
        phases.append(Phase("traced update", (*update, *_tracing(config, shape))))
    if checkpoint := _checkpoint(shape, update):
        phases.append(Phase("checkpoint", checkpoint))
    return MemoryEstimate(always=_always(config, shape), phases=tuple(phases), budget=budget)


def _always(config: Config, shape: ModelShape) -> tuple[Part, ...]:
    answers = config.train.prompts_per_step * config.train.group_size
    held = answers * (_ANSWER + _TOKEN * config.sampling.max_new_tokens)
    parts = (
        Part("libraries", LIBRARIES if shape.on_cpu else 0, "Python, torch and transformers"),
        *training_tensors(config, shape),
        Part("answers of a step", held, f"{answers:,} answers of up to {config.sampling.max_new_tokens:,} tokens"),
    )
    return tuple(part for part in parts if part.num_bytes)


def _sampling(config: Config, shape: ModelShape, prompt_tokens: int) -> tuple[Part, ...]:
    train, most = config.train, config.sampling.max_new_tokens
    rows, prompts = min(train.prompts_per_step * train.group_size, ENGINE_ROWS), min(train.prompts_per_step, ENGINE_ROWS)
    if config.evaluation.prompts:
        rows = max(rows, min(config.evaluation.prompts * max(1, config.evaluation.samples), ENGINE_ROWS))
        prompts = max(prompts, min(config.evaluation.prompts, ENGINE_ROWS))
    at_once = min(prompts, max(1, _PREFILL_TOKENS // prompt_tokens)) * prompt_tokens
    number = 2 * shape.layers * shape.key_value_width
    if shape.on_cpu:
        own = min(_room(most), max(most - 1, 1))
        held = 4 * number * (prompts * prompt_tokens + rows * own)
        words = f"{prompts} prompts × {prompt_tokens:,} and {rows} answers × {own:,} tokens × {shape.layers} layers, fp32"
    else:
        held = shape.compute_bytes * number * rows * (prompt_tokens + most)
        words = f"{rows} answers × {prompt_tokens + most:,} tokens × {shape.layers} layers"
    parts = [
        Part("key-value cache", held + shape.compute_bytes * number * at_once, words),
        Part(
            "prompts and logits",
            shape.compute_bytes * _IN_FLIGHT * at_once * shape.widest + (4 + shape.compute_bytes) * rows * shape.vocabulary,
            f"{at_once:,} prompt tokens a pass; {rows} × {shape.vocabulary:,} logits",
        ),
    ]
    if shape.on_cpu and most >= LEAST_STEPS and shape.linear:
        size, head = shape.compute_bytes, shape.vocabulary * shape.hidden
        parts.append(
            Part("laid-out weights", size * (shape.linear + head), f"{size} bytes a weight of the linear layers and the head")
        )
    return tuple(parts)


def _room(tokens: int) -> int:
    """Places for own tokens: they double when they are used up."""
    room = _FIRST_ROOM
    while room < tokens - 1:
        room *= 2
    return room


def row_tokens(config: Config, prompt_tokens: int, budget: int, *, shared: bool = True, mixed: bool = True) -> int:
    """Tokens of the longest forward pass of an update, as `packing.pack` makes them: one answer is never cut, and a group that
    fits is not split.

    shared, mixed  whether a row may hold several answers, and answers to several prompts

    >>> row_tokens(Config(), prompt_tokens=37, budget=2048), row_tokens(Config(), prompt_tokens=37, budget=1)
    (1623, 100)
    """
    train, answer = config.train, config.sampling.max_new_tokens - 1
    group = prompt_tokens + train.group_size * answer
    if not shared or budget < prompt_tokens + 2 * answer:
        return prompt_tokens + answer
    if budget < group:
        return prompt_tokens + (budget - prompt_tokens) // max(1, answer) * answer
    groups = -(-train.prompts_per_step // train.minibatches)
    return min(groups, budget // group if mixed else 1) * group


def _in_one_row(config: Config, prompt_tokens: int, tokens: int) -> bool:
    """Whether one forward pass takes a whole update. Gradients in the weights' own precision are not there before its end."""
    train, answer = config.train, config.sampling.max_new_tokens - 1
    return tokens >= -(-train.prompts_per_step // train.minibatches) * (prompt_tokens + train.group_size * answer)


def _update(config: Config, shape: ModelShape, prompt_tokens: int, budget: int) -> tuple[Part, ...]:
    tokens = row_tokens(config, prompt_tokens, budget, shared=shape.shared_rows, mixed=shape.mixed_rows)
    kept, size = shape.kept_bytes(tokens), shape.compute_bytes
    words = f"{tokens:,} tokens a forward pass × {shape.kept_per_token / 1e3:,.0f} kB"
    if config.train.gradient_checkpointing:
        kept = kept // shape.layers + shape.layers * tokens * shape.hidden * size
        words = f"{tokens:,} tokens: the inputs of {shape.layers} layers, and one layer computed again"
    if size >= 4 and _in_one_row(config, prompt_tokens, tokens):
        kept -= 2 * min(kept, size * shape.trained) // 3
        words += ", two thirds in places that gradients take later"
    parts = [
        Part("activations", kept, words),
        Part(
            "inside a layer",
            _IN_FLIGHT * tokens * shape.widest * max(size, 2),
            f"{_IN_FLIGHT} × {tokens:,} tokens × {shape.widest:,} numbers in flight",
        ),
    ]
    answers = min(tokens, config.train.prompts_per_step * config.train.group_size * config.sampling.max_new_tokens)
    if not shape.fast_head:
        number = _PLAIN_HEAD_COPIES * answers * shape.vocabulary
        parts.append(Part("logits", 4 * number, f"{_PLAIN_HEAD_COPIES} × {answers:,} tokens × {shape.vocabulary:,}, fp32"))
    if shape.trained == shape.parameters:
        parts.append(
            Part(
                "embeddings' gradient",
                size * shape.vocabulary * shape.hidden,
                f"{shape.vocabulary:,} × {shape.hidden:,} weights",
            )
        )
    if shape.on_cpu and config.sampling.max_new_tokens >= LEAST_STEPS:
        parts.append(Part("left from sampling", size * shape.linear, f"{size} bytes a weight of the linear layers"))
    return tuple(parts)


def _tracing(config: Config, shape: ModelShape) -> tuple[Part, ...]:
    size = max(4, shape.compute_bytes)
    parts = [
        Part(
            "weights before the step",
            (size + shape.compute_bytes) * shape.trained,
            f"{size + shape.compute_bytes} bytes a trained weight, held while a trace is made",
        )
    ]
    if "kl_spike" in config.record.trace_when:
        states = optimizer_states(config.optimizer)
        parts.append(
            Part(
                "weights and optimizer before the step",
                (1 + states) * size * shape.trained,
                f"{(1 + states) * size} bytes a trained weight (record.trace_when has kl_spike)",
            )
        )
        if config.algorithm.needs_critic and config.critic.kind == "separate":
            each = (1 + optimizer_states(config.critic.optimizer)) * size
            words = f"{each} bytes a trained weight of the second model (the same)"
            parts.append(Part("critic before the step", each * shape.trained, words))
    return tuple(parts)


def _checkpoint(shape: ModelShape, update: tuple[Part, ...]) -> tuple[Part, ...]:
    """Masters are written as they are; a frozen weight that computes in 16 bits is widened for the file."""
    frozen = shape.parameters - shape.trained
    if not frozen or shape.compute_bytes >= 4:
        return ()
    left = [Part("left from the update", part.num_bytes, part.formula) for part in update if part.name == "activations"]
    return (
        *(left if shape.on_cpu else []),
        Part("widened weights", 4 * frozen, "4 bytes a frozen weight, while it is written"),
    )
