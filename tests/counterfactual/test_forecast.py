"""Forecasts against the step done again from the same weights, on tiny models in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.making import settings
from tests.tiny import tiny_model
from tests.tracing.test_influence import explain, groups_of, logprobs
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.counterfactual.advantages import changed_groups
from toishi.counterfactual.change import Change, change_of
from toishi.counterfactual.forecast import Forecast, forecast
from toishi.counterfactual.pushes import Pushes, changed_pushes, token_weights
from toishi.counterfactual.recorded import Measured
from toishi.policy.policy import Policy
from toishi.session import Learner
from toishi.types import Group, RolloutId
from toishi.update import UpdateSettings, update_policy

CHANGE = change_of({"right:1": 1.4, "right:3": -0.5}, [2])
KL = algorithm("grpo").model_copy(update={"kl": "k3", "kl_coef": 0.3})


@dataclass
class Both:
    """A change forecast, and really made."""

    forecast: Forecast
    pushes: Pushes
    real_T: Tensor
    measured_T: Tensor

    @property
    def error(self) -> float:
        """Relative to the new change."""
        apart_T = self.forecast.changes_T - self.real_T
        return float(torch.linalg.vector_norm(apart_T) / torch.linalg.vector_norm(self.real_T))


def start(name: str, lr: float, row: Algorithm | str, limit: float | None, **options: Any) -> tuple[Learner, UpdateSettings]:
    policy = Policy(tiny_model("gpt2", dtype=torch.float64), compute_dtype=torch.float64)
    plain = settings(row, lr=lr)
    chosen = replace(plain, optimizer=plain.optimizer.model_copy(update={"max_grad_norm": limit}))
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    optimizer = kinds[name](list(policy.masters.values()), lr=lr, **{"weight_decay": 0.0} | options)
    return Learner(policy, None, None, None, optimizer, chosen), chosen  # type: ignore[arg-type]


def warmed(learner: Learner, chosen: UpdateSettings, groups: Sequence[Group], warm: int) -> None:
    for step in range(warm):
        update_policy(learner.policy, learner.optimizer, groups[step % 2 :][:1], chosen, step=step + 1)


def both(
    name: str,
    lr: float,
    row: Algorithm | str = "grpo",
    *,
    change: Change = CHANGE,
    new_row: Algorithm | None = None,
    limit: float | None = 0.5,
    warm: int = 0,
    **options: Any,
) -> Both:
    learner, chosen = start(name, lr, row, limit, **options)
    groups = groups_of(row)
    warmed(learner, chosen, groups, warm)
    before = {each.id: logprobs(learner.policy, each).tolist() for group in groups for each in group.rollouts}
    done = explain(learner, groups, chosen)
    measured = Measured.of(done.influence, done.arrays)
    new = replace(chosen, algorithm=new_row or chosen.algorithm)
    changed = changed_groups(groups, 0, change, new.algorithm, terms=(), ranges={}, max_new_tokens=8)
    pushes = changed_pushes(done.influence, len(measured.products_RR), (groups, chosen), (changed, new), before)
    found = forecast(measured, pushes, limit) if not pushes.beyond else forecast(measured, measured.pushes, limit)
    again, _ = start(name, lr, row, limit, **options)
    warmed(again, chosen, groups, warm)
    first = [logprobs(again.policy, item.rollout).sum() for item in done.watched]
    update_policy(again.policy, again.optimizer, changed, new, step=5)
    last = [logprobs(again.policy, item.rollout).sum() for item in done.watched]
    real_T = torch.stack([b.detach() - a.detach() for a, b in zip(first, last, strict=True)])
    return Both(found, pushes, real_T, torch.tensor([text.measured for text in done.texts], dtype=torch.float64))


def test_sgds_error_falls_with_the_learning_rate() -> None:
    """Only curvature is missed, which grows with the square of the step: the relative error is linear in it."""
    errors = [both("sgd", lr).error for lr in (1e-3, 1e-4, 1e-5)]
    assert errors[2] < 1e-5
    assert errors[1] / errors[0] == pytest.approx(0.1, rel=0.05)
    assert errors[2] / errors[1] == pytest.approx(0.1, rel=0.05)


@pytest.fixture(scope="module")
def sgd_by_rule() -> dict[tuple[str, bool], Both]:
    """Five rules, plainly and with momentum and weight decay."""
    remembering: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.1}
    return {
        (row, remembers): both("sgd", 1e-4, row, **({"warm": 2} | remembering if remembers else {}))
        for row in ("grpo", "dapo", "dr_grpo", "rloo", "reinforce")
        for remembers in (False, True)
    }


def test_sgd_by_any_rule(sgd_by_rule: dict[tuple[str, bool], Both]) -> None:
    """The difference asked for is small with momentum: most of the step is then remembered."""
    for found in sgd_by_rule.values():
        assert found.error < 1e-4
        assert float((found.real_T - found.measured_T).abs().max()) > 0.05 * float(found.measured_T.abs().max())


def test_sgds_bars_hold_as_often_as_is_said(sgd_by_rule: dict[tuple[str, bool], Both]) -> None:
    """Not each one: a text that the change leaves alone to first order may still bend otherwise along the new step. The bar,
    made of the real step's bend and of the text's own difference, does not see it. Both shrink alike with the learning rate."""
    ratios, signs = [], []
    for found in sgd_by_rule.values():
        apart_T = (found.forecast.changes_T - found.real_T).abs()
        ratios += (apart_T / found.forecast.half_widths_T).tolist()
        told_T = found.forecast.changes_T.abs() > found.forecast.half_widths_T
        signs += (found.forecast.changes_T.sign() == found.real_T.sign())[told_T].tolist()
    assert sum(ratio <= 1.0 for ratio in ratios) >= 0.95 * len(ratios)
    assert max(ratios) < 3.0
    assert len(signs) >= 0.85 * len(ratios)
    assert all(signs)


@pytest.mark.parametrize("warm", [0, 3])
def test_adams_update_is_done_again_on_the_complete_sample(warm: int) -> None:
    """Gradients are stored as half-precision numbers: hence not exact."""
    found = both("adamw", 1e-6, warm=warm)
    assert found.error < 0.02
    assert float((found.real_T - found.measured_T).abs().max()) > 0.1 * float(found.measured_T.abs().max())


def test_a_held_divisor_would_be_far_off() -> None:
    """What the products under the real step's own metric would say of a fresh Adam step: the trap that the sample avoids."""
    learner, chosen = start("adamw", 1e-6, "grpo", 0.5)
    groups = groups_of("grpo")
    done = explain(learner, groups, chosen)
    measured = Measured.of(done.influence, done.arrays)
    before = {each.id: logprobs(learner.policy, each).tolist() for group in groups for each in group.rollouts}
    changed = changed_groups(groups, 0, CHANGE, chosen.algorithm, terms=(), ranges={}, max_new_tokens=8)
    new = changed_pushes(done.influence, len(measured.products_RR), (groups, chosen), (changed, chosen), before)
    held_R = torch.from_numpy(done.arrays["metric"]) @ (new.coefficients_R - measured.pushes.coefficients_R)
    held_T = torch.tensor([text.measured + float(held_R[text.row]) for text in done.texts], dtype=torch.float64)
    real_T = both("adamw", 1e-6).real_T
    assert float(torch.linalg.vector_norm(held_T - real_T) / torch.linalg.vector_norm(real_T)) > 0.2


