"""A teacher behind a server: a stub that tells log-probs as vLLM does, out of a small model, compared with that model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.judging.stub_server import Asked, Said, error, serving
from tests.making import completion, settings, tiny_policy
from tests.tiny import save_tiny, tiny_model, tiny_tokenizer
from toishi import loop
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config import TeacherConfig, load_config
from toishi.errors import ConfigError, EngineError, ModelError
from toishi.explanation.audit import audit
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.served_teacher import ServedTeacher
from toishi.policy.teacher import LocalTeacher, Teacher
from toishi.record.reader import Run
from toishi.types import Group, Prompt, Rollout, RolloutId
from toishi.update import UpdateSettings, update_policy, with_reference

ANSWERS = ((9, 10, 4), (11, 4))


class Wise:
    """Tells what a model thinks of a prompt's tokens; `adds` the tokens that stand there to the likeliest ones."""

    def __init__(self, *, adds: bool = True, add_bos: bool = False) -> None:
        self.model = tiny_model("gpt2", seed=9, dtype=torch.float64)
        self.tokenizer = tiny_tokenizer(add_bos=add_bos)
        self.adds = adds
        self.add_bos = add_bos

    def __call__(self, asked: Asked) -> Said:
        body = asked.body
        if asked.path == "/tokenize":
            ids = self.tokenizer(body["prompt"], add_special_tokens=self.add_bos)["input_ids"]
            return Said(body=json.dumps({"tokens": ids, "count": len(ids)}).encode())
        assert asked.path == "/v1/completions"
        ids = body["prompt"]
        with torch.no_grad():
            logs = torch.log_softmax(self.model(torch.tensor([ids])).logits[0], -1)
        entries: list[Any] = [None]
        for place, token in enumerate(ids[1:]):
            told = logs[place].topk(body["prompt_logprobs"])
            words = dict(zip(told.indices.tolist(), told.values.tolist(), strict=True))
            words |= {token: logs[place, token].item()} if self.adds else {}
            entries.append({str(word): {"logprob": value, "rank": 1, "decoded_token": "x"} for word, value in words.items()})
        return Said(body=json.dumps({"choices": [{"text": "", "prompt_logprobs": entries}]}).encode())


@pytest.fixture
def address() -> Iterator[str]:
    with serving(Wise()) as server:
        yield server.url


def served(address: str, count: int = 8) -> ServedTeacher:
    return ServedTeacher.open(TeacherConfig(name="m", endpoint=address, top_logprobs=count, timeout_s=20.0), tiny_tokenizer())


def plain(row: str, **choices: Any) -> UpdateSettings:
    """At temperature 1, at which a server tells log-probs."""
    found = settings(Algorithm.model_validate(algorithm(row).model_dump() | choices))
    return UpdateSettings(**{name: getattr(found, name) for name in found.__dataclass_fields__} | {"temperature": 1.0})


