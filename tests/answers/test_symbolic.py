"""The symbolic comparison, asked in this process."""

from __future__ import annotations

from typing import Any

import pytest

from toishi.answers.symbolic import compare, read_latex


def said(gold: str, answer: str, tolerance: float = 0.0) -> dict[str, Any]:
    return compare({"gold": f'"{gold}"', "type": "auto", "answer": answer, "unit": "required", "tolerance": tolerance})


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("(x-1)(x+1)", "x^2-1", "right"),
        ("(x-1)(x+1)", "x^2+1", "wrong"),
        ("x+1", "(", "wrong"),
        ("x+1", "(10^7)!", "undecided"),
        ("x+1", "x+1+10^{-50}", "wrong"),
        ("sin(x)^2", "1-cos(x)^2", "right"),
        ("2ln(x)", "ln(x^2)", "undecided"),
        ("ln(|x|)", "ln(x)", "undecided"),
        ("x", "(sqrt(x))^2", "undecided"),
        ("x sqrt(x)", "x^{3/2}", "right"),
        ("abs", "abs", "right"),
        ("sqrt{2}sqrt{3}", "sqrt{6}", "right"),
        ("sqrt{2}+sqrt{3}", "sqrt{5+2sqrt{6}}", "right"),
        ("sqrt{2}+sqrt{3}", "sqrt{5+2sqrt{5}}", "wrong"),
        ("ix", "-x/i", "right"),
        ("ix", "x/i", "wrong"),
        ("2^{-80}pi", "2^{-81}pi", "wrong"),
        ("2^{-80}pi", "pi/2^{80}", "right"),
        ("f(x)+f(y)", "f(y)+f(x)", "right"),
        ("f(x)", "f(y)", "undecided"),
        ("y=2x+1", "2y=4x+2", "right"),
        ("y=2x+1", "2y=4x+1", "wrong"),
        ("x^2+y^2=1", "-x^2-y^2=-1", "right"),
        ("x+y<3", "3x+3y<9", "right"),
        ("x+y<3", "-3x-3y<-9", "wrong"),
        ("log(x)", "ln(x)/ln(10)", "right"),
        ("lg(x)", "log(x)", "right"),
        ("max(x,y)", "(x+y+|x-y|)/2", "undecided"),
        ("arccos(x)", "pi/2-arcsin(x)", "undecided"),
        ("cosh(x)", "(e^x+e^{-x})/2", "right"),
        ("n!/(n-1)!", "n", "right"),
    ],
)
def test_formulas(gold: str, answer: str, verdict: str) -> None:
    assert said(gold, answer)["verdict"] == verdict


def test_tolerance_holds_for_values_without_symbols() -> None:
    assert said("sqrt{2}pi", "4.4", 0.02)["verdict"] == "right"
    assert said("sqrt{2}pi", "4.4", 0.001)["verdict"] == "wrong"


def test_what_math_verify_reads_must_be_the_whole_text() -> None:
    assert read_latex(r"\int_0^1 x\,dx") == "1/2"
    for text in (r"\sum_{n=1}^{5} \operatorname{foo} n 77", r"\sum_{k=1}^3 k \text{ million}", r"\sum_{k=1}^3 k 1"):
        with pytest.raises(ValueError, match="no formula"):
            read_latex(text)


def test_a_proof_that_is_not_found_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympy.expand", lambda value: value)
    monkeypatch.setattr("sympy.simplify", lambda value: value)
    monkeypatch.setattr("sympy.Expr.equals", lambda self, other: None)
    found = said("sin(x)^2", "1-cos(x)^2")
    assert found["verdict"] == "undecided"
    assert "neither prove nor refute" in found["reason"]
