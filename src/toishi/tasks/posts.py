"""`posts`: made-up posts of an advice forum, each to be summed up. Prompts of a paragraph that need no data set.

Decisions:
1. A post is a trouble with a person. Everything that fills it in (how long, what was tried, what is asked) is a function of
   (seed, trouble, person), so nothing is stored.
2. Whole troubles are held out: no held-out post tells of one that is trained on. Persons and filling sentences are shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toishi.errors import ConfigError
from toishi.tasks.listed import ListedTask, asked
from toishi.tasks.order import keyed_hash, keyed_order
from toishi.types import Prompt

PEOPLE = ("roommate", "neighbour", "sister", "brother", "cousin", "coworker", "landlord", "best friend", "uncle", "classmate")
TROUBLES: tuple[tuple[str, str, str], ...] = (
    ("borrows my bicycle", "takes my bicycle without asking", "Twice I had to walk to work because it was gone."),
    ("will not split the bill", "never pays a share when we eat out", "Last Friday I paid for six people again."),
    ("plays drums at night", "plays the drums after eleven at night", "The walls are thin and I get up at five."),
    ("forgot my birthday", "forgot my birthday for the third time", "I had told everyone about the dinner weeks before."),
    ("leaves the kitchen dirty", "leaves pans and plates in the sink for days", "There were ants on the table this morning."),
    ("wants to sell me insurance", "keeps trying to sell me insurance", "Every phone call now ends with a price list."),
    ("read my diary", "read my diary while I was away", "I found it on the wrong shelf with a bent page."),
    ("feeds my cat", "feeds my cat so much that it has become fat", "The vet says it has to lose two kilos."),
    ("parks in my space", "parks in the space that I pay for", "I drove around the block for half an hour on Sunday."),
    ("copied my recipe", "sells cakes that are made after my recipe", "The stall at the market even uses my name for them."),
    ("is always late", "is late for everything that we plan", "We missed the first half of a concert last month."),
    ("owes me money", "has owed me four hundred dollars since spring", "Meanwhile there is a new television over there."),
    ("cut down my tree", "cut down the apple tree behind my house", "My grandfather had planted it before I was born."),
    ("turns off the heating", "turns off the heating in the whole house", "It was twelve degrees in my room when I woke up."),
    (
        "tells my secrets",
        "told other people something that I had said in private",
        "Now even the baker knows that I am moving.",
    ),
    ("broke my camera", "dropped my camera into a lake and says it was old", "All the pictures of our trip were on it."),
    (
        "brings a dog to work",
        "brings a dog along although I am allergic",
        "I sneezed through a meeting with our biggest customer.",
    ),
    ("invited twenty people", "invited twenty people to my small flat", "One of them slept in the bathtub."),
    (
        "wants me as a babysitter",
        "leaves two small children with me every weekend",
        "I have not had a free Saturday since March.",
    ),
    ("corrects my English", "corrects my English in front of everybody", "I have begun to say less and less."),
    ("took my job idea", "presented my idea as if it were new", "The manager praised it in front of the whole team."),
    ("smokes on the balcony", "smokes on the balcony below my bedroom", "My curtains smell of it even after washing."),
    ("lost my library books", "lost three library books that are in my name", "The library wants ninety dollars by Monday."),
    ("will not stop singing", "sings in the hallway from morning to evening", "I am writing my thesis and cannot think."),
)
SINCE = (
    "This has been going on for about two months.",
    "It began after the summer holidays.",
    "At first I thought that it was a misunderstanding.",
    "It used to happen once a month, now it is every week.",
    "We have known each other for nine years and this is new.",
    "I moved here in January, and it started in the first week.",
)
TRIED = (
    "I wrote a friendly note, but there was no answer.",
    "I asked for a talk, and we ended up shouting.",
    "I tried to laugh about it, which made it worse.",
    "My mother says that I should let it go.",
    "Two friends think that I am right, one thinks that I exaggerate.",
    "I offered to share the costs, and that was ignored.",
    "So far I have said nothing because I hate to argue.",
)
BESIDES = (
    "Otherwise we get along well and often cook together.",
    "I should add that I once forgot to give back a drill.",
    "We will see each other at a wedding in three weeks.",
    "I am twenty-six and have never had such a quarrel before.",
    "Money is not the point for me, respect is.",
    "I do not want to lose this person.",
)
ASKED = (
    "How do I bring this up without making it worse?",
    "Am I wrong to be angry about it?",
    "Should I say something or wait until it stops?",
    "What would you do in my place?",
)


@dataclass(frozen=True, kw_only=True)
class Posts:
    """Options of the task `posts`, for rewards that need no gold, such as `length`.

    heldout   posts that are never trained on, of troubles that are never trained on
    template  with {title} and {post}

    >>> task = Posts(heldout=20).build(seed=0)
    >>> len(task.heldout), {prompt.columns["trouble"] for prompt in task.heldout} & {p.columns["trouble"] for p in task.train}
    (20, set())
    """

    heldout: Annotated[int, Field(ge=0)] = 64
    template: str = "Summarize this post.\n\n{title}\n\n{post}"
    as_chat: bool = True

    def __post_init__(self) -> None:
        if "{post}" not in self.template:
            raise ConfigError(f"task.template: {self.template!r} must have {{post}} where the post goes")
        most = (len(TROUBLES) - 1) * len(PEOPLE)
        if self.heldout > most:
            raise ConfigError(f"task.heldout: {self.heldout} posts, but at most {most} can be held out; set it lower")

    def build(self, *, seed: int) -> ListedTask:
        order = keyed_order(len(TROUBLES), seed, "split")
        aside = -(-self.heldout // len(PEOPLE))
        heldout = self._prompts(order[:aside], seed)[: self.heldout]
        train = self._prompts(order[aside:], seed)
        columns = frozenset({"title", "post", "trouble"})
        return ListedTask(name="posts", columns=columns, train=train, heldout=heldout, seed=seed)

    def _prompts(self, troubles: Sequence[int], seed: int) -> tuple[Prompt, ...]:
        """Person by person, so that the first few of them tell of many troubles."""
        return tuple(self._prompt(trouble, person, seed) for person in range(len(PEOPLE)) for trouble in troubles)

    def _prompt(self, trouble: int, person: int, seed: int) -> Prompt:
        who, (short, long, then) = PEOPLE[person], TROUBLES[trouble]
        since, tried, besides, question = (
            texts[keyed_hash(seed, "posts", trouble, person, place) % len(texts)]
            for place, texts in enumerate((SINCE, TRIED, BESIDES, ASKED))
        )
        title, post = f"My {who} {short}", f"My {who} {long}. {since} {then} {tried} {besides} {question}"
        text = self.template.replace("{title}", title).replace("{post}", post)
        columns = {"title": title, "post": post, "trouble": short}
        return asked(f"posts/{who}/{short}", text, as_chat=self.as_chat, columns=columns)
