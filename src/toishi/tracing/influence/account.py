"""What moved each text in an optimizer update: numbers that add up to its measured change.

    measured = own push + others' pull + terms without advantage + optimizer's memory + weight decay + rounding + rest

Decisions:
1. The change is measured; everything but `rest` is first order. `rest` is what a straight line cannot hold: curvature.
2. The real change of the weights that the model computes with is what texts are moved by. Where it is not the intended one,
   `rounding` says how much. Rounding can take a step away, and it can blow it up: a weight that lies on the border between two
   16-bit numbers, as a tenth of a dequantised model's weights do, goes a whole such number far for the smallest step.
3. Only a step's single update is explained: with several, ratios differ from 1 and the weights between them are gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.ops import influence as maths
from toishi.ops.influence_bounds import advantage_parts, gap, trust
from toishi.record.influence import Arrays, Influence, OptimizerNumbers, RewardShare, TextInfluence
from toishi.record.trace import UpdateTotals
from toishi.session import Learner
from toishi.tracing.influence.contract import Step, Sums, Weight, contract
from toishi.tracing.influence.coordinates import SEED, Coordinates
from toishi.tracing.influence.layers import Uses, backward_by_layer
from toishi.tracing.influence.rows import Rows, Source, make_rows
from toishi.tracing.watched import Watched
from toishi.types import Group, Rollout, RolloutId

LEAST_SURVIVED, MOST_SURVIVED = 0.5, 2.0
LARGEST_SUM_ERROR = 0.25
REST = "rest"


@dataclass(frozen=True)
class Scene:
    """The update as it was seen: who was watched, the masters before it, and every text's log-probs before and after."""

    learner: Learner
    groups: Sequence[Group]
    watched: Sequence[Watched]
    first: Mapping[str, Tensor]
    totals: UpdateTotals
    before: Mapping[RolloutId, Sequence[float]]
    after: Mapping[RolloutId, Sequence[float]]

    def measured(self, rollout: RolloutId) -> float:
        return math.fsum(self.after[rollout]) - math.fsum(self.before[rollout])


def measure(scene: Scene) -> tuple[Influence, Arrays]:
    """Who moved what. The gradients and the optimizer's state of the update are still there; no weight is changed."""
    learner, policy = scene.learner, scene.learner.policy
    rows = make_rows(scene.watched, scene.groups, learner.settings, scene.before)
    coordinates = Coordinates.draw(policy.masters)
    dtype = next(iter(policy.masters.values())).dtype
    sums = Sums.zeros(rows.num_rows, len(coordinates.positions_I), dtype)
    step = Step(
        rows=[one.row for one in rows.passes],
        coefficients_R=_coefficients(rows),
        options=learner.optimizer.param_groups[0],
        clip_factor=scene.totals.clip_factor,
        coordinates=coordinates,
    )

    after = {name: master.detach() for name, master in policy.masters.items()}  # the masters themselves are about to step back

    def finished(name: str, uses: Uses) -> None:
        master = policy.masters[name]
        state = learner.optimizer.state.get(master, {})
        weight = Weight(name, scene.first[name], after[name], master.grad, state, policy.compute_dtype)
        contract(weight, uses, step, sums)

    with policy.with_weights({name: master.to(policy.compute_dtype) for name, master in scene.first.items()}):
        backward_by_layer(policy.module, rows.passes, finished)
    return _Account(scene, rows, sums, coordinates).both()


def _coefficients(rows: Rows) -> Tensor:
    found = torch.zeros(rows.num_rows, dtype=torch.float64)
    for source in rows.sources.values():
        found[source.row] += source.weight * source.advantage
    if rows.fixed is not None:
        found[rows.fixed] = 1.0
    return found


