"""All links of one group or one answer of a recorded step, in order, each with its check."""

from __future__ import annotations

import json
from dataclasses import replace

from toishi.errors import ConfigError
from toishi.explanation.chain.advantages import adopted, advantage_link, baseline_link, groups_again
from toishi.explanation.chain.beside import sft_link
from toishi.explanation.chain.effect import effect_link
from toishi.explanation.chain.evidence import Evidence, read_step
from toishi.explanation.chain.gradient import change_link, gradient_link
from toishi.explanation.chain.headlines import headlines
from toishi.explanation.chain.influence import influence_link
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.scores import reward_link, scores_link
from toishi.explanation.chain.voice import Voice
from toishi.explanation.chain.weights import shown_update, weights_link
from toishi.explanation.page.markup import literal
from toishi.record import Run
from toishi.types import Update


def explain_chain(
    run: Run, step: int, *, group: int | None = None, member: int | None = None, update: int | None = None, language: str = "en"
) -> Chain:
    """The chain of a step, seen from one group and, with `member`, from one answer of it.

    Without `group` both are chosen: those with the largest pushes in the step's first updates.
    update    which optimizer update is shown; by default the first that computed the group
    language  of `headlines` and of what the checks say
    Raises RecordError when the step is not on record or damaged, ConfigError for a group, member or update that it has not.
    """
    evidence = read_step(run, step)
    chosen = group is None
    if group is None:
        if member is not None:
            raise ConfigError(f"member {member} of which group? Name it as well: --group K --member {member}")
        group, member = largest_pushes(evidence)
    _require(evidence, group, member)
    return build_chain(replace(evidence, number=group), member=member, update=update, voice=Voice.of(language), chosen=chosen)


def build_chain(evidence: Evidence, *, member: int | None, update: int | None, voice: Voice, chosen: bool = False) -> Chain:
    """The chain from what is on record."""

    def how(name: str) -> str:
        return voice.say(f"how.{name}")

    again = groups_again(evidence)
    mine = next(group for group in again if group.rollouts[0].id.group == evidence.number)
    shown = shown_update(evidence, update)
    absent = evidence.absent
    if shown is not None and shown.streams and "weights" not in absent:
        weights = weights_link(evidence, adopted(again, evidence), shown, how("weights"))
    else:
        weights = None
    chain = Chain(
        folder=evidence.folder,
        step=evidence.report.step,
        group=evidence.number,
        member=member,
        num_prompts=len(evidence.report.groups),
        num_answers=sum(len(group.rollouts) for group in evidence.report.groups),
        chosen=chosen and (not absent or any(stream.token_weight for one in evidence.report.updates for stream in one.streams)),
        algorithm=evidence.algorithm.name,
        prompt_id=evidence.group.prompt.id,
        prompt=evidence.group.prompt.shown,
        gold="" if evidence.group.prompt.gold is None else json.dumps(evidence.group.prompt.gold, ensure_ascii=False),
        headlines=(),
        scores=scores_link(evidence, how("scores")),
        reward=reward_link(evidence, how("reward")),
        baseline=baseline_link(evidence, mine, how("baseline")),
        advantage=advantage_link(evidence, again, how("advantage")),
        weights=weights,
        gradient=None if "gradient" in absent else gradient_link(evidence, how("gradient")),
        change=change_link(evidence, shown, how("change")) if shown is not None and "change" not in absent else None,
        effect=None if "effect" in absent else effect_link(evidence, mine, how("effect")),
        sft=sft_link(evidence, how("sft")),
        influence=influence_link(evidence.folder, evidence.report.step, evidence.number),
        missing=(),
        broken=None,
        absent=absent,
    )
    broken = next((check.name for check in chain.checks if not check.ok), None)
    chain = replace(chain, missing=tuple(_missing(chain, evidence, shown, voice)), broken=broken)
    return replace(chain, headlines=headlines(chain, voice))


def largest_pushes(evidence: Evidence) -> tuple[int, int]:
    """The group with the largest sum of |token weight| in the first update it took part in, and its answer with the largest."""
    pushes: dict[tuple[int, int], float] = {}
    for update in evidence.report.updates:
        for stream in update.streams:
            pushes.setdefault((stream.rollout.group, stream.rollout.member), sum(map(abs, stream.token_weight)))
    if not pushes:
        first = evidence.report.groups[0].rollouts[0].id
        return first.group, first.member
    groups: dict[int, float] = {}
    for (group, _), push in pushes.items():
        groups[group] = groups.get(group, 0.0) + push
    best = max(groups, key=lambda group: groups[group])
    return max((key for key in pushes if key[0] == best), key=lambda key: pushes[key])


def _require(evidence: Evidence, group: int, member: int | None) -> None:
    numbers = [found.rollouts[0].id.group for found in evidence.report.groups]
    if group not in numbers:
        raise ConfigError(f"step {evidence.report.step} has no group {group}; it has groups {numbers[0]} to {numbers[-1]}")
    members = [rollout.id.member for rollout in replace(evidence, number=group).rollouts]
    if member is not None and member not in members:
        raise ConfigError(f"group {group} of step {evidence.report.step} has no member {member}; it has 0 to {members[-1]}")


def _missing(chain: Chain, evidence: Evidence, shown: Update | None, voice: Voice) -> list[str]:
    """Why links are not there, and how to get them."""
    place = {"folder": chain.folder, "step": chain.step, "group": chain.group}
    said: list[str] = []

    def tell(key: str) -> None:
        said.append(voice.say(f"missing.{key}", **place))

    if evidence.source is not None:
        who, missing = evidence.source.trained_by, evidence.source.missing
        named = ((voice.say(f"link.{name}"), literal(why)) for name, why in missing.items())
        said += [voice.say("missing.absent", link=link, why=why, who=literal(who)) for link, why in named]
        return said + [literal(note) for note in evidence.source.notes]
    if chain.weights is None:
        tell("no_update" if shown is None else "no_streams")
    if evidence.trace is None:
        tell("no_trace")
        return said
    if chain.change is None:
        tell("no_change")
    contrast = evidence.trace.contrast
    if contrast is not None and contrast.group != chain.group:
        said.append(voice.say("missing.other_group", other=contrast.group, **place))
    elif contrast is None:
        tied = chain.baseline.tied or chain.weights is None
        tell("nothing_to_contrast" if tied else "no_contrast")
    return said
