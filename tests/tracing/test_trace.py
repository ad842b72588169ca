"""Traces against plain transformers: log-probs and probabilities of the saved models, changes by subtraction, gradients."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.test_loop import recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.errors import ConfigError
from toishi.metrics import WEIGHTS_CHECKSUM
from toishi.record import Run
from toishi.record.trace import Contrast, Trace, TracedText
from toishi.record.trace_files import has_trace, read_trace
from toishi.replay.plan import plan_replay
from toishi.replay.redo import ReplayReport
from toishi.tracing.afterwards import replay_traced

TEMPERATURE = 0.7
SMALL = {
    "train.steps": 3,
    "evaluation.prompts": 0,
    "checkpoint.every": 1,
    "checkpoint.keep_last": 9,
    "sampling.temperature": TEMPERATURE,
}
TRACED = {"record.trace_every": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three traced steps with AdamW, weight decay and clipping."""
    overrides = SMALL | TRACED | {"optimizer": {"lr": 3e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}}
    return loop.train(recipe(tiny, **overrides), tmp_path_factory.mktemp("traced") / "run").folder


def saved(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step_{step:06d}" / "model"


def prompt_ids(folder: Path, step: int, text: TracedText) -> tuple[int, ...]:
    if text.group is None:
        return tuple(Run.open(folder).run["heldout_prompt"]["token_ids"])
    return Run.open(folder).step(step).groups[text.group].prompt.token_ids


@torch.no_grad()
def next_token_logprobs(model: Any, prompt: tuple[int, ...], answer: tuple[int, ...]) -> torch.Tensor:
    """Rows of log-softmax at the sampling temperature that predict the answer's tokens, by one plain forward pass."""
    logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / TEMPERATURE, dim=-1)


@pytest.mark.parametrize("step", [1, 3])
def test_log_probs_are_those_of_the_saved_models(step: int, run: Path) -> None:
    trace = read_trace(run, step)
    assert {text.kind for text in trace.texts} == {"rollout", "greedy", "reference", "other_prompt"}
    for number, name in ((step - 1, "before"), (step, "after")):
        model = AutoModelForCausalLM.from_pretrained(saved(run, number))
        for text in trace.texts:
            rows = next_token_logprobs(model, prompt_ids(run, step, text), text.token_ids)
            expected = [float(row[token]) for row, token in zip(rows, text.token_ids, strict=True)]
            assert getattr(text, name) == pytest.approx(expected, abs=2e-5)


def test_probabilities_of_alternatives_are_those_of_the_saved_models(run: Path) -> None:
    trace, report = read_trace(run, 2), Run.open(run).step(2)
    answers = {(r.id.group, r.id.member): r for r in report.rollouts}
    assert {(p.group, p.member) for p in trace.positions if p.why == "heaviest"} <= set(answers)
    for number, name in ((1, "before"), (2, "after")):
        model = AutoModelForCausalLM.from_pretrained(saved(run, number))
        for place in trace.positions:
            rollout = answers[place.group, place.member]
            probs = next_token_logprobs(model, rollout.prompt.token_ids, rollout.completion.token_ids)[place.token].exp()
            got = {one.token_id: getattr(one, name) for one in place.alternatives}
            assert set(probs.topk(5).indices.tolist()) <= set(got)
            assert place.alternatives[0].token_id == rollout.completion.token_ids[place.token]
            assert list(got.values()) == pytest.approx([float(probs[token]) for token in got], abs=1e-5)


def test_the_heaviest_token_has_the_largest_weight(run: Path) -> None:
    trace, report = read_trace(run, 1), Run.open(run).step(1)
    weights = {(s.rollout.group, s.rollout.member): s.token_weight for s in report.updates[0].streams if s.computed}
    heaviest = {(p.group, p.member): p for p in trace.positions if p.why == "heaviest"}
    first = {(p.group, p.member): p for p in trace.positions if p.token == 0}
    assert first.keys() == {(r.id.group, r.id.member) for r in report.rollouts}
    for key, values in weights.items():
        place = heaviest.get(key, first[key])
        assert abs(place.token_weight) == max(map(abs, values))
        assert place.token_weight == values[place.token]