@dataclass(frozen=True)
class _Account:
    scene: Scene
    rows: Rows
    sums: Sums
    coordinates: Coordinates

    def both(self) -> tuple[Influence, Arrays]:
        scene, sums, rows = self.scene, self.sums, self.rows
        sources = list(rows.sources.values())
        places = [source.row for source in sources]
        c_B = torch.tensor([source.weight * source.advantage for source in sources], dtype=torch.float64)
        fix_R = self._fixed(sums.products_RR)
        fix_fix = 0.0 if rows.fixed is None else float(sums.products_RR[rows.fixed, rows.fixed])
        products_BB = sums.products_RR[places][:, places]
        share_B, fixed_share = maths.shares(products_BB, c_B, fix_R[places], fix_fix)
        linear_R = torch.stack(list(sums.effects.values())).sum(0)
        texts = tuple(self._texts(linear_R, dict(zip(rows.sources, share_B.tolist(), strict=True))))
        measured_T = torch.tensor([text.measured for text in texts], dtype=torch.float64)
        largest = float(measured_T.abs().max()) if len(texts) else 0.0
        survived = sums.step_common / sums.step_intended if sums.step_intended > 0 else None
        sum_error = math.sqrt(sums.off / sums.whole) if sums.whole > 0 else math.sqrt(sums.off)
        influence = Influence(
            step=scene.groups[0].rollouts[0].id.step,
            update=0,
            precision=str(scene.learner.policy.compute_dtype).removeprefix("torch."),
            optimizer=_optimizer(scene.learner),
            gradient_norm=scene.totals.gradient_norm,
            norm_from_products=maths.direction_norm(products_BB, c_B, fix_R[places], fix_fix),
            clip_factor=scene.totals.clip_factor,
            sum_error=sum_error,
            fixed_share=fixed_share,
            survived=survived,
            changed_share=sums.changed / max(1, self.coordinates.total),
            step_norm=math.sqrt(sums.step_real),
            gap=gap(measured_T, torch.tensor([text.linear for text in texts], dtype=torch.float64)),
            largest=largest,
            trust=trust(largest),
            refused=_refused(survived, sum_error),
            num_coordinates=self.coordinates.total,
            num_sampled=len(self.coordinates.positions_I),
            complete=self.coordinates.complete,
            seed=SEED,
            matrices=tuple(self.coordinates.offsets),
            notes=(),
            texts=texts,
        )
        return influence, self._arrays(linear_R, texts)

    def _fixed(self, table_RR: Tensor) -> Tensor:
        return torch.zeros(self.rows.num_rows, dtype=torch.float64) if self.rows.fixed is None else table_RR[:, self.rows.fixed]

    def _texts(self, linear_R: Tensor, share: Mapping[RolloutId, float]) -> Iterator[TextInfluence]:
        scale = self.scene.totals.clip_factor
        fixed_R = scale * self._fixed(self.sums.metric_RR)
        parts = {id_: part for group in self.scene.groups for id_, part in reward_parts(group, self.rows.sources).items()}
        pulled = {
            id_: scale * source.weight * source.advantage * self.sums.metric_RR[:, source.row]
            for id_, source in self.rows.sources.items()
        }
        for item in self.scene.watched:
            id_ = item.rollout.id
            if id_ not in self.rows.texts:
                continue
            row, source = self.rows.texts[id_], self.rows.sources.get(id_)
            own = float(pulled[id_][row]) if id_ in pulled else 0.0
            others = math.fsum(float(pull[row]) for other, pull in pulled.items() if other != id_)
            known = (own, others, float(fixed_R[row]), float(self.sums.memory_R[row]), float(self.sums.decay_R[row]))
            measured, linear = self.scene.measured(id_), float(linear_R[row])
            advantage = 0.0 if source is None else source.advantage
            yield TextInfluence(
                kind=item.kind,
                group=id_.group if item.inside else None,
                member=id_.member if item.kind == "rollout" else None,
                row=row,
                source=None if source is None else source.row,
                advantage=advantage,
                weight=0.0 if source is None else source.weight,
                coefficient=0.0 if source is None else source.weight * advantage,
                share=share.get(id_, 0.0),
                parts=_shares_by_reward(parts.get(id_, {}), source, self._lift(source)),
                measured=measured,
                own=own,
                others=others,
                fixed=known[2],
                history=known[3],
                decay=known[4],
                rounding=linear - math.fsum(known),
                rest=measured - linear,
            )

    def _lift(self, source: Source | None) -> float:
        """What a unit of advantage is worth in shares: w <g_i, gamma> / |gamma|²."""
        if source is None:
            return 0.0
        gamma_R = self.sums.products_RR @ _coefficients(self.rows)
        whole = float(_coefficients(self.rows) @ gamma_R)
        return source.weight * float(gamma_R[source.row]) / whole if whole > 0 else 0.0

    def _arrays(self, linear_R: Tensor, texts: Sequence[TextInfluence]) -> Arrays:
        sums, fixed = self.sums, self.rows.fixed
        keep = [row for row in range(self.rows.num_rows) if row != fixed]
        fix_R = self._fixed(sums.products_RR)
        measured = [math.nan] * self.rows.num_rows
        for text in texts:
            measured[text.row] = text.measured
        gradients_RI = sums.gradients_RI[keep].double()
        scales_R = gradients_RI.abs().amax(1).clamp_min(1e-300) if gradients_RI.numel() else torch.ones(len(keep)).double()
        fixed_I = torch.zeros_like(sums.mean_I) if fixed is None else sums.gradients_RI[fixed]
        fix_fix = 0.0 if fixed is None else float(fix_R[fixed])
        tensors = {
            "products": sums.products_RR[keep][:, keep],
            "metric": sums.metric_RR[keep][:, keep],
            "fixed_products": torch.cat([fix_R[keep], torch.tensor([fix_fix], dtype=torch.float64)]),
            "history": sums.memory_R[keep],
            "decay": sums.decay_R[keep],
            "measured": torch.tensor(measured, dtype=torch.float64)[keep],
            "linear": linear_R[keep],
            "effects": torch.stack([sums.effects[name] for name in self.coordinates.offsets])[:, keep],
            "coordinates": self.coordinates.positions_I,
            "gradients": (gradients_RI / scales_R[:, None]).half(),
            "scales": scales_R,
            "fixed_gradient": fixed_I.float(),
            "mean": sums.mean_I.float(),
            "square": sums.square_I.float(),
        }
        return {name: value.contiguous().numpy() for name, value in tensors.items()}


