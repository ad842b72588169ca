"""The reward `language`: shares counted by hand, in sixteen languages against one another."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.errors import ConfigError
from toishi.rewards.language import FUNCTION_WORDS, LANGUAGES, SCRIPTS, LanguageReward
from toishi.rewards.scripts import words

SAME_TEXT = {
    "en": "First we add the two numbers. That gives twelve, which is the answer to the question.",
    "de": "Zuerst addieren wir die beiden Zahlen. Das ergibt zwölf, und das ist die Antwort auf die Frage.",
    "fr": "D'abord, nous additionnons les deux nombres. Cela donne douze, ce qui est la réponse à la question.",
    "es": "Primero sumamos los dos números. Esto da doce, que es la respuesta a la pregunta.",
    "it": "Prima sommiamo i due numeri. Questo dà dodici, che è la risposta alla domanda.",
    "pt": "Primeiro somamos os dois números. Isso dá doze, que é a resposta para a pergunta.",
    "nl": "Eerst tellen we de twee getallen op. Dat geeft twaalf, en dat is het antwoord op de vraag.",
    "sv": "Först adderar vi de två talen. Det ger tolv, vilket är svaret på frågan.",
    "pl": "Najpierw dodajemy te dwie liczby. To daje dwanaście, co jest odpowiedzią na pytanie.",
    "id": "Pertama kita menjumlahkan kedua angka itu. Hasilnya dua belas, yang adalah jawaban dari pertanyaan ini.",
    "vi": "Đầu tiên chúng ta cộng hai số này. Kết quả là mười hai, đó là câu trả lời cho câu hỏi.",
    "tr": "Önce bu iki sayıyı topluyoruz. Sonuç on iki, ve bu sorunun cevabı olarak verilir.",
    "zh": "首先我们把两个数相加。结果是十二。",
    "ja": "まず二つの数を足します。答えは十二です。",
    "ko": "먼저 두 수를 더합니다. 답은 열둘입니다.",
    "ru": "Сначала сложим два числа. Ответ двенадцать.",
}


@pytest.mark.parametrize("language", SAME_TEXT)
def test_each_language_is_told_from_the_others(language: str) -> None:
    reward = LanguageReward(language=language)
    shares = {other: judge(reward, text, asked()).value for other, text in SAME_TEXT.items()}
    assert shares == {other: float(other == language) for other in SAME_TEXT}


@pytest.mark.parametrize(
    ("language", "text", "value"),
    [
        ("en", "The sum 因为 is 12.", 3 / 5),
        ("en", "This is the first. Das ist der zweite und letzte.", 4 / 10),
        ("en", "This is the sum of both, да.", 6 / 7),
        ("en", "It is the `für` loop:\n```python\nfor für in das_der:\n    print(und)\n```\nand that is it.", 1.0),
        ("en", "It is $\\text{und}$ and \\(die der\\) and \\[das\\] here.", 1.0),
        ("en", "It is \\boxed{и} and that \\begin{align} die der das \\end{align} is it.", 1.0),
        ("en", "<think>It is the sum of both.</think>", 1.0),
        ("en", "See https://example.com/die/der/das for the sum.", 1.0),
        ("en", "It's the don't-know case of the rule.", 1.0),
        # "a" is an article here, a preposition or a verb form elsewhere.
        ("en", "A rainbow is a masterpiece - a delicate collage of colors, a divine art of optics.", 1.0),
        ("en", "Oooh, it's a fragile yet awe-inspiring sight with a shimmering silver cross atop a rainbow.", 1.0),
        ("en", "Un coche va a casa, a veces a la playa.", 0.0),
        ("pt", "Vamos a pé a casa, a chuva passou e o sol voltou.", 1.0),
        ("it", "Andiamo a casa a piedi, a cena non viene nessuno.", 1.0),
        ("fr", "Il a mangé et elle a bu, on a ri.", 1.0),
        ("zh", "结果是十二 and so on", 5 / 8),
        ("zh", "因为3+4=7,所以x=7。", 4 / 5),
        ("ja", "答えは十二です。结果是十二。", 7 / 12),
        ("ru", "Ответ the answer", 1 / 3),
        ("ar", "الجواب هو اثنا عشر", 1.0),
        ("he", "התשובה היא שתים עשרה", 1.0),
        ("hi", "उत्तर बारह है", 1.0),
        ("th", "คำตอบคือ", 1.0),
        ("el", "η απάντηση είναι δώδεκα", 1.0),
    ],
)
def test_shares_by_hand(language: str, text: str, value: float) -> None:
    judgement = judge(LanguageReward(language=language), text, asked())
    assert judgement.value == pytest.approx(value), judgement.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "12",
        "$x = 12$",
        "```\nfor the sum of it\n```",
        "```\nfor the sum of it",
        "Alice Bob Carol Dave",
        "NaN",
        "yes",
        "😀 😀 😀 😀",
    ],
)
def test_what_cannot_be_told_abstains(text: str) -> None:
    judgement = judge(LanguageReward(language="en"), text, asked())
    assert (judgement.value, judgement.status, judgement.kind) == (None, "abstained", "too_few_words")


def test_the_least_number_of_words() -> None:
    assert judge(LanguageReward(language="en", min_words=1), "the", asked()).value == 1.0
    assert judge(LanguageReward(language="en", min_words=5), "the sum of it", asked()).value is None
    assert judge(LanguageReward(language="en"), "the sum of it", asked(), "length").value == 1.0


def test_words_are_counted_as_people_do_and_characters_where_there_are_no_spaces() -> None:
    assert words("It's 3 o'clock, naïve café — 你好 カナ ไทย") == [
        "It's", "o'clock", "naïve", "café", "你", "好", "カ", "ナ", "ไ", "ท", "ย"
    ]  # fmt: skip
    assert words("cafe\u0301 x_y 12") == ["cafe\u0301", "x", "y"]


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("english", "expected a two-letter code such as en or zh, got 'english'; did you mean 'en'"),
        ("xx", "known: am, ar"),
        ("EN", "known: am, ar"),
    ],
)
def test_unknown_languages_are_refused(language: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LanguageReward(language=language)
    assert message in str(caught.value)


def test_every_language_has_one_way_to_be_told() -> None:
    assert set(FUNCTION_WORDS) & set(SCRIPTS) == set()
    assert len(LANGUAGES) == len(set(LANGUAGES))
    assert all(len(listed) >= 20 for listed in FUNCTION_WORDS.values())


@pytest.mark.parametrize("piece", ["$", "`", "\\(", "\\begin{a}", "a", "<a", "字", "\\a{", "the ", "http://"])
def test_huge_texts_take_little_time(piece: str) -> None:
    started = time.process_time()
    judgement = judge(LanguageReward(language="en"), piece * 50_000, asked())
    assert time.process_time() - started < 5
    assert judgement.status in ("ok", "abstained")


def test_options_are_frozen_values() -> None:
    options: dict[str, Any] = {"language": "en", "min_words": 4}
    assert LanguageReward(**options) == LanguageReward(**options)
