"""Who moved what, against whole gradients by plain autograd and against the step done by hand, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.making import group, settings
from tests.policy.test_capabilities import options_of
from tests.tiny import InFloat64, tiny_model
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config import LoraConfig, ModelConfig
from toishi.ops import influence as maths
from toishi.policy.adapters import with_adapters
from toishi.policy.capabilities import FULL_ATTENTION_TYPES
from toishi.policy.policy import Policy
from toishi.record.influence import Arrays, Influence
from toishi.session import Learner
from toishi.tracing.influence import account, batches
from toishi.tracing.influence.account import Scene, measure
from toishi.tracing.influence.batches import make_batches
from toishi.tracing.influence.layers import Uses, backward_by_layer
from toishi.tracing.influence.rows import make_rows, token_pushes
from toishi.tracing.matrices import MatrixObserver
from toishi.tracing.watched import Watched
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score
from toishi.update import UpdateSettings, update_policy

TEMPERATURE = 0.7
FAMILIES = sorted(FULL_ATTENTION_TYPES)
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-4),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-4, momentum=0.9, weight_decay=0.1),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-6, weight_decay=0.1),
}


def groups_of(row: Algorithm | str = "grpo") -> tuple[Group, ...]:
    """Two prompts; two equal answers; one answer of one token; one answer with a tied score."""
    found = (
        group(0, [5, 6, 7, 8], [[9, 10, 4], [11, 4], [12], [9, 10, 4]], [1.0, 0.0, 0.5, 0.25]),
        group(1, [20, 21], [[22, 4], [23, 24, 25, 4], [26, 27, 4]], [0.0, 1.0, 0.5]),
    )
    chosen = algorithm(row) if isinstance(row, str) else row
    with_scores = tuple(replace(each, rollouts=tuple(map(scored, each.rollouts))) for each in found)
    return assign_advantages(with_scores, chosen, max_new_tokens=8)


def scored(rollout: Rollout) -> Rollout:
    assert rollout.reward is not None
    parts = (Score(reward="right", value=rollout.reward - 0.1, weight=1.0), Score(reward="short", value=0.2, weight=0.5))
    return replace(
        rollout, scores=parts, ref_logprobs=tuple(-1.0 - 0.1 * place for place in range(rollout.completion.num_tokens))
    )


def outside() -> Watched:
    answer = Completion(
        token_ids=(30, 31, 4),
        loss_mask=(1, 1, 1),
        sampled_logprobs=(0.0,) * 3,
        entropies=(0.0,) * 3,
        text="",
        finish_reason="stop",
    )
    prompt = Prompt(id="other", text="?", token_ids=(40, 41, 42))
    return Watched(
        kind="other_prompt", rollout=Rollout(id=RolloutId(1, 2, 1 << 20), prompt=prompt, completion=answer), inside=False
    )


@dataclass
class Done:
    """An explained update, and all that is needed to check it."""

    policy: Policy
    influence: Influence
    arrays: Arrays
    first: dict[str, Tensor]
    watched: list[Watched]
    gradient: dict[str, Tensor]
    optimizer: torch.optim.Optimizer

    @property
    def texts(self) -> Sequence[Any]:
        return self.influence.texts

    def gradients(self) -> Tensor:
        """(T, all weights) gradient of each watched text's log-prob before the step, by plain autograd over the whole model."""
        rows = []
        with self.policy.with_weights(self.first):
            for item in self.watched:
                (total,) = (logprobs(self.policy, item.rollout).sum(),)
                weights = [weight for weight in self.policy.module.parameters() if weight.requires_grad]
                found = torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)
                rows.append(torch.cat([gradient.flatten() for gradient in found]))
        return torch.stack(rows)

    def token_slopes(self, rollout: Rollout, direction: Tensor) -> list[float]:
        """Of each token: <gradient of its log-prob before the step, direction>, by plain autograd."""
        weights = [weight for weight in self.policy.module.parameters() if weight.requires_grad]
        slopes = []
        with self.policy.with_weights(self.first):
            for one in logprobs(self.policy, rollout):
                found = torch.autograd.grad(one, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
                slopes.append(float(torch.cat([gradient.flatten() for gradient in found]) @ direction))
        return slopes

    def change(self) -> Tensor:
        return torch.cat([(master.detach() - self.first[name]).flatten() for name, master in self.policy.masters.items()])


def logprobs(policy: Policy, rollout: Rollout) -> Tensor:
    prompt, answer = rollout.prompt.token_ids, rollout.completion.token_ids
    logits = policy.module(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / TEMPERATURE, -1).gather(1, torch.tensor(answer)[:, None])[:, 0]


def explained(
    optimizer: str,
    row: Algorithm | str = "grpo",
    *,
    family: str = "gpt2",
    lora: bool = False,
    warm: int = 0,
    limit: float | None = 0.5,
    tokens: bool = False,
) -> Done:
    eager: dict[str, Any] = (
        {"attn_implementation": "eager"} if family == "gemma2" else {}
    )  # its soft-capped scores are only there
    model = tiny_model(family, dtype=torch.float64, **options_of(family), **eager)
    if lora:
        model = with_adapters(model, ModelConfig(lora=LoraConfig(rank=4)), seed=0).double()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.copy_(0.1 * torch.randn_like(weight))
    policy = Policy(model, compute_dtype=torch.float64)
    plain = settings(row)
    chosen = replace(plain, optimizer=plain.optimizer.model_copy(update={"max_grad_norm": limit}))
    optimizing = OPTIMIZERS[optimizer](list(policy.masters.values()))
    for parameter_group in optimizing.param_groups:
        chosen = replace(chosen, optimizer=chosen.optimizer.model_copy(update={"lr": parameter_group["lr"]}))
    learner = Learner(policy, None, None, None, optimizing, chosen)  # type: ignore[arg-type]
    groups = groups_of(row)
    for step in range(warm):
        update_policy(policy, optimizing, groups[step % 2 :][:1], chosen, step=step + 1)
    return explain(learner, groups, chosen, tokens=tokens)


def explain(learner: Learner, groups: Sequence[Group], chosen: UpdateSettings, *, tokens: bool = False) -> Done:
    policy = learner.policy
    watched = [Watched(kind="rollout", rollout=r, inside=True) for each in groups for r in each.rollouts] + [outside()]
    observer = Observing(policy, learner.optimizer)
    before = {item.rollout.id: logprobs(policy, item.rollout).tolist() for item in watched}
    update_policy(policy, learner.optimizer, groups, chosen, step=5, observer=observer)
    after = {item.rollout.id: logprobs(policy, item.rollout).tolist() for item in watched}
    assert observer.first is not None
    gradient = {name: torch.zeros_like(m) if m.grad is None else m.grad.clone() for name, m in policy.masters.items()}
    influence, arrays = measure(Scene(learner, groups, watched, observer.first, observer.totals[0], before, after, tokens))
    return Done(policy, influence, arrays, observer.first, watched, gradient, learner.optimizer)


class Observing(MatrixObserver):
    """A matrix observer that lets rows pass."""

    def row(self, index: int, seen: Any) -> None:
        """Nothing to see."""


@pytest.mark.parametrize("family", FAMILIES)
def test_products_are_those_of_whole_gradients(family: str) -> None:
    with InFloat64():
        done = explained("sgd", family=family)
        whole = done.gradients()
    rows = [text.row for text in done.texts]
    assert len(set(rows)) == len(rows) - 1  # two answers are equal
    found = torch.from_numpy(done.arrays["products"])[rows][:, rows]
    torch.testing.assert_close(found, whole @ whole.T, rtol=1e-9, atol=1e-9)
    assert done.influence.sum_error < 1e-10


@pytest.mark.parametrize(("family", "together"), [("llama", True), ("gemma", True), ("gpt2", True), ("mixtral", False)])
def test_texts_run_side_by_side_where_they_can_be_told_apart(
    family: str, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts see some of the tokens of some of the texts, in no text's order."""
    sizes: list[list[int]] = []

    def watched(*args: Any, **named: Any) -> Any:
        found = make_batches(*args, **named)
        sizes.append([len(batch.passes) for batch in found])
        return found

    monkeypatch.setattr(account, "make_batches", watched)
    done = explained("sgd", family=family)
    num_rows = len({text.row for text in done.texts})
    assert sizes == ([[num_rows]] if together else [[num_rows], [1] * num_rows])


@pytest.mark.parametrize(("family", "lora"), [("llama", False), ("qwen2", False), ("gemma", False), ("llama", True)])
def test_what_texts_begin_with_is_computed_once(family: str, lora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[list[int]] = []

    def watched(*args: Any, **named: Any) -> Any:
        found = make_batches(*args, **named)
        shared.append([batch.beginning.shared for batch in found])
        return found

    monkeypatch.setattr(account, "make_batches", watched)
    monkeypatch.setattr(batches, "_ENOUGH_TOKENS", 1)  # each prompt has a batch of its own
    with InFloat64():
        done = explained("sgd", family=family, lora=lora)
        whole = done.gradients()
    assert shared == [[4, 2, 0]]  # prompts of 4 and 2 tokens, and a single text
    rows = [text.row for text in done.texts]
    found = torch.from_numpy(done.arrays["products"])[rows][:, rows]
    torch.testing.assert_close(found, whole @ whole.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
def test_texts_side_by_side_in_small_batches_give_what_one_batch_gives(family: str) -> None:
    policy = Policy(tiny_model(family, dtype=torch.float64), compute_dtype=torch.float64)
    groups, chosen = groups_of(), settings("grpo")
    before = {r.id: (-1.0,) * r.completion.num_tokens for each in groups for r in each.rollouts}
    rows = make_rows(
        [Watched(kind="rollout", rollout=r, inside=True) for each in groups for r in each.rollouts], groups, chosen, before
    )
    found = []
    for budget, side_by_side in ((2048, True), (12, True), (2048, False)):
        sums = torch.zeros(rows.num_rows, dtype=torch.float64)
        names: list[str] = []

        def finished(name: str, uses: Uses, sums: Tensor = sums, names: list[str] = names) -> None:
            names.append(name)
            weight = policy.masters[name]
            made = torch.zeros(
                rows.num_rows, weight[..., :1].numel() if weight.dim() > 1 else 1, weight.shape[-1], dtype=torch.float64
            )
            for row, factors in uses.factors:
                factors.add_to(made[row : row + len(factors.right)], 0)
            for row, whole in uses.whole:
                made[row : row + len(whole)] += whole.reshape(len(whole), -1, weight.shape[-1])
            sums += len(names) * made.abs().sum((1, 2))

        made_batches = make_batches(rows, budget, torch.device("cpu"), side_by_side=side_by_side)
        backward_by_layer(policy.module, made_batches, finished)
        assert sorted(names) == sorted(policy.masters)
        found.append((len(made_batches), sums))
    assert [count for count, _ in found] == [1, 3, 6]  # fed tokens: 3 4 4, 5 5, 6
    for _, sums in found[1:]:
        torch.testing.assert_close(sums, found[0][1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("row", ["grpo", "dynamic"])
def test_tokens_carry_their_answers_share(row: str) -> None:
    """Against a backward pass for every token."""
    with InFloat64():
        done = explained("adamw", signed(row) if row == "dynamic" else row, family="llama", tokens=True)
        gamma = -torch.cat([gradient.flatten() for gradient in done.gradient.values()]) / done.influence.clip_factor
        for item, text in zip(done.watched, done.texts, strict=True):
            if text.source is None:
                assert text.tokens == ()
                continue
            slopes = done.token_slopes(item.rollout, gamma)
            assert math.fsum(text.tokens) == pytest.approx(text.share, abs=1e-12)
            if row == "grpo":
                wanted = [text.coefficient * slope / float(gamma @ gamma) for slope in slopes]
                assert list(text.tokens) == pytest.approx(wanted, rel=1e-9, abs=1e-13)


def test_no_tokens_unless_asked_for() -> None:
    assert all(text.tokens == () for text in explained("sgd").texts)


def signed(surrogate: str) -> Algorithm:
    """A surrogate whose weight depends on the token, with advantages of both signs."""
    return algorithm("grpo").model_copy(update={"surrogate": surrogate})


@pytest.mark.parametrize(
    "row",
    ["grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo", "reinforce", signed("dynamic"), signed("unlikelihood")],
    ids=lambda row: row if isinstance(row, str) else row.surrogate,
)
def test_the_texts_gradients_add_up_to_the_updates(row: str | Algorithm) -> None:
    done = explained("sgd", row)
    assert done.influence.sum_error < 1e-9
    assert done.influence.norm_from_products == pytest.approx(done.influence.gradient_norm, rel=1e-9)


def test_answers_that_no_sampler_drew_push_like_others() -> None:
    groups, chosen = groups_of(), settings("grpo")
    written = tuple(replace(each, rollouts=tuple(map(unsampled, each.rollouts))) for each in groups)
    before = {r.id: (-1.5,) * r.completion.num_tokens for each in groups for r in each.rollouts}
    assert token_pushes(written, chosen, before) == token_pushes(groups, chosen, before)


def unsampled(rollout: Rollout) -> Rollout:
    return replace(rollout, completion=replace(rollout.completion, sampled_logprobs=()))


def test_terms_without_an_advantage_are_a_row_of_their_own() -> None:
    row = algorithm("grpo").model_copy(update={"kl": "k3", "kl_coef": 0.3, "entropy_coef": 0.02})
    done = explained("sgd", row)
    assert done.influence.sum_error < 1e-9
    assert done.influence.norm_from_products == pytest.approx(done.influence.gradient_norm, rel=1e-9)
    assert sum(text.share for text in done.texts) + done.influence.fixed_share == pytest.approx(1.0, abs=1e-12)
    assert any(abs(text.fixed) > 1e-6 for text in done.texts)


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_change_is_the_sum_of_its_parts(optimizer: str, warm: int) -> None:
    done = explained(optimizer, warm=warm)
    linear = done.gradients() @ done.change()
    for text, wanted in zip(done.texts, linear.tolist(), strict=True):
        parts = text.own + text.others + text.fixed + text.history + text.decay
        assert text.linear == pytest.approx(wanted, rel=1e-9, abs=1e-13)
        assert parts == pytest.approx(wanted, rel=1e-6, abs=1e-11)  # in float64 nothing is lost in rounding
        assert parts + text.rounding + text.rest == pytest.approx(text.measured, abs=1e-15)
    largest = max(abs(text.measured) for text in done.texts)
    assert done.influence.gap < 0.01 + 0.06 * largest
    assert max(abs(text.rest) for text in done.texts) < 0.05 * largest
    assert sum(text.share for text in done.texts) == pytest.approx(1.0, abs=1e-12)


def test_own_and_others_are_what_the_step_of_one_answer_alone_would_do() -> None:
    """SGD is linear: the push of answer i, by a step that only it makes."""
    done = explained("sgd")
    gradients = done.gradients()
    pushed = [text for text in done.texts if text.kind == "rollout"]
    for j, text in enumerate(done.texts):
        pulls = [
            1e-4 * done.influence.clip_factor * other.coefficient * float(gradients[i] @ gradients[j])
            for i, other in enumerate(pushed)
        ]
        own = pulls[j] if text.kind == "rollout" else 0.0
        assert text.own == pytest.approx(own, rel=1e-9, abs=1e-15)
        assert text.others == pytest.approx(math.fsum(pulls) - own, rel=1e-6, abs=1e-12)


def test_effects_of_matrices_add_up() -> None:
    done = explained("adamw", warm=2)
    change, gradients = done.change(), done.gradients()
    effects, start = done.arrays["effects"], 0
    rows = [text.row for text in done.texts]
    for number, (name, master) in enumerate(done.policy.masters.items()):
        assert done.influence.matrices[number] == name
        part = slice(start, start + master.numel())
        wanted = gradients[:, part] @ change[part]
        assert effects[number][rows].tolist() == pytest.approx(wanted.tolist(), rel=1e-8, abs=1e-14)
        start += master.numel()
    assert effects.sum(0).tolist() == pytest.approx(done.arrays["linear"].tolist(), rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_lora(optimizer: str) -> None:
    with InFloat64():
        done = explained(optimizer, family="llama", lora=True)
        whole = done.gradients()
    rows = [text.row for text in done.texts]
    found = torch.from_numpy(done.arrays["products"])[rows][:, rows]
    torch.testing.assert_close(found, whole @ whole.T, rtol=1e-9, atol=1e-12)
    assert done.influence.sum_error < 1e-10
    assert done.influence.gap < 0.02


@pytest.mark.parametrize("warm", [0, 3])
def test_the_sample_does_adams_step_again(warm: int) -> None:
    """The tiny model's sample is complete: the true update from what was stored, to the precision of the stored numbers."""
    done = explained("adamw", warm=warm)
    numbers, arrays = done.influence.optimizer, {name: torch.from_numpy(value) for name, value in done.arrays.items()}
    assert done.influence.complete
    assert numbers.count == warm + 1
    rule = maths.AdamRule(lr=numbers.lr, beta1=numbers.beta1, beta2=numbers.beta2, eps=numbers.eps, count=numbers.count)
    learned = [text for text in done.texts if text.source is not None]
    found, step = maths.adam_sample_changes(
        arrays["gradients"].double() * arrays["scales"][:, None],
        torch.tensor([text.source for text in learned]),
        torch.tensor([text.coefficient for text in learned], dtype=torch.float64),
        arrays["mean"].double(),
        arrays["square"].double(),
        rule,
        scale=done.influence.clip_factor,
        num_coordinates=done.influence.num_coordinates,
        complete=True,
    )
    wanted = done.arrays["linear"] - done.arrays["decay"]
    assert found.values_R.tolist() == pytest.approx(wanted.tolist(), rel=0.02, abs=0.003 * abs(wanted).max())
    decay = torch.cat([-numbers.lr * numbers.weight_decay * master.flatten() for master in done.first.values()])
    apart = torch.linalg.vector_norm(step - (done.change() - decay)) / torch.linalg.vector_norm(step)
    assert apart < 0.05


def test_parts_by_reward_add_up_and_an_equal_part_has_none() -> None:
    done = explained("sgd")
    for text in done.texts:
        if text.kind == "rollout" and text.group == 0:
            by_name = {part.reward: part for part in text.parts}
            assert by_name["short"].share == pytest.approx(0.0, abs=1e-12)
            assert by_name["right"].advantage == pytest.approx(text.advantage)
            assert math.fsum(part.share for part in text.parts) == pytest.approx(text.share, abs=1e-12)


def test_a_lost_step_is_refused() -> None:
    """In float32 a step of 1e-12 changes next to nothing."""
    policy = Policy(tiny_model("llama"), compute_dtype=torch.float32)
    chosen = settings("grpo", lr=1e-12)
    optimizing = torch.optim.SGD(list(policy.masters.values()), lr=1e-12)
    done = explain(Learner(policy, None, None, None, optimizing, chosen), groups_of(), chosen)  # type: ignore[arg-type]
    assert done.influence.survived is not None
    assert done.influence.survived < 0.5
    assert "lost in rounding" in done.influence.refused


def test_a_step_that_rounding_blew_up_is_refused() -> None:
    """Every weight lies on the border between two bfloat16 numbers, and half of the steps tip it over."""
    model = tiny_model("llama", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            below = weight.bfloat16().float()
            weight.copy_(below + below.sign() * torch.ldexp(torch.ones_like(below), torch.frexp(below).exponent - 9))
    policy = Policy(model, compute_dtype=torch.bfloat16)
    chosen = settings("grpo", lr=1e-6)
    optimizing = torch.optim.AdamW(list(policy.masters.values()), lr=1e-6, weight_decay=0.0)
    done = explain(Learner(policy, None, None, None, optimizing, chosen), groups_of(), chosen)  # type: ignore[arg-type]
    assert done.influence.survived is not None
    assert done.influence.survived > 2.0
    assert "rounding" in done.influence.refused


def test_float32_adds_up_to_a_hundred_thousandth() -> None:
    policy = Policy(tiny_model("llama"), compute_dtype=torch.float32)
    chosen = settings("grpo", lr=1e-4)
    optimizing = torch.optim.SGD(list(policy.masters.values()), lr=1e-4)
    done = explain(Learner(policy, None, None, None, optimizing, chosen), groups_of(), chosen)  # type: ignore[arg-type]
    assert done.influence.sum_error < 1e-5
    assert done.influence.refused == ""
