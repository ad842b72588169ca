"""Training on answers that stand in the data: masks, refusals, equalities with sampled methods, and the record of such runs."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.making import completion, settings, tiny_policy
from tests.tiny import CHATML, save_tiny, tiny_model, tiny_tokenizer
from toishi import loop
from toishi.algorithms.apply import assign_advantages
from toishi.check import check
from toishi.config import load_config
from toishi.errors import ConfigError, DataError, ModelError
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import explain_chain
from toishi.given import NOTHING_GIVEN, the_task
from toishi.policy.chat import Renderer
from toishi.policy.optimizer import make_optimizer
from toishi.record.reader import Run
from toishi.replay.plan import plan_replay
from toishi.replay.redo import replay
from toishi.types import Group, Message, Prompt, Rollout, RolloutId
from toishi.update import update_policy
from toishi.written import look_at_rows

VOWELS = {"name": "vowels", "kind": "function", "function": "tests.test_written:vowels"}
SHORT: dict[str, Any] = {"model": {"dtype": "float32"}, "evaluation": {"prompts": 0}, "sampling": {"max_new_tokens": 24}}
DROPS_THOUGHTS = CHATML.replace(
    "message['content']", "(message['content'] if loop.last else message['content'].split('</think>')[-1])"
)
MARKED = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ (message['content'] if loop.last else message['content'].split('</think>')[-1]) + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vowels(completions: list[Any], **columns: object) -> list[float]:
    """Share of vowels, of answers in chats and in texts."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [sum(sign in "aeiou" for sign in text) / max(1, len(text)) for text in texts]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def renderer(template: str | None = CHATML) -> Renderer:
    return Renderer(tiny_tokenizer(chat_template=template), tiny_model("llama"))