def test_terms_without_an_advantage_stay_or_scale() -> None:
    same = change_of({"right:1": 1.4})
    assert both("sgd", 1e-4, KL, change=same).error < 0.01
    more = both("sgd", 1e-4, KL, change=same, new_row=KL.model_copy(update={"kl_coef": 0.6}))
    assert more.pushes.fixed_ratio == pytest.approx(2.0)
    assert more.error < 0.01
    left_out = both("sgd", 1e-4, KL, change=change_of(drop=[1]))
    assert "KL, entropy" in left_out.pushes.beyond


def test_another_rule() -> None:
    row = algorithm("grpo").model_copy(update={"scale": "none", "reduction": "sequence_mean_token_mean"})
    found = both("sgd", 1e-4, change=change_of(settings={"algorithm.scale": "none"}), new_row=row, limit=None)
    assert found.error < 0.01


def test_no_change_is_what_was_measured() -> None:
    for name in ("sgd", "adamw"):
        learner, chosen = start(name, 1e-5, "grpo", 0.5)
        done = explain(learner, groups_of("grpo"), chosen)
        measured = Measured.of(done.influence, done.arrays)
        found = forecast(measured, measured.pushes, 0.5)
        assert found.changes_T.tolist() == [text.measured for text in done.texts]
        assert found.half_widths_T.tolist() == [0.0] * len(done.texts)


def test_nothing_to_learn_moves_nothing() -> None:
    groups = groups_of("grpo")
    flat: dict[int | str | tuple[str, int], float] = {f"right:{each.id.member}": 0.5 for each in groups[0].rollouts}
    learner, chosen = start("sgd", 1e-4, "grpo", 0.5)
    done = explain(learner, groups[:1], chosen)
    measured = Measured.of(done.influence, done.arrays)
    before = {each.id: (-1.0,) * each.completion.num_tokens for each in groups[0].rollouts}
    changed = changed_groups(groups[:1], 0, change_of(flat), chosen.algorithm, terms=(), ranges={}, max_new_tokens=8)
    new = changed_pushes(done.influence, len(measured.products_RR), (groups[:1], chosen), (changed, chosen), before)
    found = forecast(measured, new, 0.5)
    assert not new.moves
    assert found.length_ratio == 0.0
    assert not found.changes_T.any()


@pytest.mark.parametrize("row", ["grpo", "dapo", "dr_grpo", "cispo", "gspo"])
def test_token_weights_are_those_that_the_update_records(row: str) -> None:
    groups = groups_of(row)
    learner, chosen = start("sgd", 1e-4, row, None)
    changed = changed_groups(groups, 0, CHANGE, chosen.algorithm, terms=(), ranges={}, max_new_tokens=8)
    before: dict[RolloutId, Any] = {r.id: logprobs(learner.policy, r).tolist() for g in groups for r in g.rollouts}
    found = token_weights(changed, chosen, before)
    (update,) = update_policy(learner.policy, learner.optimizer, changed, chosen, step=1)
    for stream in update.streams:
        if stream.computed:
            assert found[stream.rollout] == pytest.approx(stream.token_weight, rel=1e-9, abs=1e-15)