def test_greedy_answers_are_the_likeliest_before_the_step(run: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(saved(run, 1))
    for text in read_trace(run, 2).texts:
        if text.kind in ("greedy", "other_prompt"):
            rows = next_token_logprobs(model, prompt_ids(run, 2, text), text.token_ids)
            assert rows.argmax(-1).tolist() == list(text.token_ids)


def test_the_reference_answer_is_the_gold_and_the_stop_token(run: Path, tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    groups = Run.open(run).step(1).groups
    references = [text for text in read_trace(run, 1).texts if text.kind == "reference"]
    assert len(references) == len(groups)
    for text, group in zip(references, groups, strict=True):
        assert text.text == str(group.prompt.gold)
        assert list(text.token_ids) == [*tokenizer(text.text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_changes_of_every_matrix_are_the_difference_of_the_saved_models(step: int, run: Path) -> None:
    before, after = (load_file(saved(run, number) / "model.safetensors") for number in (step - 1, step))
    rows = read_trace(run, step).matrices
    assert {row.name for row in rows} == set(after)
    for row in rows:
        change = after[row.name].double() - before[row.name].double()
        assert row.change_norm == pytest.approx(float(change.norm()), rel=1e-5)
        assert row.weight_norm == pytest.approx(float(before[row.name].double().norm()), rel=1e-6)
        assert row.relative_change == pytest.approx(row.change_norm / row.weight_norm)
        assert row.changed_share == float((after[row.name] != before[row.name]).double().mean())
        assert row.decay_norm == pytest.approx(3e-3 * 0.1 * row.weight_norm, rel=1e-9)


def test_adams_first_step_has_the_known_size(run: Path) -> None:
    """With fresh moments m̂ / √v̂ is the sign of the gradient: lr for every element that has one."""
    (totals,) = read_trace(run, 1).updates
    by_name = {row.name: row for row in read_trace(run, 1).matrices}
    assert (totals.optimizer, totals.lr, totals.weight_decay) == ("adamw", 3e-3, 0.1)
    full = by_name["model.layers.0.mlp.up_proj.weight"]
    assert full.step_norm == pytest.approx(3e-3 * math.sqrt(math.prod(full.shape)), rel=1e-3)
    line = Run.open(run).metrics[0]
    assert totals.gradient_norm == pytest.approx(line["updates/0/grad_norm"], rel=1e-6)
    assert totals.gradient_norm * totals.clip_factor == pytest.approx(0.5, rel=1e-6)
    assert math.hypot(*(row.clipped_norm for row in by_name.values())) == pytest.approx(0.5, rel=1e-6)


def test_sgd_takes_the_learning_rate_times_the_clipped_gradient(tiny: Path, tmp_path: Path) -> None:
    optimizer = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    folder = loop.train(recipe(tiny, **SMALL | TRACED, optimizer=optimizer), tmp_path / "run").folder
    totals = read_trace(folder, 1).updates[0]
    assert totals.step_cosine == pytest.approx(1.0, abs=1e-6)
    assert totals.step_norm == pytest.approx(0.05 * totals.gradient_norm * totals.clip_factor, rel=1e-5)
    second = read_trace(folder, 2).updates[0]
    assert second.step_cosine is not None
    assert second.step_cosine < 0.999


@pytest.mark.parametrize(("lr", "dtype", "lost", "changed"), [(1e-14, "float32", True, False), (3e-5, "bfloat16", False, True)])
def test_updates_lost_in_rounding_are_counted(
    lr: float, dtype: str, lost: bool, changed: bool, tiny: Path, tmp_path: Path
) -> None:
    overrides = SMALL | TRACED | {"optimizer.lr": lr, "model.dtype": dtype, "train.steps": 1}
    (totals,) = read_trace(loop.train(recipe(tiny, **overrides), tmp_path / "run").folder, 1).updates
    assert (totals.lost_share > 0.5) == lost
    assert (totals.changed_share > 0.5) == changed
    assert totals.changed_share_compute < 0.1


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lora, kl": {"model.lora": {"rank": 2}, "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1}},
    "bfloat16": {"model.dtype": "bfloat16"},
    "two inner epochs, rows of one answer": {"train.inner_epochs": 2, "train.micro_batch_tokens": 20},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_traced_run_ends_in_the_same_bits_and_its_replay_gives_the_same_trace(kind: str, tiny: Path, tmp_path: Path) -> None:
    """Three times the same run: untraced, traced as it goes, and traced afterwards by replay."""
    plain = loop.train(recipe(tiny, **SMALL | KINDS[kind]), tmp_path / "plain").folder
    traced = loop.train(recipe(tiny, **SMALL | KINDS[kind] | TRACED), tmp_path / "traced").folder
    one, other = Run.open(plain), Run.open(traced)
    assert [line[WEIGHTS_CHECKSUM] for line in one.metrics] == [line[WEIGHTS_CHECKSUM] for line in other.metrics]
    assert [one.step(number) for number in one.steps] != []
    assert all(one.step(number).updates == other.step(number).updates for number in one.steps)
    assert [line["time/trace_s"] > 0 for line in other.metrics] == [True] * 3
    assert not has_trace(plain, 2)
    report, found = replay_traced(one, plan_replay(one, 2))
    assert report.bit_for_bit
    assert found == read_trace(plain, 2)
    live = read_trace(traced, 2)
    for name in ("updates", "positions", "check", "texts", "matrices", "notes"):
        assert getattr(found, name) == getattr(live, name), name
    assert live.contrast is None
    assert live.check is not None
    assert live.check.largest_relative <= 1e-6


@pytest.fixture(scope="module")
def one_prompt(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contrast]:
    """A step on one prompt alone, so that the group's gradient is the step's."""
    overrides = SMALL | {"train.steps": 1, "train.prompts_per_step": 1, "train.group_size": 4}
    folder = loop.train(recipe(tiny, **overrides), tmp_path_factory.mktemp("one") / "run").folder
    record = Run.open(folder)
    _, trace = replay_traced(record, plan_replay(record, 1))
    assert trace is not None
    assert trace.contrast is not None
    return folder, trace.contrast


def plain_gradients(folder: Path, contrast: Contrast) -> dict[str, dict[str, torch.Tensor]]:
    """The three gradients by plain transformers in float64, one answer at a time."""
    report, (reference,) = Run.open(folder).step(1), [t for t in read_trace(folder, 1).texts if t.kind == "reference"]
    model = AutoModelForCausalLM.from_pretrained(saved(folder, 0)).double()
    prompt = report.groups[0].prompt.token_ids
    streams = {stream.rollout: stream for stream in report.updates[0].streams if stream.computed}

    def gradient(parts: list[tuple[tuple[int, ...], list[float]]], temperature: float) -> dict[str, torch.Tensor]:
        model.zero_grad()
        for answer, weights in parts:
            logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
            logprobs = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(answer)[:, None])[:, 0]
            (logprobs * torch.tensor(weights, dtype=torch.float64)).sum().backward()  # type: ignore[no-untyped-call]
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    answers = {r.id: (r.completion.token_ids, list(streams[r.id].token_weight)) for r in report.rollouts if r.id in streams}
    negative = [value for key, value in answers.items() if streams[key].advantage[0] < 0]
    sft = gradient([(reference.token_ids, [-1 / len(reference.token_ids)] * len(reference.token_ids))], 1.0)
    return {
        "sft": sft,
        "grpo": gradient(list(answers.values()), TEMPERATURE),
        "grpo_negative": gradient(negative, TEMPERATURE),
    }


def flat(gradient: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.flatten() for value in gradient.values()])


