"""How each reward enters an answer's reward: plain values, stated in a recipe beside the reward's own options.

Decisions:
1. A gate looks at what another reward said, before that one's weight. Gates may follow one another; a circle is refused.
2. A cap bounds weight × value, which is what enters the sum, over all parts that a reward has of one answer; `noise` is in the
   reward's own units, before the weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toishi.errors import ConfigError, nearest

OnFailure = Literal["drop_answer", "drop_reward"]


class Gate(BaseModel):
    """Pay only where another reward is high enough."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    reward: str = Field(description="name of the reward that decides")
    at_least: float = Field(default=1.0, description="the gate is open where that reward's value is at least this")


class Term(BaseModel):
    """One reward's part of the sum."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = Field(description="which reward")
    weight: float = Field(default=1.0, description="factor in the weighted sum")
    gate: Gate | None = Field(
        default=None, description="pay this reward only where another one passes: {reward: number, at_least: 1.0}"
    )
    cap: Annotated[tuple[float, float] | None, Field(strict=False)] = Field(
        default=None, description="[low, high]: weight x value is held inside, summed over the parts of an answer"
    )
    noise: float = Field(
        default=0.0,
        ge=0,
        description="standard deviation of the value when the same answer is judged again; a group whose values differ no "
        "more than that explains gets its mean",
    )
    on_failure: OnFailure = Field(
        default="drop_answer",
        description="drop_answer: an answer that it failed on has no reward; drop_reward: its whole group is paid without it",
    )
    retries: int = Field(default=0, ge=0, le=10, description="so many further tries for the answers that it failed on")
    max_failed_share: float | None = Field(
        default=None, ge=0, le=1, description="stop when it fails on more than this share of a step; null = health's"
    )

    @field_validator("gate", mode="before")
    @classmethod
    def _gate_by_name(cls, gate: Any) -> Any:
        if isinstance(gate, str):
            raise ValueError(f"a gate names the reward that decides: write {{reward: {gate}}}")
        return gate

    @field_validator("cap")
    @classmethod
    def _low_first(cls, cap: tuple[float, float] | None) -> tuple[float, float] | None:
        if cap is not None and cap[0] > cap[1]:
            raise ValueError("cap is [low, high] with low <= high")
        return cap


OPTIONS = tuple(name for name in Term.model_fields if name != "name")
"""The keys of a reward in a recipe that say how it enters the sum; all others are the reward's own options."""


def term_of(section: Mapping[str, Any]) -> Term:
    """The part of a reward's section of a configuration that says how it enters the sum.

    >>> term_of({"name": "style", "weight": 0.5, "rubric": "style.yaml"}).weight
    0.5
    """
    return Term.model_validate({key: section[key] for key in ("name", *OPTIONS) if key in section})


def named(terms: Sequence[Term | float], names: Sequence[str]) -> tuple[Term, ...]:
    """The terms of rewards that go by these names, in the same order; a number is a weight and nothing else.

    A reward made from a function is called after the function, not after its section.
    Raises ValueError when there is not one term for each name.

    >>> named([2.0, Term(name="function", cap=(0, 1))], ["right", "style"])[1].name
    'style'
    """
    plain = [
        Term(name=name, weight=term) if isinstance(term, int | float) else term for term, name in zip(terms, names, strict=True)
    ]
    called = {term.name: name for term, name in zip(plain, names, strict=True)}

    def renamed(term: Term) -> Term:
        gate = term.gate
        if gate is not None:
            gate = gate.model_copy(update={"reward": called.get(gate.reward, gate.reward)})
        values = {key: getattr(term, key) for key in OPTIONS}
        return Term(**values | {"name": called[term.name], "gate": gate})

    return tuple(renamed(term) for term in plain)


def in_order(terms: Sequence[Term]) -> tuple[Term, ...]:
    """`terms` so that each follows the one that its gate looks at.

    Raises ConfigError for a gate that names no reward of the list, or gates that form a circle.

    >>> style, right = Term(name="style", gate=Gate(reward="right")), Term(name="right")
    >>> [term.name for term in in_order([style, right])]
    ['right', 'style']
    """
    by_name = {term.name: term for term in terms}
    placed: dict[str, Term] = {}
    for term in terms:
        chain = list(_gates(term, by_name))
        placed.update((name, by_name[name]) for name in reversed(chain) if name not in placed)
    return tuple(placed.values())


def _gates(term: Term, by_name: Mapping[str, Term]) -> Iterable[str]:
    """The term's name, that of its gate, that of its gate's gate, and so on."""
    seen = [term.name]
    yield term.name
    while term.gate is not None:
        name = term.gate.reward
        if name not in by_name:
            raise ConfigError(f"reward '{term.name}': gate.reward: there is no reward '{name}'; {nearest(name, by_name)}")
        if name in seen:
            circle = " -> ".join([*seen[seen.index(name) :], name])
            raise ConfigError(f"rewards: gates form a circle, so none of them could be decided: {circle}; open one of them")
        seen.append(name)
        yield name
        term = by_name[name]
