"""One GRPO step by hand: from a judge's four scores to changed probabilities, in numpy, with nothing hidden.

    python examples/01_one_step_by_hand.py

The "model" has two rows of logits, one for the first word of an answer and one for the second. Everything that a language
model adds to this (attention, layers, a large vocabulary) only changes how logits come about; the step itself is the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WORDS = ("good", "ok", "bad", "<end>")
FIRST, SECOND = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.1, 0.2, 0.6])
"""Probabilities of the first and of the second word, before the step."""

ANSWERS = (("good", "<end>"), ("ok", "<end>"), ("bad", "<end>"), ("<end>",))
"""Four answers sampled to the same prompt: the group."""

JUDGE = np.array([8.0, 6.0, 3.0, 3.0])
"""What a judge gave them, from 0 to 10. No right answer is needed anywhere, only scores."""

LEARNING_RATE = 2.0


def softmax(logits: Array) -> Array:
    """Logits to probabilities."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def advantages(rewards: Array) -> Array:
    """How much better than its siblings each answer is, in units of their spread. The siblings replace a value model."""
    return np.asarray((rewards - rewards.mean()) / rewards.std())


def token_weights(advantages_B: Array) -> list[float]:
    """What one token of each answer pulls with: advantage / (number of answers x length of this answer)."""
    return [float(a) / (len(ANSWERS) * len(answer)) for a, answer in zip(advantages_B, ANSWERS, strict=True)]


def gradients(first: Array, second: Array, weights_B: list[float]) -> tuple[Array, Array]:
    """d loss / d logits of both rows.

    The loss is -sum(weight x log-prob) over all tokens (the ratio to the sampling policy is 1 in the first update), and
    d log-prob(word) / d logits = onehot(word) - probabilities. So every token pushes its own word up and all words
    down by their probability, as strongly as its weight says; a negative weight does the opposite.
    """
    gradient = {0: np.zeros(len(WORDS)), 1: np.zeros(len(WORDS))}
    for answer, weight in zip(ANSWERS, weights_B, strict=True):
        for position, (word, probabilities) in enumerate(zip(answer, (first, second), strict=False)):
            onehot = np.eye(len(WORDS))[WORDS.index(word)]
            gradient[position] -= weight * (onehot - probabilities)
    return gradient[0], gradient[1]


def main() -> None:
    """Prints the step as a table."""
    rewards = JUDGE / 10
    advantages_B = advantages(rewards)
    weights_B = token_weights(advantages_B)
    gradient_first, gradient_second = gradients(FIRST, SECOND, weights_B)
    after_first = softmax(np.log(FIRST) - LEARNING_RATE * gradient_first)
    after_second = softmax(np.log(SECOND) - LEARNING_RATE * gradient_second)
    # At ratio 1 a token's loss is minus its advantage, so the loss is minus the mean advantage: 0 by construction.
    loss = -sum(weight * len(answer) for weight, answer in zip(weights_B, ANSWERS, strict=True))

    print(f"mean reward {rewards.mean():.3f}, spread {rewards.std():.6f} (population)\n")
    print("answer        judge  reward  advantage  weight of each token")
    for answer, score, reward, advantage, weight in zip(ANSWERS, JUDGE, rewards, advantages_B, weights_B, strict=True):
        print(f"{' '.join(answer):<12} {score:6.0f} {reward:7.1f} {advantage:+10.6f} {weight:+21.6f}")

    print(f"\nloss {abs(loss):.6f}: it says nothing about learning, for the gradient is not 0\n")
    print("first word   probability  d loss / d logit  after the step")
    for word, before, gradient, after in zip(WORDS, FIRST, gradient_first, after_first, strict=True):
        print(f"{word:<12} {before:11.3f} {gradient:+17.6f} {after:15.6f}")
    print("\nsecond word  probability  d loss / d logit  after the step")
    for word, before, gradient, after in zip(WORDS, SECOND, gradient_second, after_second, strict=True):
        print(f"{word:<12} {before:11.3f} {gradient:+17.6f} {after:15.6f}")

    value = np.array([0.8, 0.6, 0.3, 0.3])  # what the judge gives an answer that begins with that word
    print(f"\nexpected reward {value @ FIRST:.6f} -> {value @ after_first:.6f}")
    print("'ok' was better than average and still lost a little: the push for 'good' took more from it than its own gave.")


if __name__ == "__main__":
    main()
