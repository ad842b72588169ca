"""Distillation on the same tokens as TRL 1.16's GKDTrainer and DistillationTrainer: loss and gradient of every weight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.test_parity_trl_written import assert_same_gradient, groups, updated
from tests.tiny import tiny_model
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.policy.policy import Policy
from toishi.policy.teacher import LocalTeacher

ROWS: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [
    ((5, 6, 7), [(9, 10, 4)]),
    ((20, 21), [(22, 23, 24, 25, 4)]),
    ((30, 31, 32, 33), [(4,)]),
]


def student() -> Policy:
    return Policy(tiny_model("llama", seed=2), compute_dtype=torch.float32)


def taught(row: Algorithm, given: Any) -> tuple[float, dict[str, Tensor]]:
    policy = student()
    teacher = Policy(tiny_model("llama", seed=1).requires_grad_(False), compute_dtype=torch.float32)
    policy.teacher = LocalTeacher.of(teacher, policy)
    _, update, gradient = updated(policy, row, given)
    return update.scalars["update/loss"], gradient


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_gkd(beta: float) -> None:
    from trl.experimental.gkd import GKDTrainer

    width = max(len(prompt) + len(answer) for prompt, (answer,) in ROWS)
    whole = [([*prompt, *answer], len(prompt)) for prompt, (answer,) in ROWS]
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text, _ in whole])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text, _ in whole])
    labels = torch.tensor([[-100] * start + text[start:] + [-100] * (width - len(text)) for text, start in whole])
    model = tiny_model("llama", seed=2)
    trainer = SimpleNamespace(
        teacher_model=tiny_model("llama", seed=1), beta=beta, generalized_jsd_loss=GKDTrainer.generalized_jsd_loss
    )
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    loss = GKDTrainer.compute_loss(trainer, model, inputs, num_items_in_batch=(labels != -100).sum())
    loss.backward()
    gradient = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    row = Algorithm.model_validate(algorithm("gkd").model_dump() | {"source": "written", "divergence_beta": beta})
    found, own = taught(row, groups(ROWS))
    assert found == pytest.approx(loss.item(), abs=1e-5)
    assert_same_gradient(own, gradient)