def test_gradients_beside_each_other_are_those_of_plain_autograd(one_prompt: tuple[Path, Contrast]) -> None:
    folder, contrast = one_prompt
    expected = plain_gradients(folder, contrast)
    sft = flat(expected["sft"])
    assert [direction.name for direction in contrast.directions] == ["sft", "grpo", "grpo_negative"]
    for direction in contrast.directions:
        gradient = flat(expected[direction.name])
        assert direction.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-4)
        assert direction.cosine_with_sft == pytest.approx(float(gradient @ sft / gradient.norm() / sft.norm()), abs=1e-5)
    step = read_trace(folder, 1).updates[0]
    assert contrast.directions[1].gradient_norm == pytest.approx(step.gradient_norm, rel=1e-5)
    layer = next(layer for layer in contrast.layers if layer.layer == "layers.1")
    inside = {name: value for name, value in expected["grpo"].items() if ".layers.1." in name}
    assert layer.grpo_norm == pytest.approx(float(flat(inside).norm()), rel=1e-4)
    assert contrast.step_norm == pytest.approx(0.5 / (len(read_reference(folder).token_ids) * float(sft.norm())), rel=1e-4)


def read_reference(folder: Path) -> TracedText:
    return next(text for text in read_trace(folder, 1).texts if text.kind == "reference")


