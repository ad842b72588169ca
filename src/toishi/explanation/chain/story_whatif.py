"""What would have come out with another score, as a section: a table in which the reader moves a score.

Decisions:
1. What is exact, measured and estimated is named apart, in words and in columns.
2. Nothing is computed here or in the page: every case was asked before, by the functions that the command uses.
3. A cause is named only as a possible one: a forecast does not say which answer's push made it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from toishi.explanation.chain import model_whatif as asked
from toishi.explanation.chain.headlines import effect_of
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.model_whatif import AskedAnswer, Slider, WhatIfs
from toishi.explanation.chain.story_parts import answer_cell
from toishi.explanation.chain.voice import Voice, one_line
from toishi.explanation.page.blocks import Block, Case, Choice, Column, Lookup, LookupWords, Paragraph, Section, Tone
from toishi.explanation.page.markup import code, literal

NUMBERS = ("score", "reward", "advantage", "change_nats", "half_width_nats")
"""Of each answer in each case, as they stand in the page's data."""
WORDS = ("choice", "slider", "apart", "reset", "command", "picture")
SHOWN_CHANGE = 0.01
"""Relative change of the clipping's factor from which it is worth a sentence."""
_TIMES = "×\u00a0"
_TONES: dict[str, Tone] = {"up": "up", "down": "down", "direction not determined": "against", "no number": ""}


def whatif(chain: Chain, found: WhatIfs, voice: Voice) -> Section | None:
    """The section; None where there is no score to change and no answer to leave out."""
    title = voice.say("whatif.title")
    if found.impossible:
        why = Paragraph(voice.say("whatif.impossible", why=literal(found.impossible)))
        return Section("whatif", title, voice.say("whatif.headline_impossible"), (why,))
    if not found.sliders:
        return None
    texts = [voice.say("whatif.what")]
    if found.refused:
        texts += [voice.say("whatif.kinds_exact"), voice.say("whatif.refused", why=literal(found.refused))]
    else:
        texts += [voice.say("whatif.kinds"), voice.say("whatif.why_against")]
    if found.num_updates > 1:
        texts.append(voice.say("whatif.several", count=found.num_updates))
    texts += _ranges(found, voice)
    blocks: list[Block] = [*map(Paragraph, texts), _Asked(chain, found, voice).lookup()]
    if found.passed_over:
        blocks.append(Paragraph(voice.say("whatif.passed_over", answers=voice.members(found.passed_over))))
    headline = voice.say("whatif.headline_refused" if found.refused else "whatif.headline")
    return Section("whatif", title, headline, tuple(blocks))


def _ranges(found: WhatIfs, voice: Voice) -> Iterator[str]:
    """From where to where each reward's sliders go."""
    for slider in {slider.reward: slider for slider in found.sliders}.values():
        key = "declared" if slider.declared else "seen"
        values = {"reward": code(slider.reward), "low": voice.number(slider.low), "high": voice.number(slider.high)}
        yield voice.say(f"whatif.range_{key}", **values)


