"""Distillation: who may teach whom, what a step learns, the record of such runs, and answers of a teacher with other tokens."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import run_command
from tests.making import completion, settings, tiny_policy
from tests.seeds import SEEDS
from tests.test_written import VOWELS
from tests.tiny import save_tiny, tiny_model, tiny_tokenizer
from toishi import loop
from toishi.algorithms.apply import assign_advantages, token_objective
from toishi.algorithms.rows import algorithm
from toishi.check import check
from toishi.config import Config, load_config
from toishi.errors import ConfigError, ModelError
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import explain_chain
from toishi.ops.divergence import divergence
from toishi.policy.head import FromHidden
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.teacher import LocalTeacher, tokenizers_differ
from toishi.record.reader import Run
from toishi.replay.plan import plan_replay
from toishi.replay.redo import replay
from toishi.types import Group, Prompt, Rollout, RolloutId
from toishi.update import update_policy, with_reference

TAUGHT = ("gkd", "opd", "opd_sampled")


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("student") / "llama", "llama")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another family, wider and deeper, with the same tokens."""
    return save_tiny(tmp_path_factory.mktemp("teacher") / "qwen3", "qwen3", seed=5, hidden_size=48, num_hidden_layers=3)


def config(student: Path, wise: Path, row: Any = "opd", **overrides: Any) -> Config:
    plain: dict[str, Any] = {
        "model": {"name": str(student), "dtype": "float32"},
        "teacher": {"name": str(wise)},
        "task": {"name": "sums", "low": 1, "high": 9, "heldout": 4, "written": True},
        "rewards": [VOWELS],
        "algorithm": row,
        "sampling": {"max_new_tokens": 8},
        "train": {"steps": 3, "prompts_per_step": 4, "group_size": 1},
        "optimizer": {"lr": 1e-3},
        "evaluation": {"prompts": 0},
    }
    return load_config(plain, overrides)


def rollouts(*answers: tuple[int, ...]) -> Group:
    prompt = Prompt(id="p", text="?", token_ids=(5, 6, 7))
    return Group(
        prompt=prompt,
        rollouts=tuple(
            Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=completion(ids), reward=0.0)
            for member, ids in enumerate(answers)
        ),
    )


# who may teach whom