def group() -> Group:
    prompt = Prompt(id="p", text="?", token_ids=(5, 6, 7))
    rollouts = (
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=completion(ids), reward=0.0)
        for member, ids in enumerate(ANSWERS)
    )
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def step(teacher: Teacher | None, chosen: UpdateSettings) -> tuple[Group, Any, dict[str, torch.Tensor]]:
    """A step with this teacher (None: the model itself, in this process)."""
    policy = tiny_policy("gpt2")
    wise = Policy(tiny_model("gpt2", seed=9, dtype=torch.float64).requires_grad_(False), compute_dtype=torch.float64)
    policy.teacher = LocalTeacher.of(wise, policy) if teacher is None else teacher
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    (given,) = assign_advantages(with_reference(policy, [group()], chosen), chosen.algorithm, max_new_tokens=8)
    (update,) = update_policy(policy, make_optimizer(policy, chosen.optimizer), [given], chosen, step=1)
    return given, update, {name: before[name] - master.detach() for name, master in policy.masters.items()}


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_told_all_words_but_one_it_teaches_what_the_model_itself_does(address: str, beta: float) -> None:
    chosen = plain("opd", divergence_beta=beta)
    _, update, change = step(served(address, 127), chosen)
    _, wanted, expected = step(None, chosen)
    assert update.scalars["update/loss"] == pytest.approx(wanted.scalars["update/loss"], rel=1e-6)
    for name, values in expected.items():
        torch.testing.assert_close(change[name], values, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_told_few_words_the_divergence_is_a_lower_bound_and_what_is_missing_is_measured(address: str, beta: float) -> None:
    chosen = plain("opd", divergence_beta=beta)
    teacher = served(address, 8)
    _, update, _ = step(teacher, chosen)
    _, whole, _ = step(None, chosen)
    for few, all_words in zip(update.streams, whole.streams, strict=True):
        assert all(0 < one <= other + 1e-9 for one, other in zip(few.divergence, all_words.divergence, strict=True))
    model = tiny_model("gpt2", seed=9, dtype=torch.float64)
    rests = []
    for answer in ANSWERS:
        with torch.no_grad():
            probs = torch.softmax(model(torch.tensor([[5, 6, 7, *answer]])).logits[0, 2:-1], -1)
        rests += (1 - probs.topk(8).values.sum(1)).tolist()
    assert teacher.figures() == {"teacher/rest_mass": pytest.approx(sum(rests) / len(rests)), "teacher/untold_tokens": 0}


def test_log_probs_of_the_tokens_are_the_models(address: str) -> None:
    given, _, change = step(served(address), plain("opd_sampled"))
    wanted, _, expected = step(None, plain("opd_sampled"))
    for one, other in zip(given.rollouts, wanted.rollouts, strict=True):
        assert one.ref_logprobs == pytest.approx(other.ref_logprobs, rel=1e-9)
    for name, values in expected.items():
        torch.testing.assert_close(change[name], values, rtol=1e-8, atol=1e-12)


def test_a_token_that_is_not_told_gets_the_most_it_can_have_and_is_counted() -> None:
    with serving(Wise(adds=False)) as server:
        teacher = served(server.url, 8)
        given, _, _ = step(teacher, plain("opd_sampled"))
    wanted, _, _ = step(None, plain("opd_sampled"))
    pairs = [
        pair for one, other in zip(given.rollouts, wanted.rollouts, strict=True)
        for pair in zip(one.ref_logprobs or (), other.ref_logprobs or (), strict=True)
    ]  # fmt: skip
    above = sum(bound > true + 1e-9 for bound, true in pairs)
    assert above > 0
    assert all(bound >= true - 1e-9 for bound, true in pairs)
    assert teacher.figures()["teacher/untold_tokens"] == above


def test_other_tokens_are_refused() -> None:
    with serving(Wise(add_bos=True)) as server, pytest.raises(ModelError, match=r"it cuts .*toishi collect"):
        served(server.url)


def test_servers_that_do_not_answer_or_tell_nothing_are_named() -> None:
    with serving(lambda asked: error(503, "busy")) as server:
        with pytest.raises(EngineError, match="does not answer as it should: HTTP 503"):
            served(server.url)
        assert len(server.asked) == 3
    wise = Wise()
    nothing = Said(body=json.dumps({"choices": [{"text": "x"}]}).encode())
    with serving(lambda asked: wise(asked) if asked.path == "/tokenize" else nothing) as server:
        teacher = served(server.url)
        with pytest.raises(EngineError, match="the reply has no log-probs of the prompt's tokens"):
            step(teacher, plain("opd"))


def test_a_run_with_a_served_teacher(address: str, tmp_path: Path) -> None:
    student = save_tiny(tmp_path / "student")
    recipe: dict[str, Any] = {
        "model": {"name": str(student), "dtype": "float32"},
        "teacher": {"name": "m", "endpoint": address, "top_logprobs": 16},
        "task": {"name": "sums", "low": 1, "high": 9, "heldout": 4},
        "algorithm": "opd",
        "sampling": {"max_new_tokens": 6},
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 1},
        "evaluation": {"prompts": 0},
    }
    run = Run.open(loop.train(load_config(recipe), tmp_path / "run").folder)
    assert audit(run).findings == ()
    assert run.run["teacher"]["source"] == f"m at {address}"
    for line in run.metrics:
        assert 0 < line["teacher/rest_mass"] < 1
        assert line["update/divergence"] > 0
    with pytest.raises(ConfigError, match="tells log-probs at temperature 1"):
        load_config(recipe, {"sampling.temperature": 0.7})