def test_effects_are_those_of_a_moved_model(one_prompt: tuple[Path, Contrast]) -> None:
    """Plain transformers, moved by hand along plain gradients; SFT's own target gains half a nat at temperature 1."""
    folder, contrast = one_prompt
    prompt = Run.open(folder).step(1).groups[0].prompt.token_ids
    texts = [text for text in read_trace(folder, 1).texts if text.kind == "rollout"] + [read_reference(folder)]
    assert contrast.answers == ("member 0", "member 1", "member 2", "member 3", "reference")
    start = AutoModelForCausalLM.from_pretrained(saved(folder, 0)).double()
    before = [_total(start, prompt, text) for text in texts]
    for direction in contrast.directions:
        gradient = plain_gradients(folder, contrast)[direction.name]
        moved = AutoModelForCausalLM.from_pretrained(saved(folder, 0)).double()
        with torch.no_grad():
            for name, weight in moved.named_parameters():
                weight -= gradient[name] * contrast.step_norm / flat(gradient).norm()
        expected = [_total(moved, prompt, text) - value for text, value in zip(texts, before, strict=True)]
        assert direction.changes == pytest.approx(expected, abs=2e-4)
    assert 0.4 < contrast.directions[0].changes[-1] < 0.5 / TEMPERATURE + 0.1


def _total(model: Any, prompt: tuple[int, ...], text: TracedText) -> float:
    rows = next_token_logprobs(model, prompt, text.token_ids)
    return sum(float(row[token]) for row, token in zip(rows, text.token_ids, strict=True))


def test_bfloat16_is_put_beside_sft_in_float32(tiny: Path, tmp_path: Path) -> None:
    folder = loop.train(recipe(tiny, **SMALL, **{"model.dtype": "bfloat16"}), tmp_path / "run").folder
    report, trace = traced_by_replay(folder, 2)
    assert report.bit_for_bit
    assert trace is not None
    assert trace.contrast is not None
    assert trace.contrast.precision == "float32"
    assert 0.4 < trace.contrast.directions[0].changes[-1] < 0.5 / TEMPERATURE + 0.1


def traced_by_replay(folder: Path, step: int, group: int | None = None) -> tuple[ReplayReport, Trace | None]:
    record = Run.open(folder)
    return replay_traced(record, plan_replay(record, step), group=group)


def test_the_group_may_be_chosen(run: Path) -> None:
    groups = Run.open(run).step(2).groups
    able = [group.rollouts[0].id.group for group in groups if not group.is_tied]
    _, trace = traced_by_replay(run, 2, group=able[-1])
    assert trace is not None
    assert trace.contrast is not None
    assert trace.contrast.group == able[-1]
    with pytest.raises(ConfigError, match="group 9 cannot be put beside SFT"):
        traced_by_replay(run, 2, group=9)
