"""A judge in this process: its replies and probabilities against plain transformers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import save_tiny
from toishi.errors import ConfigError, ModelError
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeReply
from toishi.judging.build import JudgeOptions, build_judge, judge_options
from toishi.judging.endpoint import EndpointJudge
from toishi.judging.in_process import InProcessJudge

SCORES = tuple(str(score) for score in range(1, 11))


def question(text: str = "How good?", **options: Any) -> JudgeCall:
    given: dict[str, Any] = {"max_tokens": 8}
    return JudgeCall(messages=({"role": "user", "content": text},), **(given | options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("judge") / "model", "llama", seed=3)


def judge_of(folder: Path, **options: Any) -> InProcessJudge:
    given: dict[str, Any] = {"model": str(folder), "cache": False, "dtype": "float32"}
    return InProcessJudge(JudgeOptions(**(given | options)))


def plain_ids(folder: Path, call: JudgeCall) -> list[int]:
    """The ids by the template of the tokenizer, the begun reply behind it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(list(call.messages), tokenize=False, add_generation_prompt=True) + call.prefix
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def next_probs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)


@pytest.mark.parametrize("prefix", ["", "Rating: [["])
def test_greedy_words_are_those_of_transformers(folder: Path, prefix: str) -> None:
    call = question(prefix=prefix)
    (said,) = judge_of(folder).ask([call])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids = plain_ids(folder, call)
    written = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, pad_token_id=0)[0, len(ids) :]
    ended = any(int(token) in (2, 4) for token in written)
    assert isinstance(said, JudgeReply)
    assert said.text == tokenizer.decode(written, skip_special_tokens=True)
    assert said.finish_reason == ("stop" if ended else "length")


def test_probabilities_of_choices_are_the_sum_over_all_their_spellings(folder: Path) -> None:
    call = question(prefix="Rating: [[", choices=SCORES)
    (said,) = judge_of(folder).ask([call])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    pieces = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    useful = [token for token, piece in pieces.items() if piece.strip() in {"", *"0123456789"} and piece and token > 4]
    ids, expected = plain_ids(folder, call), dict.fromkeys(SCORES, 0.0)
    for count in (1, 2, 3):
        for way in itertools.product(useful, repeat=count):
            written = "".join(pieces[token] for token in way)
            if written.lstrip() not in SCORES or len(written) - len(written.lstrip()) > 1:
                continue
            weight = 1.0
            for at, token in enumerate(way):
                weight *= float(next_probs(model, ids + list(way[:at]))[token])
            after = next_probs(model, ids + list(way))
            longer = sum(float(after[token]) for token, piece in pieces.items() if written.strip() == "1" and piece == "0")
            expected[written.strip()] += weight * (1 - longer)
    assert isinstance(said, JudgeReply)
    assert said.probabilities is not None
    assert said.text == ""
    assert dict(said.probabilities) == pytest.approx(expected, abs=3e-5)
    assert 0 < sum(said.probabilities.values()) < 1


def test_a_sampled_reply_depends_on_the_call_and_the_seed_alone(folder: Path) -> None:
    calls = [question(temperature=1.0, repeat=repeat) for repeat in range(4)]
    alone = [judge_of(folder, batch_rows=1).ask([call])[0] for call in calls]
    assert judge_of(folder, batch_rows=1).ask([calls[2], calls[0], calls[2]]) == [alone[2], alone[0], alone[2]]
    assert len({said.text for said in alone if isinstance(said, JudgeReply)}) > 1
    assert judge_of(folder, batch_rows=1, seed=1).ask(calls) != alone


def test_replies_are_cached_by_the_weights_and_not_by_the_path(folder: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "replies.sqlite")
    calls = [question("a"), question("b", choices=SCORES)]
    judge = judge_of(folder, cache=cache)
    fresh = judge.ask(calls)
    judge.close()
    moved = judge_of(save_tiny(tmp_path / "moved", "llama", seed=3), cache=cache)
    assert [said.cached for said in moved.ask(calls) if isinstance(said, JudgeReply)] == [True, True]
    assert (moved.usage().calls, moved.usage().cached, moved.usage().completion_tokens) == (2, 2, 0)
    moved.close()
    other = judge_of(save_tiny(tmp_path / "other", "llama", seed=4), cache=cache)
    assert [said.cached for said in other.ask(calls) if isinstance(said, JudgeReply)] == [False, False]
    other.close()
    assert all(isinstance(said, JudgeReply) and not said.cached for said in fresh)


def test_a_question_that_is_too_long_fails_alone(folder: Path) -> None:
    said = judge_of(folder).ask([question("a"), question("word " * 300), question("b")])
    assert [type(one) for one in said] == [JudgeReply, JudgeFailure, JudgeReply]
    assert "the judge has positions for 256" in str(said[1])


def test_weights_are_frozen(folder: Path) -> None:
    judge = judge_of(folder)
    judge.check()
    assert judge._model is not None
    assert not any(weight.requires_grad for weight in judge._model.module.parameters())
    judge.close()


def test_a_model_that_is_not_there_is_found_by_check(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        judge_of(tmp_path / "nowhere").check()


def test_equal_options_share_one_judge() -> None:
    server = judge_options({"model": "m", "base_url": "http://127.0.0.1:1/v1", "prices": [1, 2.5]}, where="judge")
    assert isinstance(build_judge(server), EndpointJudge)
    assert build_judge(server) is build_judge(
        judge_options({"model": "m", "base_url": "http://127.0.0.1:1/v1/", "prices": [1, 2.5]}, where="judge")
    )
    assert isinstance(build_judge(JudgeOptions(model="bundled")), InProcessJudge)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "judge.model: this option is required"),
        ({"model": "m", "concurency": 3}, "did you mean 'concurrency'"),
        ({"model": "m", "timeout_s": 3}, "timeout_s: only for a server"),
        ({"model": "m", "base_url": "http://h/v1", "device": "cpu"}, "device: only for a model in this process"),
        ({"model": "m", "base_url": "localhost:8000"}, "expected something like http://127.0.0.1:8000/v1"),
        ({"model": "m", "base_url": "https://user:secret@h/v1"}, "environment variable"),
        ({"model": "m", "base_url": "http://h:x/v1"}, "is no address"),
        ({"model": "m", "cache": ""}, "an empty path"),
        ({"model": ""}, "at least 1 character"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        judge_options(options, where="judge")


def test_a_question_that_cannot_be_made_into_tokens_fails_alone(folder: Path) -> None:
    judge = judge_of(folder)
    said = judge.ask([question("a"), question("\ud800"), question("b")])
    alone = [judge_of(folder).ask([question(text)])[0] for text in "ab"]
    assert said[::2] == alone
    assert isinstance(said[1], JudgeFailure)
    assert said[1].kind == "bad_reply"
    assert said[1].message.isprintable()
