"""What moved each text in an optimizer update: numbers that add up to its measured change.

    measured = own push + others' pull + terms without advantage + optimizer's memory + weight decay + rounding + rest

Decisions:
1. The change is measured; everything but `rest` is first order. `rest` is what a straight line cannot hold: curvature.
2. The real change of the weights that the model computes with is what texts are moved by. Where it is not the intended one,
   `rounding` says how much. Rounding can take a step away, and it can blow it up: a weight that lies on the border between two
   16-bit numbers, as a tenth of a dequantised model's weights do, goes a whole such number far for the smallest step.
3. Of a step with several updates the first is explained: there ratios are 1, and advantages alone say what pushes. Later ones
   start from weights that those before them made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from toishi.ops import influence as maths
from toishi.ops.influence_bounds import gap, trust
from toishi.record.influence import Arrays, Influence, TextInfluence
from toishi.record.trace import UpdateTotals
from toishi.session import Learner
from toishi.tracing.influence.batches import make_batches
from toishi.tracing.influence.by_reward import reward_parts, shares_by_reward
from toishi.tracing.influence.contract import Step, Sums, contract
from toishi.tracing.influence.coordinates import SEED, Coordinates
from toishi.tracing.influence.factors import NotApartError
from toishi.tracing.influence.layers import Uses, backward_by_layer
from toishi.tracing.influence.rows import Rows, Source, make_rows
from toishi.tracing.influence.tokens import token_slopes
from toishi.tracing.influence.weights import Weight
from toishi.tracing.influence.whole import optimizer_numbers, refusal
from toishi.tracing.watched import Watched
from toishi.types import Group, RolloutId


@dataclass(frozen=True)
class Scene:
    """The update as it was seen, a step's first: who was watched, the masters before it, every text's log-probs on both sides.

    groups   those that the update learned from
    tokens   whether each answer's share is told token by token
    """

    learner: Learner
    groups: Sequence[Group]
    watched: Sequence[Watched]
    first: Mapping[str, Tensor]
    totals: UpdateTotals
    before: Mapping[RolloutId, Sequence[float]]
    after: Mapping[RolloutId, Sequence[float]]
    tokens: bool = False

    @property
    def weights_before(self) -> dict[str, Tensor]:
        """As the model computes with them."""
        return {name: master.to(self.learner.policy.compute_dtype) for name, master in self.first.items()}

    def measured(self, rollout: RolloutId) -> float:
        return math.fsum(self.after[rollout]) - math.fsum(self.before[rollout])


def measure(scene: Scene) -> tuple[Influence, Arrays]:
    """Who moved what. The gradients and the optimizer's state of the update are still there; no weight is changed."""
    learner, policy = scene.learner, scene.learner.policy
    rows = make_rows(scene.watched, scene.groups, learner.settings, scene.before)
    coordinates = Coordinates.draw(policy.masters)
    try:
        sums = _sums(scene, rows, coordinates, side_by_side=True)
    except NotApartError:
        sums = _sums(scene, rows, coordinates, side_by_side=False)
    slopes = _token_slopes(scene, rows) if scene.tokens else {}
    return _Account(scene, rows, sums, coordinates, slopes).both()


def _sums(scene: Scene, rows: Rows, coordinates: Coordinates, *, side_by_side: bool) -> Sums:
    learner, policy = scene.learner, scene.learner.policy
    dtype = next(iter(policy.masters.values())).dtype
    sums = Sums.zeros(rows.num_rows, len(coordinates.positions_I), dtype)
    step = Step(
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

    batches = make_batches(rows, learner.settings.token_budget, policy.device, side_by_side=side_by_side)
    with policy.with_weights(scene.weights_before):
        backward_by_layer(policy.module, batches, finished)
    return sums


def _token_slopes(scene: Scene, rows: Rows) -> Mapping[int, Sequence[float]]:
    """Row of an answer's push -> <∇ log p_t, gamma> of its tokens with loss, gamma before clipping."""
    policy = scene.learner.policy
    ascent = {
        name: torch.zeros_like(master) if master.grad is None else master.grad / -scene.totals.clip_factor
        for name, master in policy.masters.items()
    }
    wanted = sorted({source.row for source in rows.sources.values()})
    with policy.with_weights(scene.weights_before):
        found = token_slopes(policy.module, [rows.passes[row] for row in wanted], ascent)
    return dict(zip(wanted, found, strict=True))


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
    slopes: Mapping[int, Sequence[float]]

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
            num_updates=scene.learner.settings.train.num_updates,
            precision=str(scene.learner.policy.compute_dtype).removeprefix("torch."),
            optimizer=optimizer_numbers(scene.learner),
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
            refused=refusal(survived, sum_error),
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
                parts=shares_by_reward(parts.get(id_, {}), source, self._lift(source)),
                tokens=self._tokens(source),
                measured=measured,
                own=own,
                others=others,
                fixed=known[2],
                history=known[3],
                decay=known[4],
                rounding=linear - math.fsum(known),
                rest=measured - linear,
            )

    @cached_property
    def _gamma(self) -> tuple[Tensor, float]:
        """<g_j, gamma> of every row, and |gamma|²."""
        coefficients_R = _coefficients(self.rows)
        gamma_R = self.sums.products_RR @ coefficients_R
        return gamma_R, float(coefficients_R @ gamma_R)

    def _lift(self, source: Source | None) -> float:
        """What a unit of advantage is worth in shares: w <g_i, gamma> / |gamma|²."""
        gamma_R, whole = self._gamma
        return 0.0 if source is None or whole <= 0 else source.weight * float(gamma_R[source.row]) / whole

    def _tokens(self, source: Source | None) -> tuple[float, ...]:
        """The answer's share by token."""
        if source is None or source.row not in self.slopes or self._gamma[1] <= 0:
            return ()
        one = self.rows.passes[source.row]
        found = dict(zip(one.places, self.slopes[source.row], strict=True))
        lift = source.weight * source.advantage / self._gamma[1]
        return tuple(lift * push * found.get(place, 0.0) for place, push in enumerate(one.pushes))

    def _arrays(self, linear_R: Tensor, texts: Sequence[TextInfluence]) -> Arrays:
        sums, fixed = self.sums, self.rows.fixed
        keep = [row for row in range(self.rows.num_rows) if row != fixed]
        fix_R = self._fixed(sums.products_RR)
        measured = [math.nan] * self.rows.num_rows
        for text in texts:
            measured[text.row] = text.measured
        drawn = self.coordinates.as_drawn
        gradients_RI = drawn(sums.gradients_RI[keep]).double()
        scales_R = gradients_RI.abs().amax(1).clamp_min(1e-300) if gradients_RI.numel() else torch.ones(len(keep)).double()
        fixed_I = torch.zeros_like(sums.mean_I) if fixed is None else drawn(sums.gradients_RI[fixed])
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
            "mean": drawn(sums.mean_I).float(),
            "square": drawn(sums.square_I).float(),
        }
        return {name: value.contiguous().numpy() for name, value in tensors.items()}
