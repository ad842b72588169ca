"""SFT, DFT, DPO, IPO and reward models on the same tokens as TRL 1.16: loss and gradient of every weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.making import settings
from tests.tiny import save_tiny, tiny_model, tiny_tokenizer
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.preference import pair_metrics
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.algorithms.shaping import MARGIN
from toishi.config import ModelConfig, OptimizerConfig, TrainConfig
from toishi.policy.loading import load_model
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score, Update
from toishi.update import UpdateSettings, update_policy, with_reference

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated and will be removed in v6:FutureWarning")
LR = 1.0
PROMPTS = ("what is 2+3? ", "the cat ", "hello, say ")
BETTER, WORSE = ("5", "is on the mat", "a sum"), ("six, is it", "sat", "these numbers here")
OPTIONS: dict[str, Any] = {
    "bf16": False, "use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
    "activation_checkpointing": False, "per_device_train_batch_size": 3,
}  # fmt: skip


def written(ids: Sequence[int]) -> Completion:
    return Completion(
        token_ids=tuple(ids), loss_mask=(1,) * len(ids), sampled_logprobs=(), entropies=(), text="", finish_reason="stop"
    )


def groups(rows: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> tuple[Group, ...]:
    """One group for each (prompt ids, answers); the first answer is worth 1, a second 0."""
    found = []
    for number, (prompt_ids, answers) in enumerate(rows):
        prompt = Prompt(id=str(number), text="?", token_ids=tuple(prompt_ids))
        rollouts = tuple(
            Rollout(id=RolloutId(1, number, member), prompt=prompt, completion=written(ids), reward=1.0 - member)
            for member, ids in enumerate(answers)
        )
        found.append(Group(prompt=prompt, rollouts=rollouts))
    return tuple(found)


def ours(row: Algorithm, given: tuple[Group, ...]) -> tuple[tuple[Group, ...], Update, dict[str, Tensor]]:
    """The groups with advantages, the update and the gradient of each weight; the reference is another model."""
    policy = Policy(tiny_model("llama", seed=1), compute_dtype=torch.float32)
    policy.keep_reference()
    policy.load_masters({name: weight.detach() for name, weight in tiny_model("llama", seed=2).named_parameters()})
    return updated(policy, row, given)


def updated(policy: Policy, row: Algorithm, given: tuple[Group, ...]) -> tuple[tuple[Group, ...], Update, dict[str, Tensor]]:
    """The same for any policy."""
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    plain = UpdateSettings(
        algorithm=row, train=TrainConfig(), optimizer=OptimizerConfig(name="sgd", lr=LR, max_grad_norm=None), temperature=1.0,
        max_new_tokens=32, shared_prompt=settings().shared_prompt, token_budget=2048, seed=0,
    )  # fmt: skip
    informed = assign_advantages(with_reference(policy, given, plain), row, max_new_tokens=32)
    (update,) = update_policy(policy, make_optimizer(policy, plain.optimizer), informed, plain, step=1)
    return informed, update, {name: (before[name] - master.detach()) / LR for name, master in policy.masters.items()}


def theirs(trainer: Any, inputs: Mapping[str, Any], **options: Any) -> tuple[float, dict[str, Tensor]]:
    model = trainer.model
    model.train()
    loss = trainer.compute_loss(model, dict(inputs), **options)
    loss.backward()
    return loss.item(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same_gradient(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert float((found[name] - gradient).abs().max()) <= 1e-5 * max(1.0, largest), name


@pytest.mark.parametrize(("row", "loss_type"), [("sft", "nll"), ("dft", "dft")])
def test_sft(tmp_path: Path, row: str, loss_type: str) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_dict({"prompt": list(PROMPTS), "completion": list(BETTER)})
    trainer = SFTTrainer(
        model=tiny_model("llama", seed=2), args=SFTConfig(output_dir=str(tmp_path), loss_type=loss_type, **OPTIONS),
        train_dataset=data, processing_class=tiny_tokenizer(chat_template=None),
    )  # fmt: skip
    inputs = trainer.data_collator(list(trainer.train_dataset))
    trained = inputs["labels"] != -100
    rows = []
    for ids, mask, real in zip(inputs["input_ids"], trained, inputs["attention_mask"], strict=True):
        start, end = int(mask.int().argmax()), int(real.sum())
        rows.append((ids[:start].tolist(), [ids[start:end].tolist()]))
    assert all(answer[-1] == 4 for _, (answer,) in rows), "TRL trains the end of the answer, as we do"
    loss, gradient = theirs(trainer, inputs, num_items_in_batch=trained.sum())
    _, update, found = ours(algorithm(row), groups(rows))
    assert update.scalars["update/loss"] == pytest.approx(loss, abs=1e-5)
    assert update.scalars["update/tokens"] == int(trained.sum())
    assert_same_gradient(found, gradient)


@pytest.mark.parametrize(("row", "loss_type"), [("dpo", "sigmoid"), ("ipo", "ipo")])
def test_dpo(tmp_path: Path, row: str, loss_type: str) -> None:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    data = Dataset.from_dict({"prompt": list(PROMPTS), "chosen": list(BETTER), "rejected": list(WORSE)})
    options = DPOConfig(output_dir=str(tmp_path), loss_type=[loss_type], beta=0.1, **OPTIONS)
    trainer = DPOTrainer(
        model=tiny_model("llama", seed=2), ref_model=tiny_model("llama", seed=1), args=options, train_dataset=data,
        processing_class=tiny_tokenizer(chat_template=None),
    )  # fmt: skip
    tokens = list(trainer.train_dataset)
    loss, gradient = theirs(trainer, trainer.data_collator(tokens))
    rows = [(one["prompt_ids"], [one["chosen_ids"], one["rejected_ids"]]) for one in tokens]
    informed, _, found = ours(algorithm(row), groups(rows))
    numbers = pair_metrics(informed, algorithm(row))
    assert numbers["preference/loss"] == pytest.approx(loss, rel=1e-5, abs=1e-5)
    assert_same_gradient(found, gradient)
    logged = trainer._metrics["train"]
    assert numbers["preference/accuracy"] == pytest.approx(logged["rewards/accuracies"][-1])
    assert numbers["preference/margin"] == pytest.approx(logged["rewards/margins"][-1], rel=1e-4)
    assert numbers["preference/logps_chosen"] == pytest.approx(logged["logps/chosen"][-1], rel=1e-5)


@pytest.mark.parametrize("margins", [None, (0.5, 0.0, -1.0)], ids=["plain", "margin"])
@pytest.mark.parametrize("centring", [0.0, 0.05])
def test_reward_model(tmp_path: Path, centring: float, margins: tuple[float, ...] | None) -> None:
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    folder = save_tiny(tmp_path / "model")
    loaded = load_model(ModelConfig(name=str(folder), dtype="float32"), seed=5, predicts="score")
    loaded.module.save_pretrained(tmp_path / "scorer")
    columns: dict[str, Any] = {"prompt": list(PROMPTS), "chosen": list(BETTER), "rejected": list(WORSE)}
    options = RewardConfig(output_dir=str(tmp_path), center_rewards_coefficient=centring or None, **OPTIONS)
    trainer = RewardTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(tmp_path / "scorer"), args=options,
        train_dataset=Dataset.from_dict(columns | ({} if margins is None else {"margin": list(margins)})),
        processing_class=tiny_tokenizer(chat_template=None),
    )  # fmt: skip
    tokens = list(trainer.train_dataset)
    loss, gradient = theirs(trainer, trainer.data_collator(tokens))
    found = []
    for number, one in enumerate(tokens):
        both = zip(one["chosen_ids"], one["rejected_ids"], strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        prompt = Prompt(id=str(number), text="?", token_ids=tuple(one["chosen_ids"][:shared]))
        margin = Score(reward=MARGIN, value=0.0 if margins is None else margins[number], weight=0.0)
        answers = [one[name][shared:] for name in ("chosen_ids", "rejected_ids")]
        rollouts = tuple(
            Rollout(
                id=RolloutId(1, number, member), prompt=prompt, reward=1.0 - member, scores=(margin,) if member == 0 else (),
                completion=replace(written(ids), loss_mask=(*[0] * (len(ids) - 1), 1)),
            )
            for member, ids in enumerate(answers)
        )  # fmt: skip
        found.append(Group(prompt=prompt, rollouts=rollouts))
    row = Algorithm.model_validate(algorithm("reward_model").model_dump() | {"centring": centring})
    informed, _, own = updated(Policy(loaded.module, compute_dtype=torch.float32), row, tuple(found))
    numbers = pair_metrics(informed, row)
    assert numbers["preference/loss"] == pytest.approx(loss, rel=1e-5, abs=1e-5)
    assert_same_gradient(own, gradient)
    logged = trainer._metrics["train"]
    assert numbers["preference/accuracy"] == pytest.approx(logged["accuracy"][-1])
    assert numbers["preference/margin"] == pytest.approx(logged["margin"][-1], rel=1e-4, abs=1e-6)
