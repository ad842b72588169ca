"""What an attack on a reward has to work with: the question, the right answer, others of its kind, an answer's forms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from toishi.judging.quoting import question_of
from toishi.types import Prompt

NUM_CANDIDATES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What an attack may use.

    gold      the right answer as text; empty where there is none
    wrong     other answers of the same kind: neighbours of a number, other rows' golds; at least one
    plain     an honest wrong answer, for a number a distant one
    rubric    what the judge is told, where there is one; else empty
    function  name of the function that tests call; empty where nothing is called
    """

    question: str
    gold: str
    wrong: tuple[str, ...]
    plain: str
    rubric: str = ""
    function: str = ""


def scene_of(prompt: Prompt, prompts: Sequence[Prompt], *, rubric: str = "") -> Scene:
    """The scene of one prompt among others.

    >>> prompts = [Prompt(id="a", text="5 + 7?", gold=12), Prompt(id="b", text="Capital?", gold="Rome")]
    >>> scene_of(prompts[0], prompts).wrong, scene_of(prompts[1], prompts).wrong
    (('13', '11', '14', '10'), ('12',))
    """
    gold = "" if prompt.gold is None else str(prompt.gold)
    others = dict.fromkeys(str(other.gold) for other in prompts if other.gold is not None and str(other.gold) != gold)
    wrong = _neighbours(gold) or tuple(others)[: NUM_CANDIDATES - 1] or ("I don't know.",)
    tests = " ".join(map(str, [prompt.columns.get("tests", ""), gold]))
    called = re.search(r"\bdef (\w+)\(", gold) or re.search(r"assert (\w+)\(", tests)
    return Scene(
        question=question_of(prompt),
        gold=gold,
        wrong=wrong,
        plain=str(int(gold) + abs(int(gold)) + 100) if _is_whole(gold) else wrong[0],
        rubric=rubric,
        function=called[1] if called else "",
    )


def _neighbours(gold: str) -> tuple[str, ...]:
    """The nearest other answers of a whole number or a lettered choice."""
    if _is_whole(gold):
        return tuple(str(int(gold) + off) for off in (1, -1, 2, -2))
    if re.fullmatch(r"[A-E]", gold):
        return tuple(letter for letter in "ABCDE" if letter != gold)
    return ()


def _is_whole(gold: str) -> bool:
    return re.fullmatch(r"[-+]?\d{1,15}", gold) is not None


def forms_of(answer: str) -> tuple[str, ...]:
    """An answer in the forms that rewards ask for: bare, in a sentence, boxed, in tags, as JSON.

    >>> forms_of("7")[1:3]
    ('The answer is 7.', '\\\\boxed{7}')
    """
    return (
        answer,
        f"The answer is {answer}.",
        f"\\boxed{{{answer}}}",
        f"<answer>{answer}</answer>",
        f"<think>\nLet me see.\n</think>\n<answer>{answer}</answer>",
        f"<think>\nLet me see.\n</think>\nThe answer is \\boxed{{{answer}}}.",
        f"#### {answer}",
        f'{{"answer": "{answer}"}}',
    )


def right_answers(scene: Scene) -> tuple[str, ...]:
    """The right answer in the forms that rewards ask for; none without a gold."""
    return forms_of(scene.gold) if scene.gold else ()


def wrong_answers(scene: Scene) -> tuple[str, ...]:
    """Honest failures: a wrong answer in the same forms, and "I don't know."."""
    return (*forms_of(scene.plain), "I don't know.")
