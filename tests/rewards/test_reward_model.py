"""The reward `reward_model`: batches against one row at a time, on small models of three kinds saved to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, LlamaConfig

from tests.rewards.judging import asked, judge
from tests.tiny import END, VOCAB_SIZE, save_tiny, tiny_tokenizer
from toishi.errors import ConfigError, ModelError
from toishi.rewards.reward_model import RewardModelReward
from toishi.rewards.scripted import answered
from toishi.types import Prompt

ANSWERS = ["yes", "", "the answer is 12, since 5 + 7 = 12", "no no no", "a", "the cat is on the mat and the cat is on the mat"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": VOCAB_SIZE}


def save_classifier(folder: Path, kind: str, *, pad: str = "<pad>", template: bool = True, **options: Any) -> Path:
    """A small classifier with random weights and its tokenizer."""
    tokenizer = tiny_tokenizer(pad=pad) if template else tiny_tokenizer(chat_template=None, pad=pad)
    pad_id = {"pad_token_id": tokenizer.pad_token_id}
    sizes = SIZES | {"max_position_embeddings": 128, "num_labels": 1, "initializer_range": 0.3} | pad_id | options
    config = LlamaConfig(**sizes, num_key_value_heads=2) if kind == "llama" else BertConfig(**sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("bert"), "bert", template=False)


def alone(folder: Path, encode: Any) -> list[float]:
    """Each answer's logit from a forward of its own, without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [model(**encode(tokenizer, text)).logits[0, 0].item() for text in ANSWERS]


def chat(tokenizer: Any, text: str) -> Any:
    turns = [{"role": "user", "content": "What is 5 + 7?"}, {"role": "assistant", "content": text}]
    return tokenizer(tokenizer.apply_chat_template(turns, tokenize=False), add_special_tokens=False, return_tensors="pt")


def values(reward: RewardModelReward, prompt: Prompt | None = None) -> list[float]:
    judged = reward.score_group(prompt or asked(), [answered(text) for text in ANSWERS])
    assert {judgement.status for (judgement,) in judged} == {"ok"}
    return [judgement.value for (judgement,) in judged if judgement.value is not None]


@pytest.mark.parametrize("batch_tokens", [1, 60, 8192])
def test_a_causal_classifier_in_batches_equals_one_row_at_a_time(llama: Path, batch_tokens: int) -> None:
    expected = alone(llama, chat)
    assert max(expected) - min(expected) > 0.1
    assert values(RewardModelReward(model=str(llama), batch_tokens=batch_tokens)) == pytest.approx(expected, abs=1e-5)
    as_turns = Prompt(id="a", messages=({"role": "user", "content": "What is 5 + 7?"},))
    assert values(RewardModelReward(model=str(llama)), as_turns) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("pad", ["<pad>", END])
def test_a_pad_token_that_is_the_end_token_does_not_move_the_score(tmp_path: Path, pad: str) -> None:
    folder = save_classifier(tmp_path, "llama", pad=pad)
    assert values(RewardModelReward(model=str(folder))) == pytest.approx(alone(folder, chat), abs=1e-5)


def test_without_any_pad_token_rows_are_scored_one_by_one(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "llama", pad_token_id=None)
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    assert values(RewardModelReward(model=str(folder))) == pytest.approx(alone(folder, chat), abs=1e-5)


def test_the_model_s_pad_token_is_used_and_not_the_tokenizer_s(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "llama", pad_token_id=1)  # the tokenizer's is 0
    assert values(RewardModelReward(model=str(folder))) == pytest.approx(alone(folder, chat), abs=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 60, 8192])
def test_an_encoder_reads_question_and_answer_as_a_pair(bert: Path, batch_tokens: int) -> None:
    expected = alone(bert, lambda tokenizer, text: tokenizer("What is 5 + 7?", text, return_tensors="pt"))
    assert values(RewardModelReward(model=str(bert), batch_tokens=batch_tokens)) == pytest.approx(expected, abs=1e-5)
    joined = alone(bert, lambda tokenizer, text: tokenizer("What is 5 + 7?" + text, return_tensors="pt"))
    assert values(RewardModelReward(model=str(bert), form="text")) == pytest.approx(joined, abs=1e-5)