def _refused(survived: float | None, sum_error: float) -> str:
    if survived is None:
        return "the update asked for no change"
    if sum_error > LARGEST_SUM_ERROR:
        return (
            f"the gradients of the texts do not add up to the update's gradient (off by {sum_error:.1%}): this model computes "
            "a text on its own otherwise than the update did"
        )
    if survived < LEAST_SURVIVED:
        return (
            f"only {survived:.0%} of the intended step is in the stored weights: the rest was lost in rounding, so what moved "
            "is chance. Raise optimizer.lr, or set model.dtype=float32"
        )
    if survived > MOST_SURVIVED:
        return (
            f"the weights that the model computes with went {survived:.1f} times as far along the step as intended: they are "
            "rounded, and many lay on the border between two numbers, so what moved is mostly rounding. Raise optimizer.lr, or "
            "set model.dtype=float32"
        )
    return ""


def _optimizer(learner: Learner) -> OptimizerNumbers:
    options, optimizer = learner.optimizer.param_groups[0], learner.optimizer
    adam = "betas" in options
    counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    return OptimizerNumbers(
        name=type(optimizer).__name__.lower(),
        lr=float(options["lr"]),
        weight_decay=float(options["weight_decay"]),
        max_grad_norm=learner.settings.optimizer.max_grad_norm,
        beta1=options["betas"][0] if adam else 0.0,
        beta2=options["betas"][1] if adam else 0.0,
        eps=options["eps"] if adam else 0.0,
        count=int(max(counts, default=0.0)),
        momentum=float(options.get("momentum", 0.0)),
    )


def reward_parts(group: Group, sources: Mapping[RolloutId, Source]) -> dict[RolloutId, dict[str, float]]:
    """Each answer's advantage by reward (see `ops.influence_bounds.advantage_parts`); `rest` is what the rule leaves over."""
    members = [rollout for rollout in group.rollouts if rollout.id in sources and rollout.reward is not None]
    names = list(dict.fromkeys(score.reward for rollout in members for score in rollout.scores))
    if not names or any(isinstance(rollout.advantage, tuple) for rollout in members):
        return {}
    parts_GK = torch.tensor([[_earned(rollout, name) for name in names] for rollout in members], dtype=torch.float64)
    advantages_G = torch.tensor([sources[rollout.id].advantage for rollout in members], dtype=torch.float64)
    split_GK, left_G = advantage_parts(parts_GK, advantages_G)
    return {
        rollout.id: dict(zip([*names, REST], [*split, left], strict=True))
        for rollout, split, left in zip(members, split_GK.tolist(), left_G.tolist(), strict=True)
    }


def _earned(rollout: Rollout, name: str) -> float:
    return math.fsum(score.contribution or 0.0 for score in rollout.scores if score.reward == name)


def _shares_by_reward(parts: Mapping[str, float], source: Source | None, lift: float) -> tuple[RewardShare, ...]:
    if source is None:
        return ()
    least = 1e-9 * max(1.0, abs(source.advantage))
    return tuple(
        RewardShare(reward=name, advantage=part, share=part * lift)
        for name, part in parts.items()
        if name != REST or abs(part) > least
    )
