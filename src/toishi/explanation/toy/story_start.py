"""The walk up to the advantages: the step in one table, the model, SFT, the answers and their scores."""

from __future__ import annotations

import math

from toishi.algorithms.notes import describe
from toishi.explanation.page.blocks import Bars, Block, Line, Paragraph, Section, Signed, Table
from toishi.explanation.page.markup import code
from toishi.explanation.toy.voice import Voice, tone
from toishi.explanation.toy.walk import Answer, Applied, Rows, Walk

NOTHING = 1e-9


def overview(walk: Walk, voice: Voice) -> Section:
    """Score to probability, one line for each answer."""
    first = walk.updates[0]
    after = first.step.after
    lines = []
    for answer in walk.answers:
        pushes = [token.push for token in first.tokens if token.answer == answer.number and token.position == 1]
        word = answer.tokens[0]
        cells = (
            f"#{answer.number}",
            code(answer.text),
            _score(answer, voice),
            voice.short(answer.reward),
            voice.signed(answer.advantage),
            voice.signed(sum(pushes)),
            voice.percent(walk.world.first[word]),
            voice.percent(after.probabilities.first[word]),
        )
        odd = walk.moves[word].surprising
        lines.append(Line(cells, "against" if odd else tone(after.probabilities.first[word] - walk.world.first[word])))
    columns = voice.columns("number", "answer", "score", "reward", "advantage", "first_push", "first_before", "first_after")
    blocks: list[Block] = [Paragraph(by_credit("overview.read", walk, voice)), Table(columns, tuple(lines))]
    surprising = [code(move.word) for move in walk.moves if move.surprising]
    if surprising:
        see = voice.say("surprise.title")
        blocks.append(Paragraph(voice.say("overview.surprising", words=voice.listed(surprising), see=see)))
    before_reward, after_reward = walk.before.expected_reward, after.expected_reward
    if before_reward is not None and after_reward is not None and first.gradient_norm > NOTHING:
        blocks.append(
            Paragraph(voice.say("overview.reward", before=voice.short(before_reward), after=voice.short(after_reward)))
        )
    return Section("overview", voice.say("overview.title"), _headline(walk, voice), tuple(blocks))


def model(walk: Walk, voice: Voice) -> Section:
    """Two rows of logits and their probabilities."""
    world = walk.world
    lines = [
        Line((code(word), *(voice.number(number) for p in (first, second) for number in (math.log(p), p))))
        for word, first, second in zip(world.words, world.first, world.second, strict=True)
    ]
    names = [voice.say("first_place"), voice.say("second_place")]
    columns = voice.columns("word", "logit", "probability", "logit", "probability")
    titled = [column if not i else type(column)(f"{names[(i - 1) // 2]} {column.title}") for i, column in enumerate(columns)]
    body = voice.say("model.body", end=code(world.words[-1]))
    return Section(
        "model",
        voice.say("model.title"),
        voice.say("model.headline"),
        (Paragraph(body), Table(tuple(titled), tuple(lines))),
    )


def supervised(walk: Walk, voice: Voice) -> Section:
    """What SFT does with the same model, and what it has no place for."""
    sft, world = walk.sft, walk.world
    logs = " + ".join(f"log {voice.short(math.exp(logprob))}" for logprob in sft.logprobs)
    total = f"−({logs}) / {len(sft.logprobs)}"
    rule = "sft.gradient_adam" if sft.step.optimizer == "adam" else "sft.gradient"
    after = sft.step.after.probabilities
    factors = [
        voice.say("sft.other", word=code(word), score=_points(world.scores[i], voice), factor=f"{after.first[i] / p:.2f}")
        for i, (word, p) in enumerate(zip(world.words, world.first, strict=True))
        if i != world.target[0]
    ]
    blocks: list[Block] = [
        Paragraph(voice.say("sft.loss", sum=total, nll=voice.short(sft.nll))),
        Paragraph(voice.say(rule, length=len(world.target), lr=voice.short(sft.step.lr))),
        position_table(walk, voice, sft.gradient.first, sft.step, first=True),
    ]
    if len(world.target) > 1:
        blocks.append(position_table(walk, voice, sft.gradient.second, sft.step, first=False))
    blocks.append(Paragraph(voice.say("sft.after", nll=voice.short(sft.nll), nll_after=voice.short(sft.nll_after))))
    blocks.append(Paragraph(voice.say("sft.no_bad", others=voice.listed(factors))))
    return Section("sft", voice.say("sft.title"), voice.say("sft.headline", answer=code(sft.answer)), tuple(blocks))