class _Asked:
    """The cases of a group as they are shown."""

    def __init__(self, chain: Chain, found: WhatIfs, voice: Voice) -> None:
        self.chain, self.found, self.voice = chain, found, voice
        self.brief = Voice(voice.say, 3)
        self.texts = {scored.member: scored.answer for scored in chain.scores.members}
        self.measured = {each.member: self._measured(each) for each in found.before}
        self.with_reward = len(found.rewards) > 1 or any(
            each.score is not None and each.reward is not None and abs(each.score - each.reward) > 1e-9 for each in found.before
        )
        self.cases: list[Case] = []

    def _measured(self, each: AskedAnswer) -> float | None:
        """What the real step, all updates of it, did to the answer."""
        effect = effect_of(self.chain, each.member)
        return effect.change if effect is not None and self.found.num_updates > 1 else each.forecast

    def lookup(self) -> Lookup:
        """Sliders for all answers and rewards; cases of answers left out are shared between the sliders of an answer."""
        choices = [self._choice(slider) for slider in self.found.sliders]
        say = self.voice.say
        update = f" --update {self.found.update}" if self.found.update else ""
        folder, step, group = shlex.quote(self.chain.folder), self.chain.step, self.chain.group
        command = f"toishi whatif {folder} --step {step} --group {group}{update} "
        return Lookup(
            columns=tuple(self._columns()),
            lines=tuple(self._fixed(each) for each in self.found.before),
            marks=tuple(self.measured[each.member] for each in self.found.before),
            cases=tuple(self.cases),
            choices=tuple(choices),
            chosen=self._first(choices),
            command=(command, " --real"),
            numbers=NUMBERS,
            drawn=(NUMBERS.index("change_nats"), NUMBERS.index("half_width_nats")),
            words=LookupWords(*(say(f"whatif.{name}") for name in WORDS)),
            caption=say("whatif.caption_exact" if self.found.refused else "whatif.caption"),
        )

    def _columns(self) -> Iterator[tuple[Column, bool]]:
        names = ("number", "answer", "score", *(("reward",) if self.with_reward else ()), "advantage")
        names += ("real_change", "estimate", "way")
        fixed = ("number", "answer", "real_change")
        for name, column in zip(names, self.voice.columns(*names), strict=True):
            yield column, name not in fixed

    def _fixed(self, each: AskedAnswer) -> tuple[str, ...]:
        text = answer_cell(self.texts.get(each.member, ""), 32)
        return (f"#{each.member}", text, self.voice.times(self.measured[each.member]))

    def _choice(self, slider: Slider) -> Choice:
        start = len(self.cases)
        self.cases += [self._case(case, slider) for case in slider.cases]
        left = next((one for one in self.found.left_out if one.member == slider.member), None)
        apart, why = None, [slider.why_not]
        if left is not None:
            why.append(left.why_not)
            if left.case is not None:
                apart = len(self.cases)
                self.cases.append(self._case(left.case, slider))
        text = one_line(self.texts.get(slider.member, ""), 32)
        reward = f" ({slider.reward})" if len(self.found.rewards) > 1 else ""
        return Choice(
            label=f"#{slider.member}{reward} {text}",
            line=[each.member for each in self.found.before].index(slider.member),
            cases=tuple(range(start, start + len(slider.cases))),
            start=next(at for at, case in enumerate(slider.cases) if not case.option),
            apart=apart,
            why_not="; ".join(filter(None, why)),
        )

    def _first(self, choices: Sequence[Choice]) -> tuple[int, int]:
        """The followed answer, else the one with the lowest reward; its score at the end that is further from the real one."""
        rewards = {each.member: each.reward for each in self.found.before if each.reward is not None}
        lowest = min(rewards, key=lambda member: rewards[member], default=None)
        wanted = lowest if self.chain.member is None else self.chain.member
        able = [at for at, slider in enumerate(self.found.sliders) if len(slider.cases) > 1] or [0]
        at = next((at for at in able if self.found.sliders[at].member == wanted), able[0])
        slider, choice = self.found.sliders[at], choices[at]
        upper = slider.recorded is not None and 2 * slider.recorded > slider.low + slider.high
        return at, 0 if upper else len(choice.cases) - 1

    def _case(self, case: asked.Case, slider: Slider) -> Case:
        now = next(one for one in slider.cases if not one.option)
        name = f"{slider.reward}:" if len(self.found.rewards) > 1 else ""
        left_out = _is_left_out(case)
        shown = [
            self._line(old, new, real=not case.option, left_out=left_out)
            for old, new in zip(now.answers, case.answers, strict=True)
        ]
        return Case(
            value=self._value(case, slider, left_out=left_out),
            option=case.option or f"--score {name}{slider.member}={self.voice.say('whatif.any')}",
            said=tuple(self._said(case, slider, now)),
            cells=tuple(shown),
            tones=tuple(_TONES[each.verdict] for each in case.answers),
            numbers=tuple(
                (old.score if left_out else new.score, new.reward, new.advantage, new.forecast, new.half_width)
                for old, new in zip(now.answers, case.answers, strict=True)
            ),
        )

    def _value(self, case: asked.Case, slider: Slider, *, left_out: bool) -> str:
        if left_out:
            return self.voice.say("left_out")
        if case.option:
            return self._number(case.score)
        return self.voice.say("whatif.really", score=self._number(slider.recorded))

    def _number(self, score: float | None) -> str:
        return self.voice.say("whatif.none") if score is None else self.voice.number(score)

    def _line(self, old: AskedAnswer, new: AskedAnswer, *, real: bool, left_out: bool) -> tuple[str, ...]:
        """The cells that vary."""
        brief, out = self.brief, self.voice.say("left_out")
        gone = bool(new.left_out) and not old.left_out
        score = out if gone else _pair(self._number(old.score), self._number(old.score if left_out else new.score))
        cells = [score]
        if self.with_reward:
            cells.append(_pair(*(out if one.reward is None else brief.number(one.reward) for one in (old, new))))
        cells.append(_pair(*("–" if one.left_out else _advantage(one.advantage) for one in (old, new))))
        if new.forecast is None or new.half_width is None:
            return (*cells, "–", self.voice.say("whatif.way_none"))
        low, high = (self.voice.times(end) for end in (new.forecast - new.half_width, new.forecast + new.half_width))
        ends = {"low": low.removeprefix(_TIMES), "high": high.removeprefix(_TIMES)}
        reach = self.voice.say("whatif.measured") if real else self.voice.say("whatif.range", **ends)
        way = self.voice.say("whatif." + {"up": "way_up", "down": "way_down"}.get(new.verdict, "way_unsure"))
        if not real and old.forecast is not None:
            way += f"\n({self.voice.say('whatif.' + _beside_real(new.forecast - old.forecast, new.half_width))})"
        return (*cells, f"{self.voice.times(new.forecast)}\n({reach})", way)

    def _said(self, case: asked.Case, slider: Slider, now: asked.Case) -> Iterator[str]:
        """The question, what became of the answer that it is about, what became of others, and how far it can be trusted."""
        say = self.voice.say
        mine = next(each for each in case.answers if each.member == slider.member)
        before = next(each for each in now.answers if each.member == slider.member)
        names = {"answer": f"#{slider.member}", "recorded": self._number(slider.recorded), "score": self._number(case.score)}
        if not case.option:
            yield say("whatif.said_real", **names)
            return
        yield self._question(case, mine, before, names)
        if case.tied:
            yield say("whatif.said_tied")
        if case.refused:
            if case.refused != self.found.refused:
                yield say("whatif.said_refused", why=case.refused)
            return
        if case.skipped:
            yield say("whatif.said_skipped")
            return
        yield from self._became(mine, before)
        yield from self._others(case, now, slider.member)
        yield say(f"whatif.said_{case.trust}")
        old, new = case.clip_factor
        if old is not None and new is not None and abs(new - old) > SHOWN_CHANGE * old:
            yield say("whatif.said_clip", old=self.brief.number(old), new=self.brief.number(new))

    def _question(self, case: asked.Case, mine: AskedAnswer, before: AskedAnswer, names: dict[str, str]) -> str:
        if _is_left_out(case):
            return self.voice.say("whatif.said_drop", **names)
        old, new = (_advantage(one.advantage) for one in (before, mine))
        key = "said_joins" if before.left_out and not mine.left_out else "said_score"
        return self.voice.say(f"whatif.{key}", old=old, new=new, **names)

    def _became(self, mine: AskedAnswer, before: AskedAnswer) -> Iterator[str]:
        if mine.forecast is None or mine.half_width is None or before.forecast is None:
            return
        values = {
            "answer": f"#{mine.member}",
            "now": self.voice.likelier(mine.forecast),
            "low": self.voice.times(mine.forecast - mine.half_width),
            "high": self.voice.times(mine.forecast + mine.half_width),
            "before": self.voice.likelier(before.forecast),
        }
        key = "said_unsure" if mine.verdict == "direction not determined" else "said_became"
        yield self.voice.say(f"whatif.{key}", **values)

    def _others(self, case: asked.Case, now: asked.Case, mine: int) -> Iterator[str]:
        """Other answers that would turn round or cannot be told, and all that would go against their own advantage."""
        clear = [(new, old) for new, old in zip(case.answers, now.answers, strict=True) if new.verdict in ("up", "down")]
        turned = [new.member for new, old in clear if old.forecast is not None and (old.forecast > 0) != (new.verdict == "up")]
        against = [new.member for new, _ in clear if round(new.advantage or 0.0, 9) * (1 if new.verdict == "up" else -1) < 0]
        unsure = [each.member for each in case.answers if each.verdict == "direction not determined"]
        turned, unsure = ([member for member in members if member != mine] for members in (turned, unsure))
        for key, members in (("turned", turned), ("against", against), ("undetermined", unsure)):
            if members:
                yield self.voice.say(f"whatif.said_{key}", answers=self.voice.members(members))


def _is_left_out(case: asked.Case) -> bool:
    return case.option != "" and case.score is None


def _beside_real(apart: float, half_width: float) -> str:
    """How an estimate stands to the real step, which was measured.

    >>> _beside_real(0.5, 0.1), _beside_real(-0.5, 0.1), _beside_real(0.05, 0.1)
    ('way_above', 'way_below', 'way_as_real')
    """
    return "way_as_real" if abs(apart) <= half_width else "way_above" if apart > 0 else "way_below"


def _advantage(value: float | None) -> str:
    """
    >>> _advantage(-0.7242), _advantage(0.0), _advantage(None)
    ('−0.72', '0', '–')
    """
    return "–" if value is None else f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0"


def _pair(before: str, after: str) -> str:
    r"""In two lines: side by side they would push the last columns off the page.

    >>> _pair("2", "9"), _pair("2", "2")
    ('2\n→ 9', '2')
    """
    return before if before == after else f"{before}\n→ {after}"
