"""Held-out measurements of a run in progress: which there are is a matter of what the model predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toishi.display import Display
from toishi.evaluate import Evaluation, Mode, evaluate
from toishi.ranking import evaluate_pairs
from toishi.session import Session, sampling_of
from toishi.types import Prompt


@dataclass(frozen=True, slots=True)
class Look:
    """One measurement: its mode, how it is called while it lasts, and what makes it."""

    mode: Mode
    words: str
    make: Callable[[], Evaluation]


def answers(session: Session, prompts: Sequence[Prompt], full: bool) -> Iterator[Look]:
    """Answers to held-out prompts, judged: greedy ones, and k samples before and after (or where no greedy ones are asked)."""
    config = session.config.evaluation
    sampled = config.samples > 0 and (full or not config.greedy)
    for greedy in ([True] if config.greedy else []) + ([False] if sampled else []):

        def make(greedy: bool = greedy) -> Evaluation:
            return evaluate(
                session.engine, prompts, session.rewards, session.config.rewards, sampling_of(session.config, greedy=greedy),
                samples=config.samples, seed=session.config.seed, step=session.step,
            )  # fmt: skip

        how = "greedy" if greedy else f"{config.samples} samples each"
        yield Look("greedy" if greedy else "sampled", f"{len(prompts)} held-out prompts, {how}", make)


def pairs(session: Session, prompts: Sequence[Prompt], full: bool) -> Iterator[Look]:
    """Held-out pairs, ranked by their scores."""

    def make() -> Evaluation:
        return evaluate_pairs(session.policy, session.renderer, prompts, session.config, session.settings, step=session.step)

    yield Look("pairs", f"{len(prompts)} held-out pairs", make)


LOOKS: Mapping[str, Callable[[Session, Sequence[Prompt], bool], Iterator[Look]]] = {"tokens": answers, "score": pairs}


def measure(session: Session, display: Display, *, full: bool) -> None:
    """Evaluate on held-out prompts: all of them, or the first few in between; each measurement once a step."""
    if not session.heldout:
        return
    prompts = session.heldout if full else session.heldout[: session.config.evaluation.prompts_during]
    done = {found.mode for found in session.evaluations if found.step == session.step}
    for look in LOOKS[session.config.algorithm.predicts](session, prompts, full):
        if look.mode in done:  # resumed between two measurements of a step
            continue
        with display.waiting(f"evaluating {look.words}"):
            found = look.make()
        first = next((earlier for earlier in session.evaluations if earlier.mode == found.mode), None)
        found = found.compared_with(first) if first else found
        session.evaluations.append(found)
        session.writer.write_evaluation(found.as_record())
        display.evaluation(session, found)