def answers(walk: Walk, voice: Voice) -> Section:
    """The group, with the judge's words and points."""
    lines = [
        Line((f"#{a.number}", code(a.text), a.comment, _score(a, voice), voice.short(a.reward)), "" if a.takes_part else "held")
        for a in walk.answers
    ]
    blocks: list[Block] = [
        Table(voice.columns("number", "answer", "says", "score", "reward"), tuple(lines)),
    ]
    known = [answer for answer in walk.answers if answer.reward is not None]
    if known:
        example = voice.say(
            "answers.reward",
            score=_points(known[0].score, voice),
            points=_points(walk.world.points, voice),
            reward=voice.short(known[0].reward),
        )
        blocks.append(Paragraph(example))
    if len(known) < len(walk.answers):
        blocks.append(Paragraph(voice.say("answers.failed")))
    title, headline = voice.say("answers.title", row=row_title(walk)), voice.say("answers.headline", group=len(walk.answers))
    return Section("answers", title, headline, tuple(blocks))


def by_credit(key: str, walk: Walk, voice: Voice) -> str:
    """The text for rows with this credit, or for those that compare the answers of the group."""
    own = f"{key}_{walk.row['credit']}"
    return voice.say(own if voice.say.maybe(own) else key)


def row_title(walk: Walk) -> str:
    """The algorithm's name as it is written."""
    return describe(str(walk.row["name"])).title.split(":")[0]


def position_table(
    walk: Walk, voice: Voice, gradient: tuple[float, ...], step: Applied, *, first: bool, start: Rows | None = None
) -> Table:
    """Before, gradient, change of logit, after, for each word of one position; `start` is where a later update began."""
    world, after, place = walk.world, step.after.probabilities, "first" if first else "second"
    before = start or Rows(first=world.first, second=world.second)
    numbers = zip(world.words, *(getattr(rows, place) for rows in (before, step.change, after)), gradient, strict=True)
    lines = [
        Line((code(word), voice.number(p), voice.signed(g), voice.signed(c), voice.number(q)), tone(q - p))
        for word, p, c, q, g in numbers
    ]
    caption = voice.say("first_position" if first else "second_position")
    return Table(voice.columns("word", "before", "gradient", "change", "after"), tuple(lines), caption)


def bars(walk: Walk, voice: Voice, step: Applied) -> Bars:
    """First words before and after."""
    after = step.after.probabilities.first
    return Bars(voice.say("first_position"), tuple(zip(walk.world.words, walk.world.first, after, strict=True)))


def signed_bars(walk: Walk, voice: Voice) -> Signed:
    """Advantages around 0."""
    items = [(f"#{a.number} {a.text}", a.advantage, voice.signed(a.advantage)) for a in walk.answers]
    return Signed(voice.say("advantages.chart"), tuple(items))


def _headline(walk: Walk, voice: Voice) -> str:
    if walk.updates[0].gradient_norm <= NOTHING:
        return voice.say("overview.nothing")
    moves = sorted(zip(walk.moves, walk.world.scores, strict=True), key=lambda pair: pair[0].after - pair[0].before)
    (least, least_score), (most, most_score) = moves[0], moves[-1]
    return voice.say(
        "overview.headline",
        up=code(most.word),
        up_score=_points(most_score, voice),
        up_before=voice.percent(most.before),
        up_after=voice.percent(most.after),
        down=code(least.word),
        down_score=_points(least_score, voice),
        down_before=voice.percent(least.before),
        down_after=voice.percent(least.after),
    )


def _score(answer: Answer, voice: Voice) -> str:
    return voice.say("failed") if answer.score is None else _points(answer.score, voice)


def _points(score: float | None, voice: Voice) -> str:
    return voice.say("failed") if score is None else f"{score:g}"
