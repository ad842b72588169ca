"""The reward `code`: what is read, what is run, what is paid."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.isolation.leftovers import belongings, settled
from tests.rewards.judging import judge
from toishi.config import RewardConfig
from toishi.errors import ConfigError
from toishi.isolation.levels import Level, find_sandbox
from toishi.isolation.limits import NotStarted
from toishi.rewards import Judgement, build_rewards, code
from toishi.rewards.blocks import code_blocks
from toishi.rewards.code import CodeReward
from toishi.rewards.code_tests import CallTests, PrintTest, read_tests, same_output
from toishi.rewards.scripted import answered
from toishi.scoring import score_groups
from toishi.types import Group, Prompt, Rollout, RolloutId


def level() -> Level:
    try:
        return find_sandbox("namespaces").level
    except ConfigError:
        return "plain"


def reward(**options: Any) -> CodeReward:
    return CodeReward(**({"sandbox": level(), "timeout_s": 5.0, "memory_mb": 256} | options))


def prompt(tests: Any, **columns: Any) -> Prompt:
    return Prompt(id="row 1", text="Write it.", columns={"tests": tests, **columns})


def fenced(program: str, label: str = "python") -> str:
    return f"Here it is:\n\n```{label}\n{program}\n```\nDone."


CALLS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add('a', 'b') == 'ab'"]
PRINTS = [{"input": "1 2\n", "output": "3\n"}, {"input": "5 7\n", "output": "12\n"}]
ADD = "def add(a, b):\n    return a + b"
SUM = "print(sum(map(int, input().split())))"


def paid(program: str, tests: Any, **options: Any) -> Judgement:
    return judge(reward(**options), fenced(program), prompt(tests))


def test_right_programs_are_paid() -> None:
    assert paid(ADD, CALLS) == Judgement(value=1.0, reason="passed 3 of 3 tests", readable=True)
    assert paid(SUM, PRINTS) == Judgement(value=1.0, reason="passed 2 of 2 tests", readable=True)


def test_half_right_programs_are_paid_only_when_asked_for() -> None:
    half = "def add(a, b):\n    return a + b if a == 1 else 4"
    assert paid(half, CALLS).value == 0.0
    assert paid(half, CALLS, partial=True).value == pytest.approx(2 / 3)
    assert paid("print(3)", PRINTS, partial=True).value == 0.5
    assert paid("print(3)", PRINTS).reason == "passed 1 of 2 tests; test 2: printed '3\\n', expected '12\\n'"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no code block labelled python, py or python3"),
        ("def add(a, b): return a + b", "no code block"),
        (fenced(ADD, label="js"), "no code block"),
        (f"<think>\n{fenced(ADD)}\n</think> I give up.", "no code block"),
        (f"<think>\n{fenced(ADD)}", "no code block"),
        (f"```python\n{ADD}", "no code block"),
    ],
)
def test_an_answer_without_a_program_is_unreadable(text: str, reason: str) -> None:
    judged = judge(reward(), text, prompt(CALLS))
    assert (judged.value, judged.readable) == (0.0, False)
    assert reason in judged.reason


def test_an_answer_that_was_cut_off_is_not_run() -> None:
    judged = judge(reward(), fenced(ADD), prompt(CALLS), "length")
    assert (judged.value, judged.reason, judged.readable) == (0.0, "cut off at the token limit", False)


def test_the_last_block_after_the_reasoning_counts() -> None:
    text = f"<think>{fenced('nonsense')}</think>\n{fenced('def add(a, b): return 0')}\nNo:\n{fenced(ADD)}\n```\noutput\n```"
    assert judge(reward(), text, prompt(CALLS)).value == 1.0
    prefilled = Prompt(id="a", text="?", prefill="<think>\n", columns={"tests": CALLS})
    assert judge(reward(), f"{fenced(ADD)}", prefilled).value == 0.0
    assert judge(reward(), f"hm</think>{fenced(ADD)}", prefilled).value == 1.0


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        ("def helper(:\n  pass\n" + ADD, CALLS, "passed 0 of 3 tests; 0 of 3 expected tests ran: SyntaxError"),
        ("import os; os._exit(0)", CALLS, "0 of 3 expected tests ran"),
        ("raise SystemExit(0)", CALLS, "0 of 3 expected tests ran"),
        ("print('3 passed')\nimport sys; sys.exit(0)", CALLS, "0 of 3 expected tests ran"),
        ("import os\ndef add(a, b): os._exit(0)", CALLS, "0 of 3 expected tests ran"),
        ("class E:\n  __eq__ = lambda s, o: True\ndef add(a, b): return E()", CALLS, "an object of type E"),
        ("import os; os._exit(0)", PRINTS, "printed ''"),
        ("raise SystemExit(0)", PRINTS, "printed ''"),
        ("print('All tests passed'); print('OK')", PRINTS, "printed 'All tests passed"),
        (SUM + "\nimport os; os._exit(1)", PRINTS, "ended with exit code 1"),
        ("while True: input()", PRINTS, "EOFError"),
        ("x = bytearray(50 << 30)", PRINTS, "MemoryError"),
        ("import os\nwhile True: os.fork()", PRINTS, "test 1"),
        ("while True: print(3)", PRINTS, "wrote more than"),
        ("import os\nfor _ in range(2000): os.write(1, bytes(1 << 20))", PRINTS, "wrote more than"),
        ("f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))", PRINTS, "OSError"),
        ("import glob\nprint([open(f).read() for f in glob.glob('*') + glob.glob('../*/*.json')])", PRINTS, "printed"),
        ("import sys\nprint(sys.argv, open('/proc/self/cmdline').read())", PRINTS, "test 1"),
    ],
)
def test_tricks_are_worth_nothing(program: str, tests: Any, reason: str) -> None:
    before = belongings()
    judged = paid(program, tests)
    assert (judged.value, judged.status) == (0.0, "ok")
    assert reason in judged.reason, judged.reason
    assert settled(before) == ""


@pytest.mark.parametrize("tests", [CALLS, PRINTS])
def test_an_endless_program_is_wrong_and_over_soon(tests: Any) -> None:
    started = time.monotonic()
    judged = paid("while True: pass", tests, timeout_s=0.5)
    assert (judged.value, judged.status) == (0.0, "ok")
    assert "took longer than 0.5 s" in judged.reason
    assert time.monotonic() - started < 6


def test_a_background_child_is_gone_when_the_score_is_there() -> None:
    daemon = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\n  time.sleep(60)\n"
    before = belongings()
    assert paid(daemon + SUM, PRINTS).value == 1.0
    assert paid(daemon + ADD, CALLS).value in (0.0, 1.0)
    assert settled(before) == ""


def test_links_to_the_outside_do_no_harm(tmp_path: Any) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept").chmod(0o666)
    tmp_path.chmod(0o777)
    program = f"import os\nos.symlink({str(tmp_path)!r}, 'a')\nos.symlink({str(tmp_path / 'kept')!r}, 'b')\n{SUM}"
    assert paid(program, PRINTS).value == 1.0
    assert (tmp_path / "kept").read_text() == "kept"


def test_the_same_from_worker_threads_and_in_groups() -> None:
    texts = [fenced(ADD), fenced("while True: pass"), "nothing", fenced("def add(a, b): return 1")]
    prompts = [Prompt(id=str(number), text="?", columns={"tests": CALLS}) for number in range(3)]
    groups = [
        Group(
            prompt=one,
            rollouts=tuple(
                Rollout(id=RolloutId(0, place, member), prompt=one, completion=answered(text))
                for member, text in enumerate(texts)
            ),
        )
        for place, one in enumerate(prompts)
    ]
    before = belongings()
    scored = score_groups(groups, [reward(timeout_s=1.0)], [1.0])
    assert [group.rewards for group in scored] == [(1.0, 0.0, 0.0, 0.0)] * 3
    assert settled(before) == ""


def test_the_same_program_runs_once_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def seen(_: CodeReward, source: str, tests: Any) -> Judgement:
        runs.append(source)
        return Judgement(value=1.0)

    monkeypatch.setattr(CodeReward, "_judge", seen)
    reward().score_group(prompt(CALLS), [answered(fenced(ADD))] * 4 + [answered(fenced(SUM))])
    assert sorted(runs) == sorted([ADD + "\n", SUM + "\n"])


def test_a_sandbox_that_does_not_start_is_a_failure_and_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise NotStarted("no more processes")

    monkeypatch.setattr(code, "run_program", fails)
    monkeypatch.setattr(code, "run_asserts", fails)
    for program, tests in ((ADD, CALLS), (SUM, PRINTS)):
        judged = paid(program, tests)
        assert (judged.value, judged.status, judged.kind) == (None, "failed", "no_sandbox")


def test_a_test_that_no_program_can_be_asked_is_a_failure() -> None:
    judged = paid(ADD, ["assert add(lambda: 1, 2)"])
    assert (judged.value, judged.status, judged.kind) == (None, "failed", "broken_tests")
    assert "gives the program a function" in judged.reason


def test_shapes_of_known_data_sets() -> None:
    humaneval = prompt(
        "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
        entry_point="double",
        prompt='def double(x):\n    """Twice x."""\n',
    )
    options = {"entry_point_column": "entry_point", "start_column": "prompt", "whole_text": True}
    assert judge(reward(**options), "    return 2 * x\n", humaneval).value == 1.0
    assert judge(reward(**options), "    return 2 + x\n", humaneval).value == 0.0
    mbpp = Prompt(
        id="m", text="?", columns={"test_list": ["assert near(0.1)"], "imports": "import math\nnear = lambda x: close(x)"}
    )
    columns = {"tests_column": "test_list", "setup_column": "imports"}
    assert judge(reward(**columns), fenced("def close(x): return x < 1"), mbpp).value == 1.0
    apps = prompt('{"inputs": ["1 2\\n", "3 4\\n"], "outputs": ["3\\n", "7\\n"]}')
    assert judge(reward(), fenced(SUM), apps).value == 1.0


def test_another_language_by_command() -> None:
    shell = reward(languages=("sh", "bash"), command=("sh", "answer.sh"), file="answer.sh")
    assert judge(shell, fenced("read a b; echo $((a + b))", "sh"), prompt(PRINTS)).value == 1.0
    assert judge(shell, fenced("read a b; echo $((a * b))", "sh"), prompt(PRINTS)).value == 0.0
    assert shell.problem(prompt(CALLS)) == "its tests call Python functions, but the reward's command runs another program"


def test_numbers_may_be_off_when_asked_for() -> None:
    tests = [{"input": "", "output": "0.333333 ok"}]
    assert paid("print(1 / 3, 'ok')", tests).value == 0.0
    assert paid("print(1 / 3, 'ok')", tests, tolerance=1e-5).value == 1.0
    assert paid("print('nan ok')", tests, tolerance=1e-5).value == 0.0


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "same"),
    [
        ("3", "3\n", 0.0, True),
        ("3 \n4\n\n", "3\n4", 0.0, True),
        ("3\n\n4", "3\n4", 0.0, False),
        (" 3", "3", 0.0, False),
        ("3.0", "3", 0.0, False),
        ("3.0", "3", 1e-9, True),
        ("1000001.0", "1000000", 1e-6, True),
        ("1000002.0", "1000000", 1e-6, False),
        ("1000001", "1000000", 1e-6, False),
        ("+7", "7", 1e-6, True),
        ("1_0", "10", 0.1, False),
        ("\u0663.0", "3", 0.1, False),
        ("3\xa04", "3 4", 0.1, False),
        ("3\xa0", "3", 0.0, False),
        ("5", "1e999", 0.1, False),
        ("a 1", "b 1", 1.0, False),
        ("1", "1 1", 1.0, False),
        ("inf", "inf", 1e-6, True),
        ("inf", "1e300", 1e-6, False),
        ("", "3", 0.1, False),
    ],
)
def test_outputs_are_compared_by_lines(printed: str, expected: str, tolerance: float, same: bool) -> None:
    assert same_output(printed, expected, tolerance) is same


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "expected a list of tests"),
        ([], "there is no test"),
        ("  ", "there is no test"),
        ([{"input": "1", "output": " \n"}], "expects no output"),
        ([{"input": "1"}], "neither a Python statement nor a pair"),
        (["assert f(1) =="], "test 1 is not Python"),
        (["assert f(1) == 1", "x = 3"], "test 2 asserts nothing"),
        (["assert True"], "test 1 asserts nothing"),
        (["assert 1 + 1 == 2"], "test 1 names nothing that only the program can define"),
        ({"fn_name": "f", "inputs": [[1]], "outputs": [[1]]}, "no fn_name"),
        ({"inputs": ["1"], "outputs": []}, "as many outputs"),
        ([{"input": 1, "output": "2"}], "have to be texts"),
        (7, "expected a list of tests"),
    ],
)
def test_tests_that_are_not_understood_are_refused_before_training(value: Any, problem: str) -> None:
    found = reward().problem(prompt(value))
    assert found is not None
    assert problem in found
    assert judge(reward(), fenced(ADD), prompt(value)).status == "failed"


def test_tests_are_read_by_their_shape() -> None:
    assert read_tests(PRINTS) == (PrintTest(input="1 2\n", output="3\n"), PrintTest(input="5 7\n", output="12\n"))
    assert read_tests([{"input": ["1", "2"], "output": ["3"]}]) == (PrintTest(input="1\n2\n", output="3\n"),)
    assert read_tests("assert f() == 1") == CallTests(tests=(("check", "assert f() == 1"),))


def test_blocks_are_read_in_one_pass() -> None:
    assert code_blocks("~~~py\na\n```\nb\n~~~\n````x\n```\n````") == [("py", "a\n```\nb\n"), ("x", "```\n")]
    assert code_blocks("  ```python title=x\na\n  ```\n") == [("python", "a\n")]
    started = time.monotonic()
    assert code_blocks("```x\n" * 400_000) == []
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": []}, "languages"),
        ({"file": "../x.py"}, "bare file name"),
        ({"file": ".."}, "bare file name"),
        ({"readable": ["/no/such/place"]}, "/no/such/place"),
        ({"sandbox": "none"}, "sandbox"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeouts": 3}, "did you mean"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_rewards([RewardConfig.model_validate({"name": "code", **options})], columns=frozenset({"tests"}))


def test_the_limits_are_told_before_the_start() -> None:
    (first, second, third) = reward().notes()
    assert "sandbox" in first
    assert "256 MB" in second
    assert "not held" in third