def test_other_tokens_are_refused_with_what_differs_and_what_works_instead(
    student: Path, teacher: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(teacher, other)
    file = other / "tokenizer.json"
    text = json.loads(file.read_text("utf-8"))
    vocabulary = text["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(text), encoding="utf-8")
    made = config(student, other)
    words = (
        r"2 of 128 tokens differ, such as 'a', which is token \d+ for the student and token \d+ for the teacher.*toishi collect"
    )
    with pytest.raises(ModelError, match=words):
        loop.train(made, tmp_path / "run")
    report = check(made)
    assert not report.ok
    assert any("toishi collect" in finding.message for finding in report.findings)


def test_the_same_tokens_that_cut_texts_otherwise_are_seen() -> None:
    one, other = tiny_tokenizer(), tiny_tokenizer()
    assert tokenizers_differ(one, other) == ""
    core = json.loads(other.backend_tokenizer.to_str())
    core["model"]["merges"] = core["model"]["merges"][:1]
    other._tokenizer = type(other.backend_tokenizer).from_str(json.dumps(core))
    assert "they have the same tokens and cut" in tokenizers_differ(one, other)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"teacher": None}, "algorithm 'opd' learns from a teacher: set teacher to"),
        ({"algorithm": "grpo", "train.group_size": 2}, "algorithm 'grpo' asks none"),
        ({"teacher.lora": {}}, "teacher.lora is about what is trained"),
        ({"teacher.device": "cpu"}, "teacher.device=cpu has no effect"),
        ({"record.trace_influence": True}, "record.trace_influence divides a change among answers"),
        (
            {"algorithm": {"name": "opd_sampled", "reference": "step_0"}},
            "credit 'teacher' compares with the teacher's log-probs",
        ),
        ({"algorithm": {"name": "opd", "reference": "teacher"}}, "reference 'teacher' has no effect"),
        ({"algorithm": {"name": "gkd", "policy_term": True}}, "source 'mixed' puts written answers"),
    ],
)
def test_what_contradicts_is_refused(student: Path, teacher: Path, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(student, teacher, **overrides)


# what a step learns


def learned(row: str, group: Group, **choices: Any) -> tuple[float, dict[str, torch.Tensor], tuple[Group, ...]]:
    policy, plain = tiny_policy("gpt2"), settings(type(algorithm(row)).model_validate(algorithm(row).model_dump() | choices))
    wise = Policy(tiny_model("gpt2", seed=9, dtype=torch.float64).requires_grad_(False), compute_dtype=torch.float64)
    policy.teacher = LocalTeacher.of(wise, policy)
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    given = assign_advantages(with_reference(policy, [group], plain), plain.algorithm, max_new_tokens=8)
    (update,) = update_policy(policy, make_optimizer(policy, plain.optimizer), given, plain, step=1)
    lr = plain.optimizer.lr
    return update.scalars["update/loss"], {n: (before[n] - m.detach()) / lr for n, m in policy.masters.items()}, given


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_loss_and_gradient_are_those_of_whole_logits_in_float64(beta: float) -> None:
    """The plain way: one padded pass, all logits, the definition, autograd. Logits are divided by the temperature, .7."""
    answers = ((9, 10, 4), (11, 4))
    loss, gradient, _ = learned("opd", rollouts(*answers), divergence_beta=beta)
    model, wise = (tiny_model("gpt2", seed=seed, dtype=torch.float64) for seed in (0, 9))
    rows = []
    for answer in answers:
        ids = torch.tensor([[5, 6, 7, *answer]])
        logs = [torch.log_softmax(one(ids).logits[0, 2:-1] / 0.7, -1) for one in (model, wise)]
        rows.append(divergence(logs[0], logs[1].detach(), beta))
    plain = torch.cat(rows).mean()
    plain.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(plain.item(), rel=1e-12)
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(gradient[name], weight.grad, rtol=1e-9, atol=1e-12)


def test_in_bfloat16_the_gradient_is_the_exact_one_but_for_rounding() -> None:
    """The head's gradient comes by two ways, from log-probs and from whole logits, and both reach the fp32 master."""

    def flat(dtype: torch.dtype) -> torch.Tensor:
        policy, plain = tiny_policy("llama", dtype), settings(mixed)
        wise = Policy(tiny_model("llama", seed=9).requires_grad_(False), compute_dtype=dtype)
        policy.teacher = LocalTeacher.of(wise, policy)
        group = rollouts((9, 10, 4), (11, 4))
        group = replace(group, rollouts=tuple(replace(one, reward=float(one.id.member)) for one in group.rollouts))
        given = assign_advantages([group], plain.algorithm, max_new_tokens=8)
        update_policy(policy, make_optimizer(policy, plain.optimizer), given, plain, step=1)
        return torch.cat([master.grad.flatten().double() for master in policy.masters.values() if master.grad is not None])

    mixed = type(algorithm("grpo")).model_validate(algorithm("grpo").model_dump() | {"divergence_coef": 0.5})
    exact, rounded = flat(torch.float64), flat(torch.bfloat16)
    assert float((rounded - exact).norm() / exact.norm()) < 0.05


def test_logits_exist_for_few_places_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    logits = FromHidden.logits

    def counted(self: FromHidden, places_n: torch.Tensor) -> torch.Tensor:
        asked.append(len(places_n))
        return logits(self, places_n)

    monkeypatch.setattr(FromHidden, "logits", counted)
    whole = learned("opd", rollouts((9, 10, 4), (11, 4), (12, 13, 14, 4)))
    monkeypatch.setattr("toishi.ops.divergence.BLOCK_NUMBERS", 2 * 128)
    asked.clear()
    split = learned("opd", rollouts((9, 10, 4), (11, 4), (12, 13, 14, 4)))
    assert max(asked) == 2
    assert len(asked) == 2 * 2 * 5, "student and teacher, forward and backward, five blocks of nine places"
    assert split[0] == pytest.approx(whole[0], rel=1e-12)
    for name, values in whole[1].items():
        torch.testing.assert_close(split[1][name], values, rtol=1e-10, atol=1e-13)


def test_the_sampled_form_is_the_whole_one_on_average() -> None:
    """Summed over all words by their probability, the sampled token's gradient is that of KL(policy || teacher) there."""
    draw = torch.Generator().manual_seed(4)
    logits = torch.randn(5, generator=draw, dtype=torch.float64).requires_grad_()
    teacher = torch.log_softmax(torch.randn(5, generator=draw, dtype=torch.float64), -1)
    (wanted,) = torch.autograd.grad(divergence(torch.log_softmax(logits, -1)[None], teacher[None], 1.0).sum(), logits)
    total = torch.zeros(5, dtype=torch.float64)
    for word, probability in enumerate(torch.softmax(logits, -1).tolist()):
        own = torch.log_softmax(logits, -1)[word : word + 1]
        objective = token_objective(
            algorithm("opd_sampled"), logprobs_N=own, entropy_N=torch.zeros(1), old_logprobs_N=own.detach(),
            advantages_N=(teacher[word] - own.detach()), sequence_N=torch.tensor([0]), lengths_B=torch.tensor([1]),
            num_tokens=1, num_sequences=1, max_length=1, ref_logprobs_N=teacher[word : word + 1],
        )  # fmt: skip
        total += probability * torch.autograd.grad(objective.loss, logits)[0]
    torch.testing.assert_close(total, wanted, rtol=1e-10, atol=1e-13)


def test_a_tokens_advantage_is_how_much_likelier_the_teacher_finds_it() -> None:
    _, _, (group,) = learned("opd_sampled", rollouts((9, 10, 4)))
    (rollout,) = group.rollouts
    wise = tiny_model("gpt2", seed=9, dtype=torch.float64)
    with torch.no_grad():
        logs = torch.log_softmax(wise(torch.tensor([[5, 6, 7, 9, 10, 4]])).logits[0, 2:-1] / 0.7, -1)
    expected = [float(logs[place, token]) + 1.0 for place, token in enumerate((9, 10, 4))]  # sampled at a log-prob of -1
    assert rollout.advantage == pytest.approx(tuple(expected), rel=1e-9)


def test_heads_of_unequal_width_are_compared_on_the_words_that_both_have() -> None:
    """128 words and eight rows that no token has: the divergence is that of the 128."""
    wide = tiny_model("gpt2", seed=9, dtype=torch.float64, vocab_size=136)
    policy = tiny_policy("gpt2")
    policy.teacher = LocalTeacher.of(Policy(wide.requires_grad_(False), compute_dtype=torch.float64), policy)
    plain = settings("opd")
    given = assign_advantages([rollouts((9, 4))], plain.algorithm, max_new_tokens=8)
    (update,) = update_policy(policy, make_optimizer(policy, plain.optimizer), given, plain, step=1)
    ids = torch.tensor([[5, 6, 7, 9, 4]])
    with torch.no_grad():
        own, other = (one(ids).logits[0, 2:-1, :128] / 0.7 for one in (tiny_model("gpt2", dtype=torch.float64), wide))
    expected = divergence(torch.log_softmax(own, -1), torch.log_softmax(other, -1), 1.0)
    assert update.streams[0].divergence == pytest.approx(expected.tolist(), rel=1e-9)


# runs


@pytest.mark.parametrize("row", [*TAUGHT, {"name": "gkd", "source": "written"}, {"name": "grpo", "divergence_coef": 0.5}])
def test_the_record_is_whole_and_the_step_comes_out_again(student: Path, teacher: Path, tmp_path: Path, row: Any) -> None:
    size = {"train.group_size": 2} if row == {"name": "grpo", "divergence_coef": 0.5} else {}
    run = Run.open(loop.train(config(student, teacher, row, **size), tmp_path / "run").folder)
    assert audit(run).findings == ()
    assert explain_chain(run, 2).broken is None
    assert replay(run, plan_replay(run, 3)).bit_for_bit
    assert run.run["teacher"]["architecture"] == "Qwen3ForCausalLM"
    for line in run.metrics:
        assert (line["update/divergence"] is None) == (row == "opd_sampled")
        assert (line["update/kl_policy_ref"] is None) == (row != "opd_sampled")
    if row == "gkd":
        written = [one.scores[0].reward == "written" for step in (1, 2, 3) for one in run.step(step).rollouts]
        assert set(written) == {True, False}


def test_a_resumed_run_ends_in_the_same_weights_and_refuses_another_teacher(
    student: Path, teacher: Path, tmp_path: Path
) -> None:
    def checksums(folder: Path) -> list[Any]:
        return [line["update/weights_checksum"] for line in Run.open(folder).metrics]

    own = tmp_path / "teacher"
    shutil.copytree(teacher, own)
    made = config(student, own, "gkd", **{"train.steps": 4, "checkpoint.every": 2})
    loop.train(made, tmp_path / "whole")
    folder = loop.train(made, tmp_path / "cut").folder
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    loop.resume(folder)
    assert checksums(folder) == checksums(tmp_path / "whole")
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    save_tiny(own, "qwen3", seed=6, hidden_size=48, num_hidden_layers=3)
    with pytest.raises(ModelError, match="the teacher is not the model that this run started with"):
        loop.resume(folder)


def test_check_counts_the_teachers_memory(student: Path, teacher: Path) -> None:
    report = check(config(student, teacher))
    assert report.ok, [finding.message for finding in report.findings]
    assert report.memory is not None
    parts = {part.name: part.num_bytes for part in report.memory.estimate.always}
    count = sum(weight.numel() for weight in tiny_model("qwen3", hidden_size=48, num_hidden_layers=3).parameters())
    assert parts["teacher"] == 4 * count


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_sampled_answers_is_what_was_asked(student: Path, teacher: Path, tmp_path: Path, share: float) -> None:
    made = config(student, teacher, {"name": "gkd", "sampled_share": share}, **{"train.steps": 1})
    run = Run.open(loop.train(made, tmp_path / "run").folder)
    written = [one.scores[0].reward == "written" for one in run.step(1).rollouts]
    assert written == [share == 0.0] * 4


# One sampled token says less than the whole distribution: its gradient is noisier, and as many steps need a larger one each.
RATES = {"gkd": 3e-3, "opd": 3e-3, "opd_sampled": 6e-3}


@pytest.mark.parametrize("row", TAUGHT)
@pytest.mark.parametrize("seed", SEEDS)
def test_students_come_nearer_to_their_teacher(student: Path, teacher: Path, tmp_path: Path, row: str, seed: int) -> None:
    """The divergence (of opd_sampled its sampled estimate) falls below 0.7 of where it began: a limit from before any run."""
    options = {"train.steps": 60, "train.prompts_per_step": 8, "optimizer.lr": RATES[row], "seed": seed, "checkpoint.every": 0}
    run = Run.open(loop.train(config(student, teacher, row, **options), tmp_path / "run").folder)
    name = "update/kl_policy_ref" if row == "opd_sampled" else "update/divergence"
    first, last = (sum(line[name] for line in part) / 5 for part in (run.metrics[:5], run.metrics[-5:]))
    assert last < 0.7 * first


def test_answers_of_a_teacher_with_other_tokens_teach_by_sft(student: Path, tmp_path: Path) -> None:
    """Sequence-level: the teacher's answers, those that the reward lets through, become the rows of SFT."""
    other = save_tiny(tmp_path / "other", "gpt2", seed=7)
    tiny_tokenizer(add_bos=True).save_pretrained(other)
    recipe = tmp_path / "recipe.json"
    plain = config(student, other, "opd").model_dump(mode="json", exclude_unset=True)
    plain |= {"algorithm": "grpo", "train": {"group_size": 2}}
    del plain["teacher"]
    recipe.write_text(json.dumps(plain), encoding="utf-8")
    out = tmp_path / "sft.jsonl"
    ended = run_command(
        "collect", recipe, "--model", other, "--prompts", "12", "-n", "4", "--threshold", "0.1", "--keep-truncated", "-o", out
    )
    assert ended.code == 0, ended.err
    kept = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert all(row["reward"] >= 0.1 for row in kept)
    rows = {
        "algorithm": "sft", "task": {"name": "file", "path": str(out), "prompt_column": "messages", "heldout": 0},
        "train": {"steps": 30, "prompts_per_step": 4, "group_size": 1}, "optimizer.lr": 3e-3, "sampling.max_new_tokens": 32,
    }  # fmt: skip
    base = {key: value for key, value in plain.items() if key in ("model", "rewards", "evaluation")}
    run = Run.open(loop.train(load_config(base, rows), tmp_path / "run").folder)
    losses = [line["update/loss"] for line in run.metrics]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize("row", TAUGHT)
def test_the_commands_know_such_a_run(student: Path, teacher: Path, tmp_path: Path, row: str) -> None:
    recipe, folder = tmp_path / "recipe.json", tmp_path / "run"
    options = {"record.folder": str(tmp_path), "record.trace_every": 2, "evaluation.prompts": 4}
    recipe.write_text(config(student, teacher, row, **options).model_dump_json(exclude_unset=True))
    for command in (
        ("check", recipe), ("train", recipe, "--out", folder), ("explain", folder), ("explain", folder, "--step", "2"),
        ("explain", folder, "--step", "2", "--group", "0", "--member", "0"), ("audit", folder),
        ("replay", folder, "--step", "3"), ("evaluate", folder), ("algorithms", row),
    ):  # fmt: skip
        ended = run_command(*command, width=200)
        assert ended.code == 0, (command, ended.out, ended.err)