def test_centring_takes_out_the_mean_of_the_answers_that_have_a_score(llama: Path) -> None:
    plain = values(RewardModelReward(model=str(llama)))
    centred = values(RewardModelReward(model=str(llama), centre="group"))
    mean = sum(plain) / len(plain)
    assert centred == pytest.approx([value - mean for value in plain], abs=1e-9)
    short = RewardModelReward(model=str(llama), centre="group", max_tokens=30)
    judged = [
        judgement for (judgement,) in short.score_group(asked(), [answered(text) for text in (*ANSWERS[:2], "long " * 99)])
    ]
    assert [judgement.status for judgement in judged] == ["ok", "ok", "failed"]
    kept = [judgement.value for judgement in judged if judgement.value is not None]
    assert kept == pytest.approx([(plain[0] - plain[1]) / 2, (plain[1] - plain[0]) / 2], abs=1e-5)


def test_a_text_that_is_too_long_is_refused_and_leaves_its_siblings_alone(llama: Path) -> None:
    reward = RewardModelReward(model=str(llama))
    (alone_,), (long,) = reward.score_group(asked(), [answered("yes"), answered("1" * 500)])
    assert (long.status, long.value, long.kind) == ("failed", None, "too_long")
    assert "it takes 128; nothing is cut" in long.reason
    assert alone_.value == pytest.approx(values(reward)[0], abs=1e-6)
    length = len(chat(tiny_tokenizer(), "yes")["input_ids"][0])
    assert judge(RewardModelReward(model=str(llama), max_tokens=length), "yes", asked()).status == "ok"
    assert judge(RewardModelReward(model=str(llama), max_tokens=length - 1), "yes", asked()).kind == "too_long"


def test_the_prefill_is_a_part_of_the_answer(llama: Path) -> None:
    reward = RewardModelReward(model=str(llama))
    assert judge(reward, "yes", asked(prefill="the ")).value == pytest.approx(judge(reward, "the yes", asked()).value, abs=1e-6)


def test_the_label_is_chosen_by_name_or_number(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "llama", num_labels=3, id2label={0: "bad", 1: "fair", 2: "good"})
    with pytest.raises(ConfigError, match=r"label: the model has 3 labels; say which one.*'good'"):
        RewardModelReward(model=str(folder)).prepare([])
    with pytest.raises(ConfigError, match="label: the model has no label 'god'"):
        RewardModelReward(model=str(folder), label="god").prepare([])
    logits = {label: judge(RewardModelReward(model=str(folder), label=label), "yes", asked()).value for label in ("good", 2, 0)}
    assert logits["good"] == logits[2] != logits[0]


def test_what_cannot_be_a_reward_model_is_refused(tmp_path: Path, llama: Path, bert: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward 'reward_model'\.model: the folder .* does not exist"):
        RewardModelReward(model="./no/such/folder")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        RewardModelReward(model=str(tmp_path / "empty"))
    generator = save_tiny(tmp_path / "generator")
    with pytest.raises((ModelError, ConfigError), match=r"random numbers|labels"):
        RewardModelReward(model=str(generator), label=0).prepare([])
    with pytest.raises(ConfigError, match="has no chat template"):
        RewardModelReward(model=str(bert), form="chat").prepare([])
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="device: cuda was asked for, but torch sees no GPU here"):
            RewardModelReward(model=str(llama), device="cuda").prepare([])


def test_loading_says_nothing_and_the_memory_can_be_let_go(llama: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reward = RewardModelReward(model=str(llama), batch_tokens=77)
    capfd.readouterr()
    reward.prepare([])
    assert capfd.readouterr() == ("", "")
    before = values(reward)
    reward.close()
    assert values(reward) == before


def test_several_turns_need_the_template(llama: Path) -> None:
    turns = tuple({"role": role, "content": "hi"} for role in ("user", "assistant", "user"))
    prompt = Prompt(id="a", messages=turns)
    assert judge(RewardModelReward(model=str(llama)), "yes", prompt).status == "ok"
    pair = RewardModelReward(model=str(llama), form="pair")
    assert "the prompt has 3 turns" in str(pair.problem(prompt))
    assert judge(pair, "yes", prompt).status == "failed"


def test_weights_that_give_nan_are_a_failure(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "llama")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.score.weight.fill_(float("nan"))
    model.save_pretrained(folder)
    judgement = judge(RewardModelReward(model=str(folder)), "yes", asked())
    assert (judgement.status, judgement.value, judgement.kind) == ("failed", None, "not_finite")
