"""Words that count things (apples, students) and words that change a number (million, tenths, not).

Decisions:
1. In an answer a word behind a number is read only where it is known to count things: a common noun of the list here, or a word
   of the gold or the question. Any other could be a scale, a denial or a hedge in words that no list has.
2. A gold's word is taken as it is, unless it is one of those that change a number.
"""

from __future__ import annotations

import re

NUMBER_WORDS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
ORDINALS = frozenset(("st", "nd", "rd", "th"))
_CHANGING_WORDS = """
    is are was were be been not no never none wrong right false true correct incorrect impossible wrongly negative
    positive inverse reciprocal or and nor but xor to plus minus times over mod modulo remainder with without base more
    less than fewer at least most about approximately approx around percent percentage percentile permille basis point
    per half halves quarter quarters third thirds squared cubed factorial if when because since as so unless except
    maybe perhaps possibly probably else otherwise where while although though divided multiplied doubled halved tripled
    double triple twice once opposite complement conjugate reversed square root by from of the a an i in on only up down
    left all any some each other another am pm pair pairs couple score gross lakh crore myriad googol pp bp ten tens
    zero one two three four five six seven eight nine eleven twelve dozen half-dozen first second third fourth fifth
    sixth seventh eighth ninth tenth plusminus oder ou und et bis
"""
_CHANGING = frozenset(_CHANGING_WORDS.split())
_SCALE = re.compile(
    r"\w*(?:illion|illiard|hundred|thousand|dozen|teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:s|ths?)?"
    r"|\w*[a-z](?:fth|xth|nth|hth|rth|ndth|ieth)s?"
)
_COMMON = """
    ace act actor adult age angle animal answer apple arrangement arrow article artist asymptote aunt award bag baker
    ball balloon ballot banana barn barrel base basket bat batch battery bead bean bear bed bee bicycle bike bill bird
    blanket block board boat bolt book bottle bouquet bowl box boy bracelet branch bread brick bridge brother brownie
    bucket bug building bulb bunny bus bush butterfly button cabin cable cake calorie camera camper can candle candy car
    card carpet carrot cat cell cent chair chapter charger chef cherry chicken child chocolate choice chord cigarette
    circle city class client clip coat coin color combination comic committee computer cone container cook cookie
    coordinate corner coupon cousin cow crate crayon crown cube cupcake curtain customer cycle daisy dart daughter day
    deck desk diagonal diameter diamond die digit dime dish divisor doctor dog doll donut door doughnut draw dress drill
    drink driver drone duck edge egg element elephant employee envelope episode eraser error event face factor family
    farmer fence field fish flip floor flower flyer folder fork friend frog function game garden gate gem gift girl
    glass glove goal goat grade grape group guest guy hammer hand handshake hat head hen hill hit horse hour house human
    hut inning integer intercept intersection invitation item jacket jar job key kid kite kitten knife ladder lake lamp
    lap laptop leaf lemon lesson letter light lion lizard loaf log machine man mango map marble mark mat match meal
    medal melon member message mile minivan minute mistake monkey month moon mouse move movie muffin mug multiple
    mushroom nail necklace neighbor net nickel note notebook number nurse nut object old onion option orange outcome
    outfit owl pack package packet page paint painting pan pancake paper parcel parent part participant passenger path
    patient pattern peach pear pearl pebble pen penalty pencil penny people permutation person petal phone photo picture
    pie piece pig pill pillow pilot pineapple pitch pizza place plane planet plank plant plate player plum pocket point
    poll pond pool poster pot potato present price prime prize problem product program puck pupil puppy puzzle question
    quiz rabbit race racket radius rectangle region result ribbon ride ring river road robe robot rock rocket roll room
    root rose route row rubber ruby rug run sack sailor sale sample sandwich saw scarf school screw seat seating section
    seed segment sentence sequence serve set sheep sheet shelf shell shift ship shirt shoe shot side sister skirt slice
    snack snake sock sofa soldier solution son song space spatula spider spoon sport spot square staff stair stamp star
    state stem step stick sticker stone stool store story strawberry strike student subset suit sum sweet symbol table
    tablet tail tangent tank teacher team tent term test text ticket tie tile tin toe token tomato tooth toss touchdown
    tour tourist towel town toy train travel tree trial triangle trip trophy truck tulip turn turtle twig uncle value
    vase vegetable vehicle vertex video vine violin visitor vote walk wall watch watermelon way week wheel window winner
    woman word worker worm year zebra
"""
THINGS = frozenset(_COMMON.split())
_IRREGULAR_WORDS = """
    children:child people:person men:man women:woman mice:mouse feet:foot teeth:tooth geese:goose dice:die leaves:leaf
    loaves:loaf shelves:shelf knives:knife wives:wife wolves:wolf vertices:vertex buses:bus shoes:shoe toes:toe pies:pie
    ties:tie bus:bus class:class movies:movie calories:calorie cookies:cookie brownies:brownie quizzes:quiz
"""
_IRREGULAR = dict(pair.split(":") for pair in _IRREGULAR_WORDS.split())


def thing_of(text: str, things: frozenset[str] | None) -> str | None:
    """One to three words that count things, in the singular and small letters, or None.

    things  singular words that are known besides the common ones; None: every word that does not change a number

    >>> thing_of("Red Apples", frozenset(("red",))), thing_of("apples today", frozenset()), thing_of("tenths", None)
    ('red apple', None, None)
    """
    written = text.split()
    if not 1 <= len(written) <= 3 or not all(re.fullmatch(r"[^\W\d_]{2,}(?:-[^\W\d_]+)*", word) for word in written):
        return None
    words = [word.casefold() if word.islower() or word.istitle() else word for word in written]
    if len(words) == 1 and words[0] in ORDINALS:
        return words[0]
    if any(changes_number(word.casefold()) for word in words) or words[0] in ORDINALS:
        return None
    singulars = [singular(word) for word in words]
    return " ".join(singulars) if things is None or all(word in THINGS or word in things for word in singulars) else None


def changes_number(word: str) -> bool:
    """Whether a word (small letters) makes another value of the number before it, or denies it.

    >>> [changes_number(word) for word in ("quadrillion", "sixths", "because", "apples")]
    [True, True, True, False]
    """
    return word in _CHANGING or _SCALE.fullmatch(word) is not None


def words_of(text: str) -> frozenset[str]:
    """The words of a question that may count things: singular, in small letters.

    >>> sorted(words_of("How many red gizmos, or tenths?"))
    ['gizmo', 'how', 'many', 'red']
    """
    words = {word.casefold() for word in re.findall(r"[^\W\d_]{2,}(?:-[^\W\d_]+)*", text)}
    return frozenset(singular(word) for word in words if not changes_number(word))


def singular(word: str) -> str:
    """The singular of a noun, well enough to compare two spellings of one.

    >>> [singular(word) for word in ("boxes", "houses", "children", "berries", "class")]
    ['box', 'house', 'child', 'berry', 'class']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("xes", "zes", "ches", "shes", "sses", "oes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
