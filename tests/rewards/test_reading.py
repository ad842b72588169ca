"""Numbers in text: a table of forms written by hand, and properties over forms that hypothesis makes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toishi.rewards.reading import read_gold, read_numbers, read_whole, shown_number, without_echo

READ = [
    ("7", ["7"]),
    ("It is 12.", ["12"]),
    ("3 + 12 = 15", ["3", "12", "15"]),
    ("12-5", ["12", "5"]),
    ("12 - 5 is 7!", ["12", "5", "7"]),
    ("-5", ["-5"]),
    ("the answer is -5.", ["-5"]),
    ("−5 and –6 and －7", ["-5", "-6", "-7"]),
    ("x = - 5", ["-5"]),
    ("答えは-12です", ["-12"]),
    ("答えは１２です", ["12"]),
    ("٣٤", ["34"]),
    ("３．５", ["7/2"]),
    ("$80,000.", ["80000"]),
    ("-$5", ["-5"]),
    ("$-5", ["-5"]),
    ("1,234,567.5", ["2469135/2"]),
    ("12 500", ["12500"]),
    ("12\u202f500", ["12500"]),
    ("1, 2, 3", ["1", "2", "3"]),
    (".5", ["1/2"]),
    ("No.5", ["5"]),
    ("1e3 and 2.5E-1", ["1000", "1/4"]),
    ("1/4", ["1/4"]),
    ("50%", ["50"]),
    ("12km", ["12"]),
    ("**73**", ["73"]),
    ("\\boxed{42}", ["42"]),
    ("(7)", ["7"]),
    ("Answer:5", ["5"]),
    ("007", ["7"]),
]
UNREADABLE = [
    "3,5",
    "1,2345",
    "12,34",
    "1.2.3",
    "08:30",
    "3/4/2025",
    "1/0",
    "2^3",
    "10^-3",
    "10^{-3}",
    "±5",
    "7,8,9",
    "1e9999",
    "9" * 500,
]
NO_NUMBER = [
    "",
    ":",
    "...",
    "-",
    ",",
    "二",
    "seven",
    "NaN",
    "inf",
    "Infinity",
    "B12",
    "x2",
    "H2O",
    "x^2",
    "x^{2}",
    "10²"[2:],
    "½",
]


@pytest.mark.parametrize(("text", "values"), READ)
def test_forms_that_are_read(text: str, values: list[str]) -> None:
    assert [reading.value for reading in read_numbers(text)] == [Fraction(value) for value in values]


@pytest.mark.parametrize("text", UNREADABLE)
def test_forms_that_are_seen_but_not_read(text: str) -> None:
    assert [reading.value for reading in read_numbers(text)] == [None]


@pytest.mark.parametrize("text", NO_NUMBER)
def test_forms_without_a_number(text: str) -> None:
    assert read_numbers(text) == []


@given(
    st.integers(-(10**15), 10**15),
    st.sampled_from(["{}", "It is {}.", "= {}", "**{}**", "答えは{}です", "({})", "{} km", "so:\n{}\n"]),
)
def test_an_integer_is_read_in_any_surroundings(number: int, around: str) -> None:
    for written in (str(number), f"{number:,}", str(number).replace("-", "−")):
        assert [reading.value for reading in read_numbers(around.format(written))] == [number]


@given(st.integers(0, 10**12), st.integers(0, 6))
def test_a_decimal_is_read_exactly(digits: int, places: int) -> None:
    text = str(digits).rjust(places + 1, "0")
    written = f"{text[: len(text) - places]}.{text[len(text) - places :]}" if places else text
    assert read_whole(written) == Fraction(digits, 10**places)


@given(st.text(alphabet=st.sampled_from("0123456789.,-+/:^eE $%±x二３ \n{}()"), max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for reading in read_numbers(text):
        assert reading.text
        assert reading.value is None or shown_number(reading.value)


@given(st.text(max_size=60))
def test_no_unicode_text_breaks_the_reader(text: str) -> None:
    read_whole(text)
    assert without_echo(text, text) is not None


@pytest.mark.parametrize("text", ["9" * 2_000_000, "1," * 500_000, "." * 500_000, "- " * 500_000, "1 000" * 20_000])
def test_a_very_long_answer_is_read_in_linear_time(text: str) -> None:
    read_numbers(text)


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        (7, 7),
        (-3, -3),
        (0.1, Fraction(1, 10)),
        ("7", 7),
        (" 1,234 ", 1234),
        ("$5", 5),
        ("7.", 7),
        ("1/2", Fraction(1, 2)),
        ("７", 7),
    ],
)
def test_golds_that_are_numbers(gold: object, value: object) -> None:
    assert read_gold(gold) == value


@pytest.mark.parametrize(
    "gold",
    [
        None,
        True,
        [7],
        {"a": 7},
        "",
        "No",
        "x+2",
        "7\\sqrt{3}",
        "\\pm 5",
        "08:30",
        "{2,7}",
        "7 or 8",
        "50%",
        float("nan"),
        float("inf"),
    ],
)
def test_golds_that_are_refused(gold: object) -> None:
    problem = read_gold(gold)
    assert isinstance(problem, str)
    assert gold is None or repr(gold) in problem


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(10**60), "100000000000...(61 digits)"),
        (Fraction(5, 2), "2.5"),
        (Fraction(2, 3), "2/3"),
        (Fraction(10**16 + 1, 2), f"{10**16 + 1}/2"),
    ],
)
def test_numbers_as_shown(value: Fraction, text: str) -> None:
    assert shown_number(value) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("What is 10 - 5?", " ?"),
        ("what  is 10 - 5? 5", " ? 5"),
        ("10 - 5 is 5", "10 - 5 is 5"),
        ("5", "5"),
    ],
)
def test_the_repeated_question_is_taken_out(text: str, left: str) -> None:
    assert without_echo(text, "What is 10 - 5? Answer with just the number.") == left


def test_a_question_that_is_only_a_number_is_not_taken_out() -> None:
    assert without_echo("5", "5") == "5"
