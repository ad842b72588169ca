"""Questions to a judge: prompt templates as data, filled with quoted texts.

Decisions:
1. A template serves every mode: `{{answers}}` stands for one answer, for A and B, or for a numbered group, as the mode has it.
2. Places are filled in one pass, so `{{reference}}` written inside an answer stays what it is: text.
3. Everything is one user turn: some chat formats know no system turn, and the reply's form has to come after the answers.
4. Template files are data in the package (`judging/prompts/*.yaml`); one's own file has the same keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from toishi.config.yaml_text import read_yaml
from toishi.errors import ConfigError, nearest
from toishi.judging.base import JudgeCall
from toishi.judging.forms import LABELS, ReplyForm
from toishi.judging.quoting import notice, quoted, tag_of
from toishi.judging.scale import Scale

JudgePart = Literal["whole", "answer"]
PLACES = ("question", "answers", "reference", "criteria")
KEYS = ("judge_part", "scale", "text")
_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Instructions of a judge.

    name        the built-in name, or the file
    text        the instructions, with {{question}}, {{answers}} and, where wanted, {{reference}} and {{criteria}}
    judge_part  "answer": only what follows the reasoning is judged; "whole": everything
    scale       the range of scores where the recipe states none
    """

    name: str
    text: str
    judge_part: JudgePart
    scale: str

    @property
    def places(self) -> frozenset[str]:
        """The names of the places that the text has."""
        return frozenset(_PLACE.findall(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """What a judge sees beside the answers: the question, and where the template has a place for it the right answer and the
    criteria ("" = none). The criteria are the recipe's own words and stand unquoted."""

    question: str
    reference: str = ""
    criteria: str = ""


def template_names() -> list[str]:
    """The built-in templates.

    >>> template_names()
    ['correctness', 'criteria', 'harmlessness', 'helpfulness', 'preference', 'rubric']
    """
    return sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml"))


@lru_cache(maxsize=64)
def load_template(name: str, *, where: str = "prompt") -> Template:
    """A built-in template by name, or one's own from a .yaml file. Raises ConfigError when anything about it is wrong.

    >>> sorted(load_template("correctness").places)
    ['answers', 'question', 'reference']
    """
    if name.endswith((".yaml", ".yml")):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where}: {name} cannot be read: {error}") from None
    elif name in template_names():
        text = (_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise ConfigError(
            f"{where}: there is no template '{name}'; {nearest(name, template_names())}. Your own: the path of a .yaml file"
        )
    return _template(name, text, f"{where} {name}")


def ask_about(
    template: Template,
    matter: Matter,
    answers: Sequence[str],
    form: ReplyForm,
    *,
    repeat: int = 0,
    max_tokens: int = 512,
    temperature: float = 0.0,
) -> JudgeCall:
    """One call about `answers`: one is shown as it is; several are numbered, or called A and B where the form is lettered.

    >>> from toishi.judging.forms import score_form
    >>> call = ask_about(load_template("helpfulness"), Matter(question="2+2?"), ["4"], score_form(Scale.read("1-10")))
    >>> "<data-" in call.messages[0]["content"], call.messages[0]["content"].splitlines()[-1]
    (True, '{"reason": "one or two sentences", "score": a number from 1 to 10}')
    """
    tag = tag_of([matter.question, matter.reference, *answers])
    filling = {
        "question": quoted(matter.question, tag),
        "answers": _shown(answers, tag, lettered=form.schema is not None and "winner" in str(form.schema.get("required"))),
        "reference": quoted(matter.reference, tag),
        "criteria": matter.criteria,
    }
    body = _PLACE.sub(lambda place: filling[place[1]], template.text.strip())
    content = f"{notice(tag)}\n\n{body}\n\n{form.words}"
    return JudgeCall(
        messages=({"role": "user", "content": content},),
        prefix=form.prefix,
        choices=form.choices,
        repeat=repeat,
        max_tokens=1 if form.choices else max_tokens,
        temperature=temperature,
        json_schema=form.schema,
    )


def _shown(answers: Sequence[str], tag: str, *, lettered: bool) -> str:
    if lettered:
        return "\n\n".join(f"Answer {label}:\n{quoted(text, tag)}" for label, text in zip(LABELS, answers, strict=True))
    if len(answers) == 1:
        return quoted(answers[0], tag)
    return "\n\n".join(f"Answer {place}:\n{quoted(text, tag)}" for place, text in enumerate(answers, start=1))


def _folder() -> Any:
    return files("toishi.judging") / "prompts"


def _template(name: str, text: str, where: str) -> Template:
    try:
        read = read_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not readable as YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(read, dict):
        raise ConfigError(f"{where}: expected the keys {', '.join(KEYS)}, got {type(read).__name__}")
    for key in read:
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key '{key}'; {nearest(str(key), KEYS)}")
    values = {"judge_part": "answer", "scale": "1-10"} | read
    if not isinstance(values.get("text"), str):
        raise ConfigError(f"{where}.text: expected the instructions as text, got {values.get('text')!r:.60}")
    if values["judge_part"] not in ("whole", "answer"):
        raise ConfigError(f"{where}.judge_part: expected whole or answer, got {values['judge_part']!r}")
    Scale.read(str(values["scale"]), where=f"{where}.scale")
    part: JudgePart = "whole" if values["judge_part"] == "whole" else "answer"
    template = Template(name=name, text=values["text"], judge_part=part, scale=str(values["scale"]))
    _check_places(template, where)
    return template


def _check_places(template: Template, where: str) -> None:
    for place in sorted(template.places):
        if place not in PLACES:
            raise ConfigError(f"{where}.text: there is nothing to put in the place {{{{{place}}}}}; {nearest(place, PLACES)}")
    for place in ("question", "answers"):
        if place not in template.places:
            raise ConfigError(f"{where}.text: the place {{{{{place}}}}} is missing; the judge would not see the {place}")
