"""Rules about the answers' length and content."""

from __future__ import annotations

from toishi.health.history import History, change_of

LENGTH = "answers/mean_tokens"
MIN_GROWTH = 8
"""Tokens: short answers double by a word."""


def length_growth(history: History, limit: float) -> str | None:
    """Longer without being better; beyond twice the limit, longer at all."""
    lengths = _lengths(history)
    if lengths is None:
        return None
    start, now = lengths
    factor = now / start
    if now - start < MIN_GROWTH or factor <= limit or (factor <= 2 * limit and history.reward_rose):
        return None
    better = "" if history.reward_rose else ", and the reward did not rise with it"
    return f"the mean answer grew from {start:.0f} to {now:.0f} tokens{better}"


def length_shrink(history: History, limit: float) -> str | None:
    """Answers became much shorter than at the start, and not because that pays."""
    lengths = _lengths(history)
    if lengths is None or lengths[1] >= limit * lengths[0] or history.reward_rose:
        return None
    return f"the mean answer shrank from {lengths[0]:.0f} to {lengths[1]:.1f} tokens, and the reward did not rise with it"


def _lengths(history: History) -> tuple[float, float] | None:
    start, now = history.steps.first(5).mean(LENGTH), history.steps.last(5).mean(LENGTH)
    return None if start is None or now is None or len(history.steps) < 10 else (start, now)


def wrong_longer(history: History, limit: float) -> str | None:
    """Answers below their group's mean grow, and faster than those above it."""
    first, recent = history.steps.first(10), history.steps.last(10)
    names = ("answers/mean_tokens_below", "answers/mean_tokens_above")
    if len(history.steps) < 20 or any(len(window.values(name)) < 5 for window in (first, recent) for name in names):
        return None
    below, above = (((first.mean(name) or 0.0), (recent.mean(name) or 0.0)) for name in names)
    if below[1] - below[0] < MIN_GROWTH or below[1] / below[0] < limit * above[1] / above[0]:
        return None
    return (
        f"answers below their group's mean grew from {below[0]:.0f} to {below[1]:.0f} tokens, "
        f"those above it went from {above[0]:.0f} to {above[1]:.0f}"
    )


def truncation(history: History, limit: float) -> str | None:
    """Many answers are cut: more than before, or after 30 steps about as many as at the start while the reward stands still.

    A run may begin with most answers cut and cure itself as it learns to stop.
    """
    name = "answers/truncated_share"
    recent, earlier = history.steps.last(10), history.steps.before_last(10)
    now, blocks = recent.mean(name), [block for block in earlier.blocks(10) if len(block.values(name)) > 1]
    if now is None or now <= limit or not blocks:
        return None
    best = min(blocks, key=lambda block: block.mean(name) or 0.0)
    rise, overall = change_of(best, recent, name), change_of(blocks[0], recent, name)
    rose = rise is not None and rise.difference >= 0.2 and rise.is_beyond(4)
    stays = overall is not None and overall.after - 0.8 * overall.before > overall.standard_error
    if not rose and (not stays or _is_learning(history)):
        return None
    return f"{now:.0%} of the answers of {recent} were cut at sampling.max_new_tokens={history.config.sampling.max_new_tokens}"


def _is_learning(history: History) -> bool:
    """Too early to judge (30 steps; 60 when the reward has risen at all), or the reward rose in the last ten steps."""
    if len(history.steps) < (60 if history.reward_rose else 30):
        return True
    recent = change_of(history.steps.before_last(10).last(10), history.steps.last(10), "reward/mean")
    return recent is not None and recent.is_beyond(2)


def empty_answers(history: History, limit: float) -> str | None:
    """Too many answers hold no text."""
    recent = history.steps.last(5)
    share = recent.mean("answers/empty_share")
    if len(recent) < 5 or share is None or share <= limit:
        return None
    return f"{share:.0%} of the answers of {recent} hold no text"
