"""Reward models from pairs: what is read where, refusals, the record, and the way from pairs to a policy that they train."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.cli.conftest import run_command
from tests.rewards.test_reward_model import save_classifier
from tests.seeds import SEEDS
from tests.tiny import END, save_tiny, tiny_tokenizer
from toishi import loop
from toishi.check import check
from toishi.config import Config, load_config
from toishi.errors import ConfigError, DataError, ModelError
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import explain_chain
from toishi.policy.head import score_layer
from toishi.policy.loading import load_model
from toishi.record.reader import Run
from toishi.replay.plan import plan_replay
from toishi.replay.redo import replay
from toishi.sampler import Source, measure_model
from toishi.tasks import build_task
from toishi.tracing.afterwards import replay_traced

EARLY, LATE = "abcdefghijklm", "nopqrstuvwxyz"


def early(completions: list[Any], **columns: object) -> list[float]:
    """Share of an answer's signs that are letters of the first half of the alphabet."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [sum(sign in EARLY for sign in text) / max(1, len(text)) for text in texts]


def pairs(count: int, seed: int = 0, *, as_chat: bool = True) -> list[dict[str, Any]]:
    """Better are letters of the first half of the alphabet; both answers are of all lengths."""
    draw = random.Random(seed)

    def word(letters: str) -> str:
        return "".join(draw.choices(letters, k=draw.randint(2, 8)))

    rows = []
    for number in range(count):
        question = f"say {number} {word(EARLY + LATE)}"
        prompt: Any = [{"role": "user", "content": question}] if as_chat else question
        rows.append({"prompt": prompt, "chosen": word(EARLY), "rejected": word(LATE), "margin": draw.choice([0.0, 0.5])})
    return rows


