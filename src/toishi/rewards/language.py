"""`language`: the share of the answer's words that are in the asked-for language, as in DeepSeek-R1's second stage.

Decisions:
1. The script of a word decides first: a Chinese character in an English answer is not English, whatever stands around it. That
   is the mixing that the reward was made against, and it needs no model and no guess.
2. Languages that share the Latin script are told apart sentence by sentence by their most frequent function words (the, der,
   les, ...). A sentence without any of them says nothing and is left out. This is coarse, and it is the same on every machine
   and explains itself; statistical detectors guess on short and mathematical sentences, and would guess differently after an
   update.
3. What has no language is left out: code, formulas, links, numbers, tags.
4. An answer with too few words to tell abstains. It gets no share, and no penalty either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import regex
from pydantic import Field

from toishi.errors import ConfigError, nearest
from toishi.rewards.base import Judgement
from toishi.rewards.scripts import words
from toishi.types import Completion, Prompt

SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "am": ("Ethiopic",), "ar": ("Arabic",), "bn": ("Bengali",), "el": ("Greek",), "fa": ("Arabic",), "gu": ("Gujarati",),
    "he": ("Hebrew",), "hi": ("Devanagari",), "hy": ("Armenian",), "ja": ("Han", "Hiragana", "Katakana"), "ka": ("Georgian",),
    "km": ("Khmer",), "kn": ("Kannada",), "ko": ("Hangul",), "lo": ("Lao",), "ml": ("Malayalam",), "mr": ("Devanagari",),
    "my": ("Myanmar",), "pa": ("Gurmukhi",), "ru": ("Cyrillic",), "si": ("Sinhala",), "ta": ("Tamil",), "te": ("Telugu",),
    "th": ("Thai",), "uk": ("Cyrillic",), "ur": ("Arabic",), "zh": ("Han",),
}  # fmt: skip
FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(listed.split())
    for language, listed in {
        "en": "the of and to a an is that it was for on are with as his they be at this have from or had by but what were we "
        "when i you he she my not your can said there which their if will each how then them these so would "
        "has been who now its",
        "de": "der die das und ist ein eine einen nicht mit dem den des auf für von zu sich auch als wie wir ich es sie er ihr "
        "dass aus bei nach oder sind war wird werden haben hat kann nur noch aber wenn durch über zum zur dann",
        "fr": "le la les des et est un une que qui dans pour pas sur avec ce cette il elle nous vous ils sont du au aux par "
        "plus mais ou où donc être avoir a ont été comme si leur ses je tu ne se son sa même alors",
        "es": "el la los las de que y en un una es por con no para se del al lo como más pero sus su este esta son entre "
        "cuando muy sin sobre también hay fue ser era donde porque yo tú nos les qué entonces",
        "it": "il lo la gli le di che e è un una per non con si da del della dei delle nel nella al alla sono come più ma "
        "anche questo questa ha hanno essere era o se quando quindi dove io tu noi loro perché suo sua i a",
        "pt": "o a os as de que e em um uma é por com não para se do da dos das no na nos nas como mais mas ao ele ela são foi "
        "ser também este esta isso quando muito sem já eu você nós então porque seu sua pelo pela",
        "nl": "de het een en van is dat in op te zijn met voor niet aan er om ook als dan maar bij door naar uit over hij zij "
        "wij ik je ze was wordt worden heeft hebben kan nog wel dit deze die of hun onze",
        "sv": "och att det som en ett är på av för med den till inte om har de jag vi du han hon kan så men från var eller när "
        "ska vid detta denna dessa sig sin hade blir mycket också där",
        "pl": "i w z na się nie że do jest to jak o po ale co przez dla od tak czy są był może tym tego który która które gdy "
        "już tylko oraz lub ich jego jej być więc ponieważ te ta ten",
        "id": "yang dan di ini itu dengan untuk tidak dari dalam akan pada adalah ke saya kami kita mereka bisa ada juga oleh "
        "karena atau sebagai jika maka sudah telah dapat",
        "vi": "và của là có không được cho một trong với các những này đó để người khi đã về từ ra cũng như nên thì vì nếu bạn "
        "tôi chúng",
        "tr": "ve bir bu da de için ile çok ne ama gibi daha olarak var olan sonra kadar değil ise mi en her ya veya şu çünkü "
        "ki",
    }.items()
}
LANGUAGES = (*FUNCTION_WORDS, *SCRIPTS)

_LEFT_OUT = regex.compile(
    r"```.*?(?:```|\z)|`[^`\n]*`|\$\$.*?(?:\$\$|\z)|\$[^$\n]*\$|\\\[.*?(?:\\\]|\z)|\\\(.*?(?:\\\)|\z)"
    r"|\\begin\{(\w+\*?)\}.*?(?:\\end\{\1\}|\z)|\\[a-zA-Z]+(?:\{[^{}\n]*\})*|https?://\S+|</?[A-Za-z][\w-]*>",
    regex.DOTALL,
)
_KANA = regex.compile(r"[\p{Script=Hiragana}\p{Script=Katakana}]")
_SENTENCE = regex.compile(r"[^.!?;:\n。！？；]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageReward:
    """The share of the answer's words that are in the language, from 0 to 1.

    language   its two-letter code: en, de, fr, es, it, pt, nl, sv, pl, id, vi, tr by script and function words; am, ar, bn, el,
               fa, gu, he, hi, hy, ja, ka, km, kn, ko, lo, ml, mr, my, pa, ru, si, ta, te, th, uk, ur, zh by script alone
    min_words  an answer with fewer words that can be told abstains

    A word in a script without spaces is one character. Japanese is Chinese characters and kana in a sentence that has kana,
    Chinese the characters in one that has none. Code, formulas, links, numbers and tags are left out.

    Traps: by script alone Russian and Ukrainian, or Hindi and Marathi, are alike. A sentence without function words, a name or
    a borrowed word in the same script is not seen. It says nothing of the answer being right: weigh it below a reward that
    does.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?")
    >>> answers = [answered("The sum of both is 12."), answered("The sum 因为 is 12."), answered("$x = 12$")]
    >>> judged = LanguageReward(language="en").score_group(prompt, answers)
    >>> [(judgement.value, judgement.reason) for (judgement,) in judged]
    [(1.0, '5 of 5 words en'), (0.6, '3 of 5 words en'), (None, '0 words that can be told, 3 are needed')]
    """

    language: str
    name: str = "language"
    min_words: Annotated[int, Field(ge=1)] = 3

    _own: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ConfigError(
                f"reward '{self.name}'.language: {self.language!r} is not among the codes that it can tell; "
                f"known: {', '.join(sorted(LANGUAGES))}"
                if len(self.language) < 3
                else f"reward '{self.name}'.language: expected a two-letter code such as en or zh, got {self.language!r}; "
                f"{nearest(self.language[:2].lower(), LANGUAGES)}"
            )
        scripts = SCRIPTS.get(self.language, ("Latin",))
        object.__setattr__(self, "_own", regex.compile("[" + "".join(rf"\p{{Script={name}}}" for name in scripts) + "]"))

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(completion.text),) for completion in completions]

    def _judge(self, text: str) -> Judgement:
        split = (words(sentence) for sentence in _SENTENCE.findall(_LEFT_OUT.sub(" . ", text)))
        sentences = [sentence for sentence in split if sentence]
        own = told = 0
        whole = _hits([word for sentence in sentences for word in sentence])
        for sentence in sentences:
            in_script = [word for word in sentence if self._own.match(word)]
            verdict = self._verdict(sentence, whole)
            told += len(sentence) if verdict is not None else len(sentence) - len(in_script)
            own += len(in_script) if verdict else 0
        if told < self.min_words:
            reason = f"{told} word{'s' * (told != 1)} that can be told, {self.min_words} are needed"
            return Judgement(value=None, status="abstained", reason=reason, kind="too_few_words")
        return Judgement(value=own / told, reason=f"{own} of {told} words {self.language}")

    def _verdict(self, sentence: Sequence[str], whole: Mapping[str, int]) -> bool | None:
        """Whether a sentence's words in the language's script are of the language; None when that cannot be told.

        whole  the function words of each language in the whole answer: they decide where a sentence has equally many of several
        """
        if self.language in ("ja", "zh"):
            has_kana = any(_KANA.match(word) for word in sentence)
            return has_kana == (self.language == "ja")
        if self.language in SCRIPTS:
            return True
        hits = _hits(sentence)
        most = max(hits.values())
        if most == 0:
            return None
        best = [language for language, count in hits.items() if count == most]
        return self.language in best and whole[self.language] == max(whole[language] for language in best)


def _hits(sentence: Sequence[str]) -> dict[str, int]:
    """How many function words of each language stand there."""
    lowered = Counter(word.casefold() for word in sentence)
    return {language: sum(lowered[word] for word in listed if word in lowered) for language, listed in FUNCTION_WORDS.items()}
