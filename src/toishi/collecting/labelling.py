"""Pairs of answers judged by people: blind, side by side, one key each; and how far the people agree.

Decisions:
1. Blind: which side an answer is on is drawn from the pair and the labeller's name, so it is the same when the labeller comes
   back, and says nothing of which answer the file calls chosen.
2. A label is a sealed line, on the disk before the next pair is shown. Who quits goes on later where they stopped; a skipped
   pair comes again then.
3. A label names its pair by a hash of the prompt and both texts: a file in another order, or with more pairs, keeps its labels.
4. Agreement is corrected for chance: Cohen's kappa for two people, Krippendorff's alpha for all, with intervals over pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from toishi.collecting.journal import JournalWriter, require_seals
from toishi.collecting.samples import sha256_of
from toishi.errors import DataError
from toishi.ops.agreement import cohen_kappa, krippendorff_alpha, raw_agreement
from toishi.ops.association import bootstrap
from toishi.ops.stats import Interval, wilson
from toishi.record.files import read_lines
from toishi.tasks.data import read_rows

Choice = Literal["chosen", "rejected", "tie"]
KEYS = {"1": "left", "2": "right", "=": "tie", "s": "skip", "q": "quit"}
VALUE = {"chosen": 1.0, "rejected": -1.0, "tie": 0.0}
SUFFIX = ".labels.jsonl"
SHOWN_AGAIN = "or take off this line, and its pair is shown again"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelItem:
    """A pair to be judged; `key` names it by its texts."""

    key: str
    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A pair as a labeller sees it. `number` of `total` are left and right sides blind."""

    number: int
    total: int
    prompt: str
    left: str
    right: str


def labels_path(file: Path) -> Path:
    """Where the labels of a file of pairs lie.

    >>> labels_path(Path("pairs.jsonl")).name
    'pairs.labels.jsonl'
    """
    return file.with_name(file.name.removesuffix(".jsonl") + SUFFIX)


def read_items(file: Path) -> list[LabelItem]:
    """The pairs of a file: rows with `prompt` (text or a chat) or `messages`, `chosen` and `rejected`.

    Raises DataError that lists the rows which are none; a pair that stands twice is shown once.
    """
    items: dict[str, LabelItem] = {}
    wrong = []
    for number, row in read_rows(file):
        asked = row.get("messages", row.get("prompt")) if isinstance(row, Mapping) else None
        texts = [row.get(key) for key in ("chosen", "rejected")] if isinstance(row, Mapping) else []
        prompt = _shown_prompt(asked)
        if not prompt or not all(isinstance(text, str) for text in texts):
            wrong.append(number)
            continue
        key = sha256_of([asked, *texts])
        items.setdefault(key, LabelItem(key=key, prompt=prompt, chosen=str(texts[0]), rejected=str(texts[1])))
    if wrong or not items:
        rows = f"rows {', '.join(map(str, wrong[:10]))}" if wrong else "no row"
        raise DataError(
            f"{file}: {rows} cannot be labelled; expected prompt (text) or messages (each turn with role and content, both "
            "texts), and chosen and rejected as texts. Mend these rows or remove them"
        )
    return list(items.values())


def _shown_prompt(asked: Any) -> str | None:
    """A prompt as a labeller reads it; None where it is neither text nor a chat of texts."""
    if isinstance(asked, str):
        return asked
    if not isinstance(asked, list) or not all(isinstance(turn, Mapping) for turn in asked):
        return None
    said = [(turn.get("role"), turn.get("content")) for turn in asked]
    if not all(isinstance(role, str) and isinstance(content, str) for role, content in said):
        return None
    return "\n\n".join(f"{role}: {content}" for role, content in said)


def read_labels(path: Path) -> dict[str, dict[str, str]]:
    """Labeller -> pair's key -> choice. Raises RecordError for a line that was changed."""
    found: dict[str, dict[str, str]] = {}
    lines = read_lines(path, otherwise=SHOWN_AGAIN)
    require_seals(path, lines, SHOWN_AGAIN)
    for line in lines:
        found.setdefault(str(line["name"]), {})[str(line["pair"])] = str(line["choice"])
    return found


def chosen_is_left(item: LabelItem, name: str) -> bool:
    """On which side a labeller sees the answer that the file calls chosen: a coin that pair and name decide."""
    return int(sha256_of([item.key, name])[:8], 16) % 2 == 0


