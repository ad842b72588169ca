"""Held words in a later update: how min() holds one, and what moves it all the same."""

from __future__ import annotations

from toishi.explanation.page.markup import code
from toishi.explanation.toy.story_advantages import high_bound, low_bound
from toishi.explanation.toy.story_start import NOTHING
from toishi.explanation.toy.voice import Voice
from toishi.explanation.toy.walk import State, Token, Update, Walk


def held_and_free(walk: Walk, update: Update, voice: Voice) -> list[str]:
    """min() worked for one held word and one free one; nothing for a row whose loss has no min()."""
    if walk.row["surrogate"] not in ("clipped", "dual_clip"):
        return []
    low, high = low_bound(walk), high_bound(walk)
    held = next((token for token in update.tokens if token.clip in ("held_low", "held_high")), None)
    pulling = [token for token in update.tokens if token.clip == "free" and abs(token.push) > NOTHING]
    free = min(pulling, key=lambda token: token.position, default=None)
    told = []
    for key, token in (("held", held), ("free", free)):
        if token is not None:
            clipped = min(max(token.ratio, low), high)
            told.append(voice.say(f"later.worked_{key}", **_worked(token, clipped, voice)))
    return told


def _worked(token: Token, clipped: float, voice: Voice) -> dict[str, str]:
    terms = [ratio * token.advantage for ratio in (token.ratio, clipped)]
    return {
        "word": code(token.word),
        "answer": f"#{token.answer}",
        "ratio": voice.number(token.ratio),
        "clipped": voice.short(clipped),
        "advantage": voice.signed(token.advantage),
        "plain": voice.signed(terms[0]),
        "bounded": voice.signed(terms[1]),
        "least": voice.signed(min(terms)),
    }


def about_held(walk: Walk, update: Update, before: State, voice: Voice) -> list[str]:
    """What the free words' pushes do to a held word's logit, and which held words gained and lost by it."""
    firsts = [token for token in update.tokens if token.position == 1]
    free = [token for token in firsts if abs(token.push) > NOTHING]
    pulled = {token.word for token in free}
    held = [word for word in dict.fromkeys(token.word for token in firsts if token.clip != "free") if word not in pulled]
    if not held or not free:
        return []
    index = {word: place for place, word in enumerate(walk.world.words)}
    old, new, gradient = before.probabilities.first, update.step.after.probabilities.first, update.gradient.first
    told = []
    word = max(held, key=lambda name: abs(gradient[index[name]]))
    pushed, chance = sum(token.push for token in free), old[index[word]]
    if abs(pushed * chance - gradient[index[word]]) < NOTHING:
        numbers = {"chance": voice.number(chance), "gradient": voice.signed(gradient[index[word]])}
        pushes = " ".join(voice.signed(token.push) for token in free)
        pushes = f"({pushes})" if len(free) > 1 or pushed > 0 else pushes
        free_words = voice.listed(dict.fromkeys(code(token.word) for token in free))
        told.append(voice.say("later.held_gradient", word=code(word), free=free_words, pushes=pushes, **numbers))
    moves = {name: new[index[name]] - old[index[name]] for name in held}
    sides = (("lost", [n for n in held if moves[n] < -NOTHING]), ("gained", [n for n in held if moves[n] > NOTHING]))
    said = [voice.say(f"later.held_{key}", words=voice.listed(map(code, names))) for key, names in sides if names]
    if said:
        told.append(voice.say("later.held_shares", moves="; ".join(said)))
    return told