def turns(*texts: str) -> tuple[Message, ...]:
    return tuple({"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts))


def spoken(one: Renderer, ids: Sequence[int], mask: Sequence[int]) -> list[str]:
    """The text of each run of tokens with loss."""
    runs: list[list[int]] = []
    for place, (token, trained) in enumerate(zip(ids, mask, strict=True)):
        if trained and (place == 0 or not mask[place - 1]):
            runs.append([])
        if trained:
            runs[-1].append(token)
    return ["".join(one.pieces(run)) for run in runs]


def test_each_assistant_turn_has_loss_with_the_token_that_ends_it_and_nothing_else() -> None:
    one = renderer()
    conversation = turns("hello", "the cat", "and", "sat")
    prompt = one.render(Prompt(id="a", messages=conversation[:1]))
    found = one.written(prompt, conversation[1:])
    assert spoken(one, found.token_ids, found.loss_mask) == ["the cat<|im_end|>", "sat<|im_end|>"]
    whole = tiny_tokenizer().apply_chat_template(list(conversation), tokenize=True, return_dict=False)
    assert list(prompt.token_ids + found.token_ids) == whole[:-1], "all but the line break after the last turn"
    assert (found.sampled_logprobs, found.entropies, found.finish_reason) == ((), (), "stop")


def test_plain_answers_end_with_the_stop_token() -> None:
    one = renderer(None)
    found = one.written(one.render(Prompt(id="a", text="2+3? ")), "5")
    assert spoken(one, found.token_ids, found.loss_mask) == ["5<|im_end|>"]


def test_a_template_that_rewrites_earlier_turns_is_refused_unless_it_marks_what_was_said() -> None:
    conversation = turns("hello", "<think>so</think>the cat", "and", "sat")
    one = renderer(DROPS_THOUGHTS)
    asked = one.render(Prompt(id="a", messages=conversation[:1]))
    with pytest.raises(ModelError, match="row a: the chat template does not tell which tokens the assistant said"):
        one.written(asked, conversation[1:])
    one = renderer(MARKED)
    found = one.written(one.render(Prompt(id="a", messages=conversation[:1])), conversation[1:])
    assert spoken(one, found.token_ids, found.loss_mask) == ["the cat<|im_end|>", "sat<|im_end|>"]


def test_a_template_without_an_end_gets_one_trained() -> None:
    one = renderer(CHATML.replace("<|im_end|>", ""))
    found = one.written(one.render(Prompt(id="a", messages=turns("hello"))), "cat")
    assert found.token_ids[-1] in one.stop_ids
    assert found.loss_mask[-1] == 1


def config(model: Path, rows: Sequence[Any] | None, folder: Path, row: str = "sft", **overrides: Any) -> Any:
    plain: dict[str, Any] = SHORT | {
        "model": {"name": str(model), "dtype": "float32"}, "algorithm": row, "rewards": [VOWELS],
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 2 if row in ("dpo", "ipo") else 1},
    }  # fmt: skip
    if rows is None:
        plain["task"] = {"name": "sums", "low": 1, "high": 9, "heldout": 4, "written": True}
    else:
        path = folder / "rows.jsonl"
        path.write_text("\n".join(json.dumps(one) for one in rows))
        plain["task"] = {"name": "file", "path": str(path), "heldout": 0}
    return load_config(plain, overrides)


ROWS = [{"prompt": "hello", "completion": "cat"}, {"prompt": "the", "completion": "mat"}]


@pytest.mark.parametrize(
    ("rows", "overrides", "words"),
    [
        ([ROWS[0], {"prompt": "the", "completion": " "}], {}, "its written answer is empty"),
        (
            [ROWS[0], {"prompt": "the", "completion": "cat " * 30}],
            {},
            "sampling.max_new_tokens=24. Answers are never cut",
        ),
        ([{"prompt": "a", "answer": "x"}] * 2, {}, "has no 'completion' .answers.column."),
        ([ROWS[0], {"prompt": "the", "completion": None}], {}, "its 'completion' is missing .null.. Fill it or remove the row"),
        ([ROWS[0], {"prompt": "the", "completion": math.nan}], {}, "rows.jsonl:2: its 'completion' is nan.*Fill it or remove"),
        ([ROWS[0], {"prompt": "the", "completion": -math.inf}], {}, "its 'completion' is -inf"),
        ([row | {"worth": -1} for row in ROWS], {"answers.value": "worth"}, "has no place for what is not to be said"),
        ([row | {"worth": "x"} for row in ROWS], {"answers.value": "worth"}, "expected a number .answers.value."),
        ([row | {"completion": [{"role": "assistant", "content": "x"}]} for row in ROWS], {}, "give both in one form"),
        (
            [row | {"completion": [{"role": "user", "content": "x"}]} for row in ROWS],
            {},
            "turns that end with the assistant",
        ),
    ],
)
def test_rows_that_cannot_be_used_forbid_the_start(
    tiny: Path, tmp_path: Path, rows: list[dict[str, Any]], overrides: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        loop.train(config(tiny, rows, tmp_path, **overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_long_rows_are_passed_over_and_counted_when_asked(tiny: Path, tmp_path: Path) -> None:
    rows = [*ROWS, {"prompt": "long", "completion": "cat " * 30}]
    loop.train(config(tiny, rows, tmp_path, **{"answers.too_long": "leave_out"}), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert [one.prompt.shown for step in (1, 2) for one in run.step(step).groups].count("long") == 0
    assert sum(line["prompts/left_out"] for line in run.metrics) >= 1


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"train.group_size": 4}, "train.group_size must be 1, got 4"),
        ({"sampling.temperature": 0.7}, "would divide the logits of written answers"),
        ({"algorithm": {"name": "dpo"}, "train.group_size": 2, "train.inner_epochs": 2}, "so a step has one"),
        ({"algorithm": {"name": "sft", "off_policy": "mask"}}, "written answers have none"),
        ({"algorithm": {"name": "sft", "baseline": "group_mean"}}, "gives one answer to a prompt"),
        ({"algorithm": {"name": "dpo", "reduction": "token_mean"}, "train.group_size": 2}, "sum over an answer's log-probs"),
        (
            {"algorithm": {"name": "grpo", "source": "written_pairs"}, "train.group_size": 2},
            "credit 'preference' compares",
        ),
    ],
)
def test_choices_that_contradict_are_refused(tiny: Path, tmp_path: Path, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(tiny, None, tmp_path, **overrides)


def notes(model: Path, rows: Sequence[Any], folder: Path, row: str = "sft") -> tuple[str, ...]:
    one = config(model, rows, folder, row)
    loaded = Renderer(tiny_tokenizer(), tiny_model("llama"))
    return look_at_rows(one, the_task(one, NOTHING_GIVEN), loaded)


def test_whole_numbers_of_a_table_with_gaps_are_told(tiny: Path, tmp_path: Path) -> None:
    (note,) = notes(tiny, [{"prompt": "a", "completion": 1.0}, {"prompt": "b", "completion": 1.5}], tmp_path)
    assert note.startswith("1 of 2 rows have whole numbers with a decimal point as answers")
    assert notes(tiny, [{"prompt": "a", "completion": 1}], tmp_path) == ()


@pytest.mark.parametrize("template", [None, CHATML])
@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|im_end|>\n"])
def test_an_answer_that_ends_with_the_stop_token_has_it_once(template: str | None, end: str) -> None:
    one = renderer(template)
    asked = Prompt(id="a", text="hello") if template is None else Prompt(id="a", messages=turns("hello"))
    found = one.written(one.render(asked), "the cat" + end)
    assert spoken(one, found.token_ids, found.loss_mask) == ["the cat<|im_end|>"]
    assert found.text == "the cat"
    assert one.whole(one.render(asked), "the cat" + end) == one.whole(one.render(asked), "the cat")
    with pytest.raises(DataError, match="its written answer is empty"):
        one.written(one.render(asked), "<|im_end|>")


def test_another_stop_token_at_the_end_of_plain_text_stays_that_one() -> None:
    one = Renderer(tiny_tokenizer(chat_template=None), tiny_model("llama", eos_token_id=[2, 4]))
    found = one.written(one.render(Prompt(id="a", text="hello")), "cat<|endoftext|>")
    assert one.pieces(found.token_ids)[-1] == "<|endoftext|>"
    assert one.pieces(found.token_ids).count("<|im_end|>") == 0


def test_special_tokens_inside_texts_are_counted_and_told(tiny: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "completion": "cat<|im_end|>"},
        {"prompt": "b", "completion": "cat<|im_end|>\n<|im_start|>user\nhi<|im_end|>"},
        {"prompt": "<|im_start|>hello", "completion": "mat"},
    ]
    (note,) = notes(tiny, rows, tmp_path)
    assert note.startswith("1 of 3 rows with written answers hold special tokens")
    assert "rows.jsonl:2, '<|im_" in note
    report = check(config(tiny, rows, tmp_path))
    told = [finding.message for finding in report.findings if "special tokens" in finding.message]
    assert [message.partition(" hold")[0] for message in told] == ["1 of 3 prompts", "1 of 3 rows with written answers"]
    assert "rows.jsonl:3, '<|im_start|>'" in told[0]


PAIRS = [{"prompt": "hello", "chosen": "cat", "rejected": "mat"}, {"prompt": "the", "chosen": "mat", "rejected": "cat"}]
SAME = {"prompt": "same", "chosen": "cat", "rejected": "cat"}


def test_pairs_of_equal_answers_are_passed_over_and_counted(tiny: Path, tmp_path: Path) -> None:
    (note,) = notes(tiny, [*PAIRS, SAME], tmp_path, "dpo")
    assert note.startswith("1 of 3 rows are passed over: chosen and rejected are the same answer")
    loop.train(config(tiny, [*PAIRS, SAME], tmp_path, "dpo"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert [one.prompt.shown for step in (1, 2) for one in run.step(step).groups].count("same") == 0
    assert sum(line["prompts/left_out"] for line in run.metrics) >= 1


def test_nothing_but_pairs_of_equal_answers_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no row is left: 2 of 2 rows are passed over: chosen and rejected are the same"):
        loop.train(config(tiny, [SAME, SAME | {"prompt": "b"}], tmp_path, "dpo"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_check_forecasts_no_groups_where_answers_are_written(tiny: Path, tmp_path: Path) -> None:
    report = check(config(tiny, PAIRS, tmp_path, "dpo"))
    assert report.forecast is None
    assert not [finding for finding in report.findings if finding.part == "sampling"]
    assert report.ok


def test_whole_chats_become_prompt_and_answer(tiny: Path, tmp_path: Path) -> None:
    rows = [{"messages": list(turns("hello", "the cat", "and", f"sat {n}"))} for n in range(3)]
    options: dict[str, Any] = {"task.conversation_column": "messages", "sampling.max_new_tokens": 40}
    loop.train(config(tiny, rows, tmp_path, **options), tmp_path / "run")
    (rollout, *_) = Run.open(tmp_path / "run").step(1).rollouts
    assert rollout.prompt.messages == turns("hello")
    assert 0 < sum(rollout.completion.loss_mask) < rollout.completion.num_tokens


# equalities: the same gradient as methods that sample


def gradient(row: Any, groups: Sequence[Group]) -> dict[str, Tensor]:
    policy, plain = tiny_policy(), settings(row)
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    given = assign_advantages(groups, plain.algorithm, max_new_tokens=8)
    update_policy(policy, make_optimizer(policy, plain.optimizer), given, plain, step=1)
    return {name: before[name] - master.detach() for name, master in policy.masters.items()}


def sampled(rewards: Sequence[float]) -> Group:
    prompt = Prompt(id="p", text="?", token_ids=(5, 6, 7))
    answers = [completion(ids) for ids in ([9, 10, 4], [11, 12, 4], [13, 14, 4])]
    rollouts = (
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=one, reward=reward)
        for member, (one, reward) in enumerate(zip(answers, rewards, strict=True))
    )
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def as_written(group: Group, worths: Sequence[float | None]) -> list[Group]:
    """Each answer as a row of its own that someone wrote."""
    kept = [(one, worth) for one, worth in zip(group.rollouts, worths, strict=True) if worth is not None]
    return [
        Group(
            prompt=group.prompt,
            rollouts=(
                replace(
                    one, id=RolloutId(1, number, 0), reward=worth,
                    completion=replace(one.completion, sampled_logprobs=(), entropies=()),
                ),
            ),
        )
        for number, (one, worth) in enumerate(kept)
    ]  # fmt: skip


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-9, atol=1e-12)


def test_raft_is_sft_on_ones_own_best_answers() -> None:
    group = sampled([1.0, 0.0, 0.5])
    assert_close(gradient("raft", [group]), gradient("sft", as_written(group, [1.0, None, None])))


def test_the_first_grpo_update_is_sft_with_signed_weights() -> None:
    group = sampled([1.0, 0.0, 0.5])  # mean .5, sample std .5
    worths = [(reward - 0.5) / (0.5 + 1e-4) for reward in (1.0, 0.0, 0.5)]
    assert_close(gradient("grpo", [group]), gradient("sft", as_written(group, worths)))


# the record of such runs


@pytest.mark.parametrize("row", ["sft", "dft", "dpo", "ipo"])
def test_the_chain_holds_and_the_step_comes_out_again(tiny: Path, tmp_path: Path, row: str) -> None:
    made = config(tiny, None, tmp_path, row, **{"train.steps": 3, "optimizer.lr": 1e-3, "record.trace_every": 2})
    loop.train(made, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert audit(run).findings == ()
    for rollout in run.step(2).rollouts:
        assert rollout.completion.sampled_logprobs == ()
    assert all(line["sampler_gap/mean_abs"] is None and line["entropy/mean_nats"] is None for line in run.metrics)
    assert [event for event in run.events if event["kind"] == "health"] == []
    assert explain_chain(run, 2).broken is None
    assert replay(run, plan_replay(run, 3)).bit_for_bit


@pytest.mark.parametrize("row", ["sft", "dpo"])
def test_a_resumed_run_ends_in_the_same_weights(tiny: Path, tmp_path: Path, row: str) -> None:
    def checksums(folder: Path) -> list[Any]:
        return [line["update/weights_checksum"] for line in Run.open(folder).metrics]

    options = {"train.steps": 4, "checkpoint.every": 2}
    loop.train(config(tiny, None, tmp_path, row, **options), tmp_path / "whole")
    folder = tmp_path / "cut"
    loop.train(config(tiny, None, tmp_path, row, **options), folder)
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    loop.resume(folder)
    assert checksums(folder) == checksums(tmp_path / "whole")