def label(
    items: Sequence[LabelItem], path: Path, name: str, keys: Iterator[str], show: Callable[[Shown], None]
) -> tuple[int, int]:
    """Shows what `name` has not labelled yet, and writes what the keys say: 1, 2, =, s (skip), q (quit). Other keys do nothing.

    Ends at q, at the last pair, or when no key comes any more. Returns (labelled now, still to do).
    """
    done = read_labels(path).get(name, {})
    open_items = [item for item in items if item.key not in done]
    labelled = 0
    with JournalWriter(path) as journal:
        for place, item in enumerate(open_items, start=1):
            on_left = chosen_is_left(item, name)
            left, right = (item.chosen, item.rejected) if on_left else (item.rejected, item.chosen)
            show(Shown(number=place, total=len(open_items), prompt=item.prompt, left=left, right=right))
            said = next((KEYS[key] for key in keys if key in KEYS), "quit")
            if said == "quit":
                break
            if said != "skip":
                choice = "tie" if said == "tie" else "chosen" if (said == "left") == on_left else "rejected"
                journal.append({"pair": item.key, "name": name, "choice": choice, "left": "chosen" if on_left else "rejected"})
                labelled += 1
    return labelled, len(open_items) - labelled


def keys_of(texts: Iterable[str]) -> Iterator[str]:
    """The keys of lines of text, without spaces.

    >>> list(keys_of(["1 2\\n", "=q"]))
    ['1', '2', '=', 'q']
    """
    return (sign.lower() for text in texts for sign in text if not sign.isspace())


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPeople:
    """Two labellers on the pairs that both labelled. Intervals are 95%, over pairs; kappa is nan where nobody ever varies."""

    first: str
    second: str
    count: int
    raw: Interval
    kappa: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePerson:
    """A labeller: of the decided labels (no ties), the share that prefers what the file calls chosen, and the left side."""

    name: str
    count: int
    ties: int
    agrees: Interval | None
    left: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """`alpha` is Krippendorff's for all labellers, of categories; None where it is not defined."""

    pairs: int
    people: tuple[OnePerson, ...]
    two: tuple[TwoPeople, ...]
    alpha: float | None

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def agreement(items: Sequence[LabelItem], labels: Mapping[str, Mapping[str, str]]) -> Agreement:
    """How far the labellers agree with one another and with the file. Raises DataError without a label of these pairs."""
    keys = [item.key for item in items]
    of = {name: {key: VALUE[given[key]] for key in keys if key in given} for name, given in sorted(labels.items())}
    of = {name: given for name, given in of.items() if given}
    if not of:
        raise DataError("no pair of this file has a label yet: label some first")
    alpha = krippendorff_alpha([[given.get(key) for given in of.values()] for key in keys])
    return Agreement(
        pairs=len({key for given in of.values() for key in given}),
        people=tuple(_person(name, given, items) for name, given in of.items()),
        two=tuple(_two(one, other, of) for one, other in combinations(of, 2) if of[one].keys() & of[other].keys()),
        alpha=None if np.isnan(alpha) else alpha,
    )


def _person(name: str, given: Mapping[str, float], items: Sequence[LabelItem]) -> OnePerson:
    decided = [(item, given[item.key]) for item in items if given.get(item.key)]
    agrees = [value > 0 for _, value in decided]
    left = [(value > 0) == chosen_is_left(item, name) for item, value in decided]
    return OnePerson(
        name=name,
        count=len(given),
        ties=len(given) - len(decided),
        agrees=wilson(sum(agrees), len(agrees)) if decided else None,
        left=wilson(sum(left), len(left)) if decided else None,
    )


def _two(one: str, other: str, of: Mapping[str, Mapping[str, float]]) -> TwoPeople:
    shared = [key for key in of[one] if key in of[other]]
    first, second = (np.array([of[name][key] for key in shared]) for name in (one, other))
    return TwoPeople(
        first=one,
        second=other,
        count=len(shared),
        raw=bootstrap(lambda chosen: raw_agreement(first[chosen], second[chosen]), shared),
        kappa=bootstrap(lambda chosen: cohen_kappa(first[chosen], second[chosen]), shared),
    )
