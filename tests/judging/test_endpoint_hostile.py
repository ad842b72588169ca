"""A judge behind an endpoint: a server that echoes the key, floods, redirects, or sends what no honest server sends."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judging.stub_server import Asked, Said, chat, error
from tests.judging.test_endpoint import asked_once, in_turn, judge_at, question
from toishi.errors import ConfigError
from toishi.judging import http_client, limits
from toishi.judging.base import JudgeFailure, JudgeRefused, JudgeReply
from toishi.judging.endpoint import EndpointJudge
from toishi.judging.judge_options import JudgeOptions

KEY = 'sk-"SECRET"\\KEY-1234567890'
KEYED: dict[str, Any] = {"key_env": "MY_KEY", "retries": 0}
CHOICES = question(choices=("1", "2"))
WITH_CHANCES: dict[str, Any] = {"probabilities": True, "retries": 0}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv("MY_KEY", KEY)


def leaked(text: str) -> list[str]:
    """Every run of 8 characters of the key that a text holds."""
    return [KEY[at : at + 8] for at in range(len(KEY) - 7) if KEY[at : at + 8] in text]


@pytest.mark.parametrize(
    "key", [f"{KEY}\n", f" {KEY}", "sk-SECRET\r\nSECRET", "   ", "sk-SECRETé9876543", "sk-SECRET\x01SECRET", "sk-SEC", "\n"]
)
def test_a_key_that_is_none_is_refused_in_words_without_it_before_any_request(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with judge_at(in_turn(chat("7")), **KEYED) as (judge, server):
        for ask in (judge.check, lambda: judge.ask([question()])):
            with pytest.raises(ConfigError, match="environment variable MY_KEY") as refused:
                ask()
            assert "SEC" not in str(refused.value)
            assert refused.value.__cause__ is refused.value.__context__ is None
        assert server.asked == []


ECHOES: dict[str, Callable[[str], Said]] = {
    "reply": lambda key: chat(f"score 7, {key}!"),
    "start of the key": lambda key: chat(f"score 7, {key[:14]}...!"),
    "end of the key": lambda key: chat(f"score 7, ...{key[-9:]}!"),
    "no JSON": lambda key: Said(body=f"<p>Bearer {key}</p>".encode()),
    "JSON string": lambda key: Said(body=json.dumps(f"Bearer {key}").encode()[:-1]),
    "refusal": lambda key: chat(None, message={"content": "", "refusal": f"no: {key}"}),
    "no text": lambda key: chat(None, message={"content": [f"Bearer {key}"]}),
    "500": lambda key: error(500, f"key {key} failed"),
    "500 cut at 400": lambda key: error(500, "x" * 380 + f" {key}"),
    "500 in odd JSON": lambda key: Said(status=500, body=json.dumps({"error": [key, {"key": key}]}).encode()),
    "400": lambda key: error(400, f"bad key {key}"),
    "401": lambda key: error(401, f"bad key {key}"),
    "404": lambda key: error(404, f"no model for {key}"),
    "error in a 200": lambda key: Said(body=json.dumps({"error": {"message": f"bad key {key}"}}).encode()),
    "base64": lambda key: error(500, base64.b64encode(key.encode()).decode()),
    "redirect": lambda key: Said(status=302, headers={"location": f"http://h/?key={key}"}),
}


@pytest.mark.parametrize("kind", ECHOES)
def test_a_server_that_echoes_the_key_gets_it_into_no_text(kind: str, tmp_path: Path) -> None:
    def answer(asked: Asked) -> Said:
        return ECHOES[kind](asked.headers["authorization"].removeprefix("Bearer "))

    with judge_at(answer, **(KEYED | {"cache": str(tmp_path / "replies.sqlite")})) as (judge, server):
        try:
            said = str(judge.ask([question()])) + str(judge.notes())
        except JudgeRefused as refused:
            said = f"{refused} {refused.__cause__}"
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("latin1")
    assert "***" in said
    # the texts above are seen through repr(), which writes the backslash of the key twice
    for text in (said.replace("\\\\", "\\").replace("\\\\", "\\"), kept.replace('\\"', '"').replace("\\\\", "\\")):
        assert leaked(text) == []
    assert base64.b64encode(KEY.encode()).decode()[:8] not in said


def test_a_key_among_log_probs_is_cut_too() -> None:
    def answer(asked: Asked) -> Said:
        key = asked.headers["authorization"]
        tokens = [{"token": part, "logprob": -1.0, "top_logprobs": []} for part in (key[:14], key[14:22], key[22:])]
        return chat("zz", logprobs={"content": tokens})

    said, _ = asked_once(answer, question(choices=("1", "2"), prefix="Score: "), **KEYED, probabilities=True, continues="vllm")
    assert isinstance(said, JudgeFailure)
    assert "does not begin with" in said.message
    assert leaked(said.message) == []


@pytest.mark.parametrize("name", ["base_url", "model"])
def test_a_key_inside_an_option_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    options: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:1/v1", "key_env": "MY_KEY", "cache": False}
    options[name] += "/sk-0123456789"
    with pytest.raises(ConfigError, match=rf"judge\.{name}: it holds the server's key") as refused:
        EndpointJudge(JudgeOptions(**options)).check()
    assert "0123456789" not in str(refused.value)


@pytest.mark.parametrize(
    "base_url",
    [
        *("http://u:sk-1@h/v1", "http://sk-1@h/v1", "http://h/v1?key=sk-1", "http://h/v1#sk-1", "ftp://u:sk-1@h", "h/?sk-1"),
        *("http://h:99999/?sk-1", "http://h:sk-1@x:99999"),
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_and_not_shown(base_url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.base_url: it holds") as refused:
        JudgeOptions(model="m", base_url=base_url)
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize("base_url", ["http://h\n/v1", " http://h/v1", "http://h v1", "http://h\x00/v1", "http://\ud800/v1"])
def test_an_address_with_blanks_and_the_like_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.base_url: .* no address has"):
        JudgeOptions(model="m", base_url=base_url)


@pytest.mark.parametrize("model", ["m\n", "\ud800", "m\0"])
def test_a_model_name_that_is_no_name_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.model"):
        JudgeOptions(model=model, base_url="http://h/v1")


def test_nothing_meant_for_another_server_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "for-someone-else")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: for-someone-else\nAuthorization: for-someone-else")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with judge_at(in_turn(chat("7")), key_env="MY_KEY") as (judge, server):
        assert judge.ask([question()]) == [JudgeReply(text="7")]
    sent = {name.lower(): value for name, value in server.asked[0].headers.items()}
    assert "for-someone-else" not in str(sent)
    assert sent["authorization"] == f"Bearer {KEY}"
    assert set(sent) == {
        *("host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length", "authorization")
    }


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [False, True])
def test_a_body_without_end_is_given_up(status: int, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 100_000)
    body = gzip.compress(bytes(20_000_000)) if packed else b" " * 200_000
    assert not packed or len(body) < 100_000
    headers = {"content-encoding": "gzip"} if packed else {}
    said, requests = asked_once(in_turn(Said(status=status, body=body, headers=headers)), retries=1)
    assert said == JudgeFailure(kind="bad_reply", message="the server sent more than 100,000 bytes for one reply (2 tries)")
    assert requests == 2


def test_a_packed_body_is_read() -> None:
    packed = Said(body=gzip.compress(chat("7").body), headers={"content-encoding": "gzip"})
    assert asked_once(in_turn(packed)) == (JudgeReply(text="7"), 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with judge_at(in_turn(chat("from elsewhere"))) as (_, other):
        moved = Said(status=status, headers={"location": f"{other.url}/chat/completions"})
        said, requests = asked_once(in_turn(moved))
        assert other.asked == []
    assert isinstance(said, JudgeFailure)
    assert (said.kind, requests) == ("refused", 1)
    assert f"{other.url}/chat/completions" in said.message
    assert "judge.base_url" in said.message


def body_with(**fields: Any) -> Said:
    return Said(body=json.dumps(json.loads(chat("7").body) | fields).encode())


ODD_BODIES = {
    "deep": Said(body=b"[" * 100_000 + b"]" * 100_000),
    "deep in a field": Said(body=chat("7").body[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "many digits": Said(body=chat("7").body[:-1] + b', "x": ' + b"9" * 5000 + b"}"),
    "half a character": chat("7\ud800"),
    "another encoding": Said(body=b'{"choices":[{"message":{"content":"caf\xe9"}}]}'),
}


@pytest.mark.parametrize("kind", ODD_BODIES)
@pytest.mark.parametrize("systemone", [False, True])
def test_a_body_that_cannot_be_read_fails_one_call(kind: str, systemone: bool) -> None:
    def answer(asked: Asked) -> Said:
        return ODD_BODIES[kind] if b"odd" in asked.raw else good

    good, options = chat("7"), {}
    if systemone:
        good, options = body_with(answers={"reply": {"probabilities": {"1": 0.5, "2": 0.5}}}), {"probabilities": "systemone"}
    with judge_at(answer, retries=0, **options) as (judge, _):
        said = judge.ask([question(text, choices=("1", "2")) for text in ("a", "odd", "b")])
    assert [type(one) for one in said] == [JudgeReply, JudgeFailure, JudgeReply]
    assert isinstance(said[1], JudgeFailure)
    assert said[1].kind == "bad_reply"


@pytest.mark.parametrize(
    "usage",
    [[1], 5, {"prompt_tokens": True}, {"prompt_tokens": 10**400, "completion_tokens": 10**400}, {"prompt_tokens": 1e400}],
)
def test_token_counts_that_cannot_be_are_not_counted(usage: Any) -> None:
    with judge_at(in_turn(body_with(usage=usage)), prices=(1.0, 1.0)) as (judge, _):
        assert judge.ask([question()]) == [JudgeReply(text="7")]
        assert (judge.usage().prompt_tokens, judge.usage().completion_tokens, judge.usage().cost) == (0, 0, 0.0)


def listed(*entries: Any, top: Any = None) -> Said:
    one = {"token": "1", "logprob": -0.5, "top_logprobs": list(entries) if top is None else top}
    return chat("1", logprobs={"content": [one]})


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf"), 3.0, -(10**400), True, "-1", [1], 10**400])
def test_a_log_prob_that_is_none_is_a_bad_reply_and_never_a_probability(odd: Any) -> None:
    likely = {"token": "1", "logprob": -0.5}
    for said in (listed(likely, {"token": "2", "logprob": odd}), listed({"token": "1", "logprob": odd}, likely)):
        failure, _ = asked_once(in_turn(said), CHOICES, **WITH_CHANCES)
        assert isinstance(failure, JudgeFailure)
        assert failure.kind == "bad_reply"


@pytest.mark.parametrize("top", [5, {"a": 1}, "text", [None], [5], [{"token": 1, "logprob": -1.0}]])
def test_a_list_of_log_probs_that_is_none_is_a_bad_reply(top: Any) -> None:
    failure, _ = asked_once(in_turn(listed(top=top)), CHOICES, **WITH_CHANCES)
    assert isinstance(failure, JudgeFailure)
    assert failure.kind == "bad_reply"


def test_spellings_that_add_up_to_more_than_everything_are_a_bad_reply() -> None:
    """Three spellings of 0.6 each."""
    spellings = [{"token": spelling, "logprob": -0.51} for spelling in ("1", " 1", "1 ")]
    failure, _ = asked_once(in_turn(listed(*spellings)), CHOICES, **WITH_CHANCES)
    assert isinstance(failure, JudgeFailure)
    assert "more than 1" in failure.message


def test_a_question_that_cannot_be_sent_fails_alone() -> None:
    with judge_at(in_turn(chat("7"))) as (judge, server):
        said = judge.ask([question("a"), question("\ud800"), question("b")])
        assert len(server.asked) == 2
    assert said[::2] == [JudgeReply(text="7")] * 2
    assert said[1] == JudgeFailure(kind="bad_reply", message="the question holds half a character, which cannot be sent")


def test_what_nobody_foresaw_is_a_failure_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any) -> Any:
        raise LookupError(f"a bug with {KEY}")

    monkeypatch.setattr("toishi.judging.endpoint.read_answer", break_down)
    said, _ = asked_once(in_turn(chat("7")), **KEYED)
    assert said == JudgeFailure(kind="bad_reply", message="the call could not be handled (LookupError: a bug with ***)")


@pytest.mark.parametrize("wait", ["\xff", "\xd9\xa3", "nan", "1e308"])  # the second is an Arabic 3
def test_a_pause_asked_for_in_odd_signs_is_no_pause(wait: str) -> None:
    begun = time.monotonic()
    said, requests = asked_once(in_turn(error(429, "wait", retry_after=wait), chat("7")))
    assert (said, requests) == (JudgeReply(text="7"), 2)
    assert time.monotonic() - begun < 2


def test_an_error_in_a_success_says_the_words_of_the_server() -> None:
    said, _ = asked_once(in_turn(Said(body=b'{"error": {"message": "no credits left", "code": 9}}')), retries=0)
    assert said == JudgeFailure(
        kind="server_error", message="the server answered with an error (in a 200): no credits left (1 try)"
    )


def test_control_characters_of_the_server_are_made_visible() -> None:
    said, _ = asked_once(in_turn(error(400, "a\x1b[31mb\x07\u202ec\u200bd")))
    assert isinstance(said, JudgeFailure)
    assert said.message.isprintable()
    assert r"a\x1b[31mb\x07\u202ec\u200bd" in said.message


def test_asking_a_closed_judge_again_and_again_never_hangs() -> None:
    with judge_at(lambda asked: Said(body=chat("7").body, delay_s=0.01), concurrency=4) as (judge, _):
        ended: list[Any] = []
        threads = [
            threading.Thread(target=lambda: ended.extend(judge.ask([question(str(n)) for n in range(20)]))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
            judge.close()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
    assert len(ended) == 120
    assert all(isinstance(one, JudgeReply) or one.kind == "no_connection" for one in ended)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that was started in the background, as tests may be, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_hundred_thousand_calls_at_once() -> None:
    with judge_at(lambda asked: Said(body=chat("7").body, delay_s=0.5), concurrency=8) as (judge, server):
        calls = [question()] * 100_000

        def interrupt() -> None:
            while not server.asked:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            judge.ask(calls)
        begun = time.monotonic()
        judge.close()
        assert time.monotonic() - begun < 3
        assert len(server.asked) < 100
