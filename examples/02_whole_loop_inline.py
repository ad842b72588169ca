"""The whole of GRPO training in one file: sample, score, compare, update. Plain torch, nothing of toishi.

    python examples/02_whole_loop_inline.py

A tiny random model learns to answer with digits. `03_same_with_the_library.py` runs the same training with toishi and gets
the same numbers. This file is what toishi does without speed, checks, records and words: each answer is sampled alone, without
a cache, and the update pads. Everything is float64, so that two ways to the same number can be told from two numbers.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_model import save_tiny_model

PROMPTS = ("1+2=", "13+4=", "5+5=", "9+18=", "7-3=", "6+1=")
SEED, STEPS, PROMPTS_PER_STEP, GROUP_SIZE, MAX_NEW_TOKENS = 0, 3, 2, 6, 8
INNER_EPOCHS, LEARNING_RATE, CLIP, MAX_GRAD_NORM, STD_EPSILON = 2, 0.01, 0.2, 1.0, 1e-4
END = 1


def digit_share(answer: str) -> float:
    """The reward: which part of the answer is digits."""
    return sum(character.isdigit() for character in answer) / max(len(answer), 1)


@dataclass(frozen=True)
class Step:
    """What one step came to."""

    rewards: list[float]
    advantages: list[float]
    losses: list[float]


def uniforms(key: tuple[int, ...], count: int) -> list[float]:
    """Random numbers that depend on the key alone, so that an answer does not depend on what else is sampled.

    Each part of the key is two 32-bit words, after the number of parts: different keys give different streams. The upper 52
    bits of the generator's numbers make floats strictly between 0 and 1.
    """
    words = [len(key), *(half for part in key for half in (part % 2**32, part // 2**32))]
    bits = np.random.Philox(np.random.SeedSequence(words)).random_raw(count)
    return [int(number) * 2.0**-52 + 2.0**-53 for number in np.asarray(bits) >> np.uint64(12)]


@torch.no_grad()
def sample(model: Any, prompt: list[int], key: tuple[int, ...]) -> list[int]:
    """One answer: each token is where the cumulative distribution passes its uniform number.

    There are two numbers for a token; the first chooses among blocks of 256 tokens, and this vocabulary is a single one.
    """
    answer: list[int] = []
    for uniform in uniforms(key, 2 * MAX_NEW_TOKENS)[1::2]:
        ids = torch.tensor([prompt + answer])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -1]
        cumulative = logits.softmax(-1).cumsum(-1)
        answer.append(int(torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)))
        if answer[-1] == END:  # the stop token was sampled: it belongs to the answer and is trained like any other
            break
    return answer


def answer_logprobs(model: Any, prompts: list[list[int]], answers: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Log-prob of every answer token under the model as it is now, and the mask of answer tokens, both (B, T)."""
    texts = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    longest = max(len(text) for text in texts)
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    real = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    position = torch.arange(longest)
    starts = torch.tensor([[len(prompt)] for prompt in prompts])
    logits = model(input_ids=ids, attention_mask=real).logits
    # The logits at position t predict the token at t + 1: the first answer token is predicted by the prompt's last.
    logprobs = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    mask = (real.bool() & (position >= starts))[:, 1:]
    return logprobs, mask


def group_advantages(rewards: list[float]) -> list[float]:
    """(reward - mean of the group) / (its spread + epsilon): 0 for everyone when all are equal."""
    values = torch.tensor(rewards, dtype=torch.float64)
    return [float(a) for a in (values - values.mean()) / (values.std() + STD_EPSILON)]


def grpo_loss(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, advantages: list[float]) -> Tensor:
    """Mean over answers of the mean over their tokens of -min(ratio A, clip(ratio) A)."""
    ratio = (logprobs - old_logprobs).exp()
    advantage = torch.tensor(advantages, dtype=torch.float64)[:, None]
    per_token = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return ((per_token * mask).sum(1) / mask.sum(1)).mean()


def update(model: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One optimizer step, with a gradient no longer than the limit."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    for gradient in gradients:
        gradient.mul_(min(1.0, MAX_GRAD_NORM / float(norm)))
    optimizer.step()


def train(folder: Path) -> tuple[list[Step], dict[str, Tensor]]:
    """Three steps from the model in `folder`: what each came to, and the weights at the end."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    steps = []
    for step in range(1, STEPS + 1):
        first = (step - 1) * PROMPTS_PER_STEP
        texts = PROMPTS[first : first + PROMPTS_PER_STEP]
        prompts = [tokenizer.encode(text) for text in texts for _ in range(GROUP_SIZE)]
        answers = [
            sample(model, prompt, (SEED, 0, step, *divmod(number, GROUP_SIZE)))  # 0: the stream of training, not evaluation
            for number, prompt in enumerate(prompts)
        ]
        rewards = [digit_share(tokenizer.decode(answer, skip_special_tokens=True)) for answer in answers]
        advantages = [
            advantage
            for start in range(0, len(rewards), GROUP_SIZE)
            for advantage in group_advantages(rewards[start : start + GROUP_SIZE])
        ]
        with torch.no_grad():
            old_logprobs, mask = answer_logprobs(model, prompts, answers)
        losses = []
        for _ in range(INNER_EPOCHS):  # the second pass uses the same answers: ratios leave 1 and the clip begins to matter
            loss = grpo_loss(answer_logprobs(model, prompts, answers)[0], old_logprobs, mask, advantages)
            update(model, optimizer, loss)
            losses.append(loss.item())
        steps.append(Step(rewards, advantages, losses))
    return steps, {name: weight.detach() for name, weight in model.named_parameters()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for number, found in enumerate(train(save_tiny_model(Path(scratch)))[0], start=1):
            mean = sum(found.rewards) / len(found.rewards)
            losses = ", ".join(f"{round(loss, 6) + 0.0:.6f}" for loss in found.losses)
            print(f"step {number}: mean reward {mean:.3f}, losses of the two updates {losses}")