def config(model: Path, folder: Path, rows: Sequence[dict[str, Any]] | None = None, **overrides: Any) -> Config:
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (pairs(40) if rows is None else rows)))
    plain: dict[str, Any] = {
        "model": {"name": str(model), "dtype": "float32"},
        "task": {"name": "file", "path": str(path), "heldout": 12},
        "algorithm": "reward_model",
        "rewards": [],
        "sampling": {"max_new_tokens": 32},
        "train": {"steps": 2, "prompts_per_step": 4, "group_size": 2},
        "optimizer": {"lr": 1e-3},
        "evaluation": {"prompts": 12, "every": 1, "prompts_during": 12},
    }
    return load_config(plain, overrides)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def saved(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step_{step:06d}" / "model"


def logits_of(folder: Path, texts: Sequence[list[int]]) -> list[float]:
    """transformers' own forward over one padded batch."""
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    pad, width = model.config.pad_token_id, max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (width - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    with torch.no_grad():
        logits: list[float] = model(input_ids=ids, attention_mask=mask).logits[:, 0].tolist()
    return logits


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma", "gpt2", "mistral"])
@pytest.mark.parametrize("as_chat", [True, False])
def test_what_is_saved_scores_in_transformers_as_it_did_in_training(tmp_path: Path, family: str, as_chat: bool) -> None:
    model = save_tiny(tmp_path / "model", family)
    run = loop.train(config(model, tmp_path, pairs(20, as_chat=as_chat)), tmp_path / "run").folder
    rollouts = Run.open(run).step(1).rollouts
    recorded = [rollout.own_logprobs[-1] for rollout in rollouts]
    tokenizer = AutoTokenizer.from_pretrained(saved(run, 0))
    texts = []
    for rollout in rollouts:
        if as_chat:
            turns = [*(rollout.prompt.messages or ()), {"role": "assistant", "content": rollout.completion.text}]
            texts.append(tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False))
        else:
            texts.append(
                tokenizer(f"{rollout.prompt.text}")["input_ids"] + tokenizer(rollout.completion.text + END)["input_ids"]
            )
        assert texts[-1] == [*rollout.prompt.token_ids, *rollout.completion.token_ids]
        assert rollout.completion.loss_mask == (*[0] * (rollout.completion.num_tokens - 1), 1)
    assert recorded == pytest.approx(logits_of(saved(run, 0), texts), abs=1e-4)
    assert len(set(recorded)) == len(recorded)


def test_a_padding_token_that_ends_texts_is_replaced(tmp_path: Path) -> None:
    """transformers reads the score at the last token that is no padding: with pad = eos that would be one token too early."""
    model = save_tiny(tmp_path / "model")
    tiny_tokenizer(pad=END).save_pretrained(model)
    run = loop.train(config(model, tmp_path, pairs(20, as_chat=False)), tmp_path / "run").folder
    rollouts = Run.open(run).step(1).rollouts
    texts = [[*rollout.prompt.token_ids, *rollout.completion.token_ids] for rollout in rollouts]
    assert all(text[-1] == 4 for text in texts)
    folder = saved(run, 0)
    assert AutoModelForSequenceClassification.from_pretrained(folder).config.pad_token_id not in (4, None)
    assert AutoTokenizer.from_pretrained(folder).pad_token != END
    assert [one.own_logprobs[-1] for one in rollouts] == pytest.approx(logits_of(folder, texts), abs=1e-4)


def test_a_head_is_drawn_from_the_seed_and_an_existing_one_is_kept(tiny: Path, tmp_path: Path) -> None:
    model = load_config({"model": {"name": str(tiny)}}).model
    heads = [score_layer(load_model(model, seed=seed, predicts="score").module) for seed in (1, 1, 2)]
    first, again, other = (head.weight.detach() for head in heads if head is not None)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0.2 < first.std() < 0.4, "the family's initializer_range is .3"
    run = loop.train(config(tiny, tmp_path), tmp_path / "run").folder
    kept = load_model(load_config({"model": {"name": str(saved(run, 2))}}).model, seed=9, predicts="score").module
    stored = AutoModelForSequenceClassification.from_pretrained(saved(run, 2))
    assert torch.equal(kept.score.weight, stored.score.weight)


def test_models_that_cannot_carry_a_score_are_refused(tmp_path: Path) -> None:
    several = save_classifier(tmp_path / "several", "llama", num_labels=3)
    with pytest.raises(ModelError, match="is a classifier with 3 labels; a reward model has one number"):
        load_model(load_config({"model": {"name": str(several)}}).model, seed=0, predicts="score")
    encoder = save_classifier(tmp_path / "encoder", "bert", template=False)
    with pytest.raises(ModelError, match="does not read one number off the last token of a decoder"):
        load_model(load_config({"model": {"name": str(encoder)}}).model, seed=0, predicts="score")
    one = save_classifier(tmp_path / "one", "llama")
    with pytest.raises(ModelError, match="expected a causal language model"):
        load_model(load_config({"model": {"name": str(one)}}).model, seed=0)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"rewards": [{"name": "number"}]}, "rewards judge sampled answers, and nothing is sampled: set rewards to .."),
        ({"model.lora": {}}, "model.lora would not hold the head"),
        ({"record.trace_every": 1}, "record.trace_every follows the probability of tokens"),
        ({"train.inner_epochs": 2}, "so a step has one"),
        ({"train.group_size": 4}, "train.group_size must be 2, got 4"),
    ],
)
def test_what_a_reward_model_cannot_have_is_refused(tiny: Path, tmp_path: Path, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(tiny, tmp_path, **overrides)


@pytest.mark.parametrize(
    ("change", "overrides", "words"),
    [
        ({"chosen": None}, {}, "its 'chosen' is missing .null.. Fill it or remove the row .answers.chosen."),
        ({"margin": "wide"}, {"answers.margin": "margin"}, "its 'margin' is 'wide', expected a number .answers.margin."),
        ({"rejected": "nope " * 30}, {}, "sampling.max_new_tokens=32. Answers are never cut"),
    ],
)
def test_rows_that_cannot_be_used_are_found_by_check_and_forbid_the_start(
    tiny: Path, tmp_path: Path, change: dict[str, Any], overrides: dict[str, Any], words: str
) -> None:
    rows = pairs(20)
    rows = [row | (change if number % 2 else {}) for number, row in enumerate(rows)]
    made = config(tiny, tmp_path, rows, **overrides)
    report = check(made)
    assert not report.ok
    with pytest.raises(DataError, match=words):
        loop.train(made, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_check_finds_nothing_to_mend(tiny: Path, tmp_path: Path) -> None:
    report = check(config(tiny, tmp_path))
    assert [finding.message for finding in report.findings] == []
    assert report.model is not None
    assert report.model["architecture"] == "LlamaForSequenceClassification"
    assert report.memory is not None


def test_margin_and_centring_reach_the_loss(tiny: Path, tmp_path: Path) -> None:
    choices: dict[str, Any] = {"algorithm": {"name": "reward_model", "centring": 0.1}, "answers.margin": "margin"}
    made = config(tiny, tmp_path, **choices)
    run = Run.open(loop.train(made, tmp_path / "run").folder)
    losses = []
    for group in run.step(1).groups:
        chosen, rejected = (rollout.own_logprobs[-1] for rollout in group.rollouts)
        margin = group.prompt.columns["margin"]
        losses.append(
            -torch.nn.functional.logsigmoid(torch.tensor(chosen - rejected - margin)) + 0.1 * (chosen + rejected) ** 2
        )
    assert {group.prompt.columns["margin"] for group in run.step(1).groups} == {0.0, 0.5}
    assert run.metrics[0]["preference/loss"] == pytest.approx(float(sum(losses)) / len(losses), rel=1e-5)
    assert audit(run).findings == ()


def test_the_record_is_whole_and_the_step_comes_out_again(tiny: Path, tmp_path: Path) -> None:
    run = Run.open(loop.train(config(tiny, tmp_path, None, **{"train.steps": 3}), tmp_path / "run").folder)
    assert audit(run).findings == ()
    assert [event for event in run.events if event["kind"] == "health"] == []
    assert explain_chain(run, 2).broken is None
    assert replay(run, plan_replay(run, 3)).bit_for_bit
    with pytest.raises(ConfigError, match="trains a score, which has none"):
        replay_traced(run, plan_replay(run, 3))
    lines = run.metrics
    assert all(line["sampler_gap/mean_abs"] is None and line["entropy/mean_nats"] is None for line in lines)
    for line in lines:
        assert 0 <= line["preference/accuracy"] <= 1
        assert line["update/tokens"] == line["update/rollouts"] == 8


def test_a_resumed_run_ends_in_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    def checksums(folder: Path) -> list[Any]:
        return [line["update/weights_checksum"] for line in Run.open(folder).metrics]

    made = config(tiny, tmp_path, None, **{"train.steps": 4, "checkpoint.every": 2})
    loop.train(made, tmp_path / "whole")
    folder = loop.train(made, tmp_path / "cut").folder
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    loop.resume(folder)
    assert checksums(folder) == checksums(tmp_path / "whole")
    cut, whole = (
        [(line["step"], line["by_prompt"], line["details"]) for line in Run.open(one).evaluations]
        for one in (folder, tmp_path / "whole")
    )
    assert cut == whole


def test_held_out_pairs_are_measured_and_measured_again(tiny: Path, tmp_path: Path) -> None:
    made = config(tiny, tmp_path)
    folder = loop.train(made, tmp_path / "run").folder
    run = Run.open(folder)
    assert [(line["step"], line["mode"]) for line in run.evaluations] == [(0, "pairs"), (1, "pairs"), (2, "pairs")]
    last = run.evaluations[-1]
    opened = Source.find(str(folder))
    (found,) = measure_model(made.model_copy(update={"model": opened.model}), step=2, run=opened.run)
    assert found.value == last["value"]
    assert found.details == pytest.approx(last["details"])
    # by hand, from transformers' own scores of the held-out pairs
    tokenizer = AutoTokenizer.from_pretrained(saved(folder, 2))
    texts = [
        tokenizer.apply_chat_template(
            [*(prompt.messages or ()), {"role": "assistant", "content": prompt.columns[column]}],
            tokenize=True,
            return_dict=False,
        )
        for prompt in build_task(made.task, seed=made.seed).heldout_prompts()
        for column in ("chosen", "rejected")
    ]
    scores = torch.tensor(logits_of(saved(folder, 2), texts)).view(-1, 2)
    apart = scores[:, 0] - scores[:, 1]
    assert found.value == pytest.approx(float((apart > 0).float().mean()))
    assert found.details["margin"] == pytest.approx(float(apart.mean()), abs=1e-4)
    assert found.details["loss"] == pytest.approx(float(-torch.nn.functional.logsigmoid(apart).mean()), abs=1e-4)
    assert found.details["score_std"] == pytest.approx(float(scores.std(correction=0)), abs=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_are_learned_and_what_is_learned_holds_for_others(tiny: Path, tmp_path: Path, seed: int) -> None:
    """Set before the first run: of 64 held-out pairs of unseen words at least 85 % are ranked right, whatever the seed."""
    options = {
        "train.steps": 60, "train.prompts_per_step": 16, "optimizer.lr": 3e-3, "seed": seed, "task.heldout": 64,
        "evaluation": {"prompts": 64, "every": 0}, "checkpoint.every": 0,
    }  # fmt: skip
    rows = pairs(1024, seed=seed)
    run = Run.open(loop.train(config(tiny, tmp_path, rows, **options), tmp_path / "run").folder)
    assert run.evaluations[-1]["value"] >= 0.85
    assert abs(run.evaluations[-1]["details"]["length_correlation"]) < 0.5


def test_from_pairs_to_a_reward_model_to_a_policy(tiny: Path, tmp_path: Path) -> None:
    """GRPO on the trained reward model raises its score, and with it what the pairs were made by, which it never sees."""
    learn = {"train.steps": 60, "train.prompts_per_step": 16, "optimizer.lr": 3e-3, "task.heldout": 64, "evaluation.every": 0}
    scorer = loop.train(config(tiny, tmp_path, pairs(1024), **learn), tmp_path / "scorer").folder
    truth = {"name": "early", "kind": "function", "function": "tests.test_reward_models:early", "weight": 0.0}
    judged = {"name": "reward_model", "model": str(saved(scorer, 60)), "device": "cpu"}
    steps = {"steps": 30, "prompts_per_step": 4, "group_size": 8}
    policy = {
        "algorithm": "grpo", "rewards": [judged, truth], "train": steps, "sampling.max_new_tokens": 8, "optimizer.lr": 3e-3,
        "evaluation.prompts": 0,
    }  # fmt: skip
    run = Run.open(loop.train(config(tiny, tmp_path, pairs(64), **policy), tmp_path / "policy").folder)
    for name in ("rewards/reward_model/mean", "rewards/early/mean"):
        first, last = (sum(line[name] for line in part) / 5 for part in (run.metrics[:5], run.metrics[-5:]))
        assert last > first, name
    assert audit(run).findings == ()


def test_the_commands_know_such_a_run(tiny: Path, tmp_path: Path) -> None:
    """check, train, explain, audit, evaluate: what they print speaks of pairs, and all end well."""
    recipe, folder = tmp_path / "recipe.json", tmp_path / "run"
    recipe.write_text(config(tiny, tmp_path, None, **{"record.folder": str(tmp_path)}).model_dump_json(exclude_unset=True))
    checked = run_command("check", recipe, width=200)
    assert (checked.code, "none are asked" in checked.out) == (0, True), checked.out
    trained = run_command("train", recipe, "--out", folder, width=200)
    assert trained.code == 0, trained.err
    for words in ("step 2 held-out, pairs: ", "calibration error", "before", "toishi evaluate"):
        assert words in trained.out
    for command in (("explain", folder), ("explain", folder, "--step", "1"), ("audit", folder)):
        ended = run_command(*command, width=200)
        assert ended.code == 0, (command, ended.err)
    evaluated = run_command("evaluate", folder, "--json")
    (found,) = json.loads(evaluated.out)["evaluations"]
    assert (found["mode"], found["value"]) == ("pairs", Run.open(folder).evaluations[-1]["value"])
