"""A judge behind an endpoint, against a server on loopback that fails in every way the issue names."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judging.stub_server import Asked, Said, StubServer, chat, error, serving
from toishi.errors import ConfigError
from toishi.judging import limits
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeRefused, JudgeReply
from toishi.judging.endpoint import EndpointJudge
from toishi.judging.judge_options import JudgeOptions


def question(text: str = "Good?", **options: Any) -> JudgeCall:
    return JudgeCall(messages=({"role": "user", "content": text},), **options)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE_S", 0.01)


@contextmanager
def judge_at(answer: Callable[[Asked], Said], **options: Any) -> Iterator[tuple[EndpointJudge, StubServer]]:
    with serving(answer) as server:
        given: dict[str, Any] = {"model": "m", "base_url": server.url, "cache": False, "timeout_s": 5.0}
        judge = EndpointJudge(JudgeOptions(**(given | options)))
        try:
            yield judge, server
        finally:
            judge.close()


def in_turn(*said: Said) -> Callable[[Asked], Said]:
    return lambda asked: said[min(asked.number, len(said) - 1)]


def asked_once(answer: Callable[[Asked], Said], call: JudgeCall | None = None, **options: Any) -> tuple[Any, int]:
    """What one call gave, and how many requests it took."""
    with judge_at(answer, **options) as (judge, server):
        (said,) = judge.ask([call or question()])
        return said, len(server.asked)


def test_the_request_is_what_openai_style_servers_expect() -> None:
    with judge_at(lambda asked: chat("7")) as (judge, server):
        assert judge.ask([question(max_tokens=9)]) == [JudgeReply(text="7")]
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Good?"}],
        "temperature": 0.0,
        "max_tokens": 9,
    }


def test_replies_come_in_the_order_of_the_calls() -> None:
    def echo(asked: Asked) -> Said:
        number = int(asked.body["messages"][0]["content"])
        return Said(body=chat(f"reply {number}").body, delay_s=0.02 * (number % 3))

    with judge_at(echo, concurrency=4) as (judge, server):
        said = judge.ask([question(str(number)) for number in range(20)])
        assert said == [JudgeReply(text=f"reply {number}") for number in range(20)]
        assert 1 < server.most_at_once <= 4


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (error(429, "slow down"), "rate_limited"),
        (error(500, "oops"), "server_error"),
        (error(503, "loading"), "server_error"),
        (Said(body=chat("7").body, sent=40), "no_connection"),
        (Said(body=b""), "empty"),
        (chat(""), "empty"),
        (chat(None), "empty"),
        (chat(" \n"), "empty"),
        (Said(body=b"<html>busy</html>"), "bad_reply"),
        (Said(body=b"[1, 2]"), "bad_reply"),
        (Said(body=json.dumps({"choices": []}).encode()), "bad_reply"),
        (Said(body=json.dumps({"choices": [json.loads(chat("7").body)["choices"][0]] * 2}).encode()), "bad_reply"),
        (Said(body=json.dumps({"choices": [{"message": {"content": 7}}]}).encode()), "bad_reply"),
        (Said(body=chat("7").body, delay_s=0.5), "timed_out"),
        (Said(body=chat("7").body, drip_s=0.02), "timed_out"),
    ],
)
def test_what_another_try_may_mend_is_tried_again_and_then_fails_with_its_kind(first: Said, kind: str) -> None:
    assert asked_once(in_turn(first, first, chat("7")), timeout_s=0.3) == (JudgeReply(text="7"), 3)
    said, requests = asked_once(in_turn(first), retries=2, timeout_s=0.3)
    assert isinstance(said, JudgeFailure)
    assert (said.kind, requests) == (kind, 3)
    assert "3 tries" in said.message


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(400, "maximum context length is 2048 tokens"), "refused"),
        (chat("I will not", finish="content_filter"), "refused"),
        (chat(None, message={"role": "assistant", "content": None, "refusal": "I cannot help with that"}), "refused"),
    ],
)
def test_what_no_repeat_mends_is_one_failure_after_one_request(answer: Said, kind: str) -> None:
    said, requests = asked_once(in_turn(answer))
    assert isinstance(said, JudgeFailure)
    assert (said.kind, requests) == (kind, 1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(401, "bad key"), "key rejected"),
        (error(403, "not for you"), "key rejected"),
        (error(404, "The model `m` does not exist", code="model_not_found"), "has no model 'm'"),
        (error(400, "Server is pinned to 'n'; requested 'm'."), "has no model 'm'"),
        (error(429, "You exceeded your current quota", code="insufficient_quota"), "quota"),
    ],
)
def test_a_judge_that_can_never_answer_stops_at_once(answer: Said, words: str) -> None:
    with judge_at(in_turn(answer), concurrency=2) as (judge, server):
        with pytest.raises(JudgeRefused, match=words):
            judge.ask([question(str(number)) for number in range(50)])
        sent = len(server.asked)
        assert sent <= 4  # two under way, at most two more before the first refusal was read
        with pytest.raises(JudgeRefused, match=words):
            judge.ask([question()])
        assert len(server.asked) == sent


def test_neighbours_of_a_failed_call_keep_their_replies() -> None:
    def answer(asked: Asked) -> Said:
        return error(400, "too long") if "long" in asked.body["messages"][0]["content"] else chat("7")

    with judge_at(answer) as (judge, _):
        said = judge.ask([question("a"), question("long"), question("b")])
    assert [type(one) for one in said] == [JudgeReply, JudgeFailure, JudgeReply]


def test_retry_after_is_waited() -> None:
    with judge_at(in_turn(error(429, "wait", retry_after="0.4"), chat("7"))) as (judge, server):
        assert judge.ask([question()]) == [JudgeReply(text="7")]
        assert server.asked[1].at_s - server.asked[0].at_s >= 0.4


def test_a_pause_past_the_time_limit_is_not_begun() -> None:
    begun = time.monotonic()
    said, requests = asked_once(in_turn(error(429, "wait", retry_after="100")), total_timeout_s=5.0)
    assert isinstance(said, JudgeFailure)
    assert (said.kind, requests) == ("rate_limited", 1)
    assert "next try is due in 100 s" in said.message
    assert time.monotonic() - begun < 4


def test_nobody_listening_is_no_connection_and_check_says_what_to_do() -> None:
    with serving(in_turn(chat("7"))) as server:
        pass
    judge = EndpointJudge(JudgeOptions(model="m", base_url=server.url, cache=False, retries=1))
    (said,) = judge.ask([question()])
    assert isinstance(said, JudgeFailure)
    assert said.kind == "no_connection"
    with pytest.raises(JudgeRefused, match=r"does not answer: no connection to .* Start the server, or mend judge.base_url"):
        judge.check()
    judge.close()


@pytest.mark.parametrize("answer", [chat("yes"), chat(""), chat(None, finish="length")])
def test_check_is_content_with_any_answer(answer: Said) -> None:
    with judge_at(in_turn(answer), retries=0) as (judge, _):
        judge.check()


def test_the_key_comes_from_the_environment_and_appears_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    options: dict[str, Any] = {"key_env": "MY_KEY", "cache": str(tmp_path / "replies.sqlite")}
    answers = in_turn(chat("7"), error(401, "Incorrect API key provided: sk-very-secret"))
    with judge_at(answers, **options) as (judge, server):
        judge.ask([question()])
        with pytest.raises(JudgeRefused) as refused:
            judge.ask([question("other")])
        assert server.asked[0].headers["authorization"] == "Bearer sk-very-secret"
        assert "sk-very-secret" not in str(refused.value) + repr(judge.options) + judge.name
        assert "environment variable MY_KEY" in str(refused.value)
    assert all(b"sk-very-secret" not in path.read_bytes() for path in tmp_path.iterdir())
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        EndpointJudge(JudgeOptions(model="m", base_url=server.url, **options)).ask([question()])


def test_a_key_of_another_service_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-someone-else")
    with judge_at(in_turn(chat("7"))) as (judge, server):
        judge.ask([question()])
    assert "sk-for-someone-else" not in str(server.asked[0].headers)


def test_one_question_is_paid_for_once_and_failures_are_not_kept(tmp_path: Path) -> None:
    cache = str(tmp_path / "replies.sqlite")
    answers = in_turn(error(400, "no"), chat("7", tokens=(100, 10)))
    with judge_at(answers, cache=cache, prices=(1.0, 10.0)) as (judge, server):
        assert isinstance(judge.ask([question()])[0], JudgeFailure)
        first, second = judge.ask([question(), question()])
        assert (first, second) == (JudgeReply(text="7"), JudgeReply(text="7", cached=True))
        assert len(server.asked) == 2
        assert judge.ask([question(repeat=1)]) == [JudgeReply(text="7")]
        usage = judge.usage()
        assert (usage.calls, usage.cached, usage.prompt_tokens, usage.completion_tokens) == (4, 1, 200, 20)
        assert usage.cost == pytest.approx(200 * 1.0e-6 + 20 * 10.0e-6)
        again = EndpointJudge(judge.options)
        assert again.ask([question()]) == [JudgeReply(text="7", cached=True)]
        again.close()
        assert len(server.asked) == 3


def test_without_a_cache_every_question_is_asked() -> None:
    with judge_at(in_turn(chat("7"))) as (judge, server):
        judge.ask([question(), question()])
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("refusal", "dropped", "call"),
    [
        (error(400, "'response_format' is not supported"), "response_format", question(json_schema={"type": "object"})),
        (error(422, "Extra inputs are not permitted: seed"), "seed", question(temperature=1.0)),
        (error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'"), "max_tokens", question()),
    ],
)
def test_a_field_that_the_server_rejects_is_left_out_from_then_on(refusal: Said, dropped: str, call: JudgeCall) -> None:
    with judge_at(lambda asked: refusal if dropped in asked.body else chat("7")) as (judge, server):
        assert judge.ask([call]) == judge.ask([call]) == [JudgeReply(text="7")]
        assert [dropped in asked.body for asked in server.asked] == [True, False, False]
        assert judge.notes() == [f"the judge m at {server.url} rejects the field {dropped}; it is asked without"]
        assert dropped != "max_tokens" or server.asked[-1].body["max_completion_tokens"] == 512


def test_calls_under_way_when_a_field_is_rejected_are_all_asked_again() -> None:
    def answer(asked: Asked) -> Said:
        if "response_format" in asked.body:
            return replace(error(400, "'response_format' is not supported"), delay_s=0.1)
        return chat("7")

    with judge_at(answer, concurrency=8) as (judge, _):
        said = judge.ask([question(str(number), json_schema={"type": "object"}) for number in range(8)])
        assert said == [JudgeReply(text="7")] * 8
        assert len(judge.notes()) == 1


def test_sampled_replies_get_a_seed_that_the_call_decides() -> None:
    calls = [question(temperature=1.0), question(temperature=1.0, repeat=1)]
    seeds = []
    for _ in range(2):
        with judge_at(in_turn(chat("7")), concurrency=1) as (judge, server):
            # the address is part of the call's digest and its port is free: compare within one judge
            judge.ask([*calls, *calls])
            seeds.append([asked.body["seed"] for asked in server.asked])
    for first, other, again, last in seeds:
        assert (first, other) == (again, last)
        assert first != other


@pytest.mark.parametrize(
    ("continues", "last", "flag"),
    [
        ("last_message", {"role": "assistant", "content": "Rating: [["}, False),
        ("vllm", {"role": "assistant", "content": "Rating: [["}, True),
    ],
)
def test_a_begun_reply_is_sent_the_way_the_server_goes_on_with_it(continues: str, last: dict[str, str], flag: bool) -> None:
    with judge_at(in_turn(chat("7]]")), continues=continues) as (judge, server):
        assert judge.ask([question(prefix="Rating: [[")]) == [JudgeReply(text="7]]")]
    body = server.asked[0].body
    assert body["messages"][-1] == last
    assert body.get("continue_final_message", False) is flag
    assert body.get("add_generation_prompt", True) is not flag


@pytest.mark.parametrize("said", ["Rating: [[7]]", "7]]", "\nRating: [[7]]"])
def test_a_server_that_cannot_go_on_is_asked_in_words(said: str) -> None:
    with judge_at(in_turn(chat(said))) as (judge, server):
        assert judge.ask([question(prefix="Rating: [[")]) == [JudgeReply(text="7]]")]
    assert server.asked[0].body["messages"][-1]["content"].endswith("Begin your reply with exactly this: Rating: [[")


def test_it_works_inside_a_running_loop_and_from_many_threads() -> None:
    def answer(asked: Asked) -> Said:
        return chat(asked.body["messages"][0]["content"])

    with judge_at(answer) as (judge, _):

        async def inside() -> list[JudgeReply | JudgeFailure]:
            return judge.ask([question("loop")])

        assert asyncio.run(inside()) == [JudgeReply(text="loop")]
        found: dict[str, list[JudgeReply | JudgeFailure]] = {}
        threads = [
            threading.Thread(target=lambda name=name: found.update({name: judge.ask([question(name)] * 3)}))
            for name in "abcdefgh"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {name: [JudgeReply(text=name)] * 3 for name in "abcdefgh"}
        assert judge.usage().calls == 25


def test_nothing_stays_open(tmp_path: Path) -> None:
    def open_files() -> set[str]:
        return {
            os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
        }

    with judge_at(in_turn(chat("7"))) as (judge, _):  # what is imported and opened once for all
        judge.ask([question()])
    files, threads = open_files(), set(threading.enumerate())
    with judge_at(in_turn(error(500, "oops"), chat("7")), cache=str(tmp_path / "replies.sqlite")) as (judge, _):
        judge.ask([question(str(number)) for number in range(20)])
        judge.close()
        assert judge.ask([question("0")]) == [JudgeReply(text="7", cached=True)]
    assert set(threading.enumerate()) == threads
    assert {file for file in open_files() - files if not file.startswith("/proc")} == set()


def test_close_ends_calls_that_are_under_way() -> None:
    with judge_at(lambda asked: Said(body=chat("7").body, delay_s=1.0)) as (judge, server):
        got: list[JudgeReply | JudgeFailure] = []
        thread = threading.Thread(target=lambda: got.extend(judge.ask([question()])))
        thread.start()
        while not server.asked:
            time.sleep(0.01)
        judge.close()
        thread.join(5)
        assert not thread.is_alive()
    assert got == [JudgeFailure(kind="no_connection", message="the judge was closed before the answer came")]
