"""Loss and gradient against TRL 1.16, on the same log-probs, with ratios away from 1.

TRL's unbound `_compute_loss` runs on a stand-in for its trainer that hands out given log-probs. Where definitions differ
(see docs/differences.md) the row is set to TRL's choice first, and a test shows that the difference is real.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.toy import changed
from toishi.algorithms.apply import Objective, token_objective
from toishi.algorithms.rows import Algorithm

CLOSE = 1e-6
LENGTHS = (5, 1, 3, 4, 2, 5)
WIDTH, LIMIT = 5, 7
BETA = 0.05


class Batch:
    """Dense [B, T] tensors with padding (TRL) and the same numbers packed [N] (toishi). Padding holds rubbish."""

    def __init__(self, padding: int = 0, spread: float = 0.25) -> None:
        generator = torch.Generator().manual_seed(7)
        shape = (len(LENGTHS), WIDTH)

        def draw(scale: float) -> Tensor:
            numbers = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
            return torch.nn.functional.pad(numbers, (0, padding), value=-3.0)

        self.logprobs = (-1.0 - draw(0.5).abs()).detach().requires_grad_()
        self.old = self.logprobs.detach() + draw(spread)
        self.ref = self.logprobs.detach() + draw(0.3)
        self.sampled = self.old + draw(0.4)
        self.entropy = draw(1.0).abs().requires_grad_()
        self.advantages = torch.tensor([1.2, -0.7, 0.4, -1.5, 0.0, 0.9], dtype=torch.float64)
        self.lengths = torch.tensor(LENGTHS)
        self.mask = torch.arange(WIDTH + padding)[None] < self.lengths[:, None]

    def packed(self, dense: Tensor) -> Tensor:
        return dense[self.mask]

    def ours(self, row: Algorithm, advantages: Tensor | None = None) -> Objective:
        sequence = torch.repeat_interleave(torch.arange(len(LENGTHS)), self.lengths)
        return token_objective(
            row,
            logprobs_N=self.packed(self.logprobs),
            entropy_N=self.packed(self.entropy),
            old_logprobs_N=self.packed(self.old),
            advantages_N=(self.advantages if advantages is None else advantages)[sequence],
            sequence_N=sequence,
            lengths_B=self.lengths,
            num_tokens=sum(LENGTHS),
            num_sequences=len(LENGTHS),
            max_length=LIMIT,
            ref_logprobs_N=self.packed(self.ref),
            sampled_logprobs_N=self.packed(self.sampled),
        )

    def gradients(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        grads = torch.autograd.grad(
            loss, (self.logprobs, self.entropy), allow_unused=True, materialize_grads=True, retain_graph=True
        )
        return grads[0], grads[1]


@pytest.fixture(scope="module")
def trl() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.trainer import grpo_trainer, rloo_trainer
    return SimpleNamespace(grpo=grpo_trainer.GRPOTrainer, rloo=rloo_trainer.RLOOTrainer)


def stand_in(batch: Batch, **settings: Any) -> SimpleNamespace:
    """Just what `_compute_loss` reads of a trainer: one process, no accumulation, training."""
    accelerator = SimpleNamespace(num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x)
    defaults: dict[str, Any] = {
        "_get_per_token_logps_and_entropies": lambda *args, **kwargs: (batch.logprobs, batch.entropy, None),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_entropy_bonus_enabled": False,
        "accelerator": accelerator,
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=True, steps_per_generation=1),
        "aux_loss_enabled": False,
        "beta": 0.0,
        "current_gradient_accumulation_steps": 1,
        "entropy_coef": 0.0,
        "epsilon_high": 0.2,
        "epsilon_low": 0.2,
        "importance_sampling_level": "token",
        "max_completion_length": LIMIT,
        "model": SimpleNamespace(training=True),
        "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0,
        "use_adaptive_entropy": False,
        "use_vllm": False,
        "vllm_importance_sampling_correction": True,
    }
    return SimpleNamespace(**defaults | settings)


def theirs(trl: Any, batch: Batch, *, correction: Tensor | None = None, **settings: Any) -> Tensor:
    one = torch.ones(len(LENGTHS), 1, dtype=torch.long)
    inputs = {
        "prompt_ids": one,
        "prompt_mask": one,
        "completion_ids": torch.zeros(batch.mask.shape, dtype=torch.long),
        "completion_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.ref,
        "num_items_in_batch": batch.mask.sum(),
        "importance_sampling_ratio": correction,
    }
    loss: Tensor = trl.grpo._compute_loss(stand_in(batch, **settings), None, inputs)
    return loss


def assert_same(batch: Batch, ours: Tensor, peer: Tensor) -> None:
    assert ours.item() == pytest.approx(peer.item(), abs=CLOSE)
    for mine, other in zip(batch.gradients(ours), batch.gradients(peer), strict=True):
        torch.testing.assert_close(mine, other, atol=CLOSE, rtol=0.0)
    assert batch.gradients(peer)[0].abs().max() > 1e-3


CASES: dict[str, tuple[Algorithm, dict[str, Any]]] = {
    "grpo": (changed("grpo"), {"loss_type": "grpo"}),
    "dapo": (changed("dapo"), {"loss_type": "dapo", "epsilon_high": 0.28}),
    "trl default": (changed("dapo", clip_high=0.2), {"loss_type": "dapo"}),
    "dr_grpo": (changed("dr_grpo"), {"loss_type": "dr_grpo"}),
    "cispo": (changed("cispo"), {"loss_type": "cispo", "epsilon_high": 5.0}),
    "cispo with a cap that holds": (changed("cispo", clip_high=0.1), {"loss_type": "cispo", "epsilon_high": 1.1}),
    "gspo": (
        changed("gspo", clip_low=0.1, clip_high=0.1),
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.1, "epsilon_high": 0.1},
    ),
    "grpo, k3": (
        changed("grpo", kl="k3", kl_coef=BETA),
        {"loss_type": "grpo", "beta": BETA, "args": SimpleNamespace(delta=None, use_bias_correction_kl=False)},
    ),
    "grpo, ratio k3": (changed("grpo", kl="ratio_k3", kl_coef=BETA), {"loss_type": "grpo", "beta": BETA}),
    "dapo, ratio k3": (
        changed("dapo", clip_high=0.2, kl="ratio_k3", kl_coef=BETA),
        {"loss_type": "dapo", "beta": BETA},
    ),
    "dr_grpo, ratio k3": (changed("dr_grpo", kl="ratio_k3", kl_coef=BETA), {"loss_type": "dr_grpo", "beta": BETA}),
    "gspo, k3": (
        changed("gspo", clip_low=0.1, clip_high=0.1, kl="k3", kl_coef=BETA),
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 0.1,
            "epsilon_high": 0.1,
            "beta": BETA,
            "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
        },
    ),
    "grpo, entropy": (
        changed("grpo", entropy_coef=0.01),
        {"loss_type": "grpo", "_entropy_bonus_enabled": True, "entropy_coef": 0.01},
    ),
}


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(trl: Any, case: str, padding: int) -> None:
    row, settings = CASES[case]
    batch = Batch(padding)
    assert_same(batch, batch.ours(row).loss, theirs(trl, batch, **settings))


@pytest.mark.parametrize("case", ["grpo", "dapo", "dr_grpo", "gspo"])
def test_clip_shares(trl: Any, case: str) -> None:
    row, settings = CASES[case]
    batch = Batch()
    peer = stand_in(batch, **settings)
    inputs_loss = theirs(trl, batch, **settings | {"_metrics": peer._metrics})
    assert inputs_loss.isfinite()
    clip_N = batch.ours(row).clip_N
    if row.ratio_level == "sequence_mean":  # TRL counts sequences, a code stands on each token
        clip_N = clip_N[torch.cumsum(batch.lengths, 0) - 1]
    metrics = peer._metrics["train"]
    assert (clip_N == 1).double().mean().item() == pytest.approx(metrics["clip_ratio/low_mean"][0], abs=CLOSE)
    assert (clip_N == 2).double().mean().item() == pytest.approx(metrics["clip_ratio/high_mean"][0], abs=CLOSE)
    assert metrics["clip_ratio/region_mean"][0] > 0


def test_truncated_importance_weights(trl: Any) -> None:
    row = changed("grpo", off_policy="truncated_importance", off_policy_cap=1.3, kl="ratio_k3", kl_coef=BETA)
    batch = Batch()
    correction = (batch.old - batch.sampled).exp().clamp(max=1.3)
    peer = theirs(trl, batch, correction=correction, loss_type="grpo", beta=BETA, use_vllm=True)
    ours = batch.ours(row)
    assert_same(batch, ours.loss, peer)
    assert ours.correction_N is not None
    assert (ours.correction_N == 1.3).any()


def rloo_peer(trl: Any, batch: Batch) -> Tensor:
    one = torch.ones(len(LENGTHS), 1, dtype=torch.long)
    inputs = {
        "prompt_ids": one,
        "prompt_mask": one,
        "completion_ids": torch.zeros(batch.mask.shape, dtype=torch.long),
        "completion_mask": batch.mask.long(),
        "advantages": batch.advantages,
        "old_logps": (batch.old * batch.mask).sum(1),
    }
    loss: Tensor = trl.rloo._compute_loss(stand_in(batch), None, inputs)
    return loss


@pytest.mark.parametrize("spread", [0.02, 0.25])
def test_rloo(trl: Any, spread: float) -> None:
    batch = Batch(padding=2, spread=spread)
    assert_same(batch, batch.ours(changed("rloo")).loss, rloo_peer(trl, batch))


class TestDifferences:
    """The entries of docs/differences.md that are about the loss, shown to be real."""

    def test_trl_weighs_k3_by_the_sequence_ratio_under_gspo(self, trl: Any) -> None:
        batch = Batch()
        row = changed("gspo", clip_low=0.1, clip_high=0.1, kl="ratio_k3", kl_coef=BETA)
        _, settings = CASES["gspo"]
        peer = theirs(trl, batch, **settings, beta=BETA)
        assert abs(batch.ours(row).loss.item() - peer.item()) > 5 * CLOSE

    def test_trl_cispo_takes_epsilon_high_as_the_cap_itself(self, trl: Any) -> None:
        batch = Batch()
        peer = theirs(trl, batch, loss_type="cispo", epsilon_high=0.28)
        assert abs(batch.ours(changed("cispo", clip_high=0.28)).loss.item() - peer.item()) > 1e-2

    def test_trl_entropy_is_a_mean_of_micro_batch_means(self, trl: Any) -> None:
        """Two micro-batches of different lengths: TRL's halves each mean; here every token weighs the same."""
        batch = Batch()
        row, settings = CASES["grpo, entropy"]
        entropy_ours = batch.ours(row).loss - batch.ours(changed("grpo")).loss
        halves = [(batch.entropy * batch.mask)[part].sum() / batch.mask[part].sum() for part in (slice(0, 3), slice(3, 6))]
        assert settings["entropy_coef"] == row.entropy_coef
        assert abs(entropy_ours.item() + row.entropy_coef * (sum(halves) / 2).item()) > 1e-5  # type: ignore[union-attr]
