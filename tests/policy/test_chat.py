"""Templates, beginning-of-text, stop ids and padding: the cases that break runs in the wild."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig

from tests.tiny import BOS, CHATML, END, EOS, START, tiny_model, tiny_tokenizer
from toishi.errors import DataError, ModelError
from toishi.policy.chat import Renderer, too_long
from toishi.types import Prompt

BOS_ID, EOS_ID, START_ID, END_ID = 1, 2, 3, 4

LLAMA_LIKE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
THINKING = CHATML.replace("assistant\n'", "assistant\n<think>\n'")
EMPTY_THOUGHT_IN_LAST_TURN = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NO_TURN_END = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML


def chat(*turns: str, roles: tuple[str, ...] = ("user", "assistant")) -> Prompt:
    messages = tuple({"role": roles[place % len(roles)], "content": text} for place, text in enumerate(turns))
    return Prompt(id="row-7", messages=messages)


def renderer(tokenizer: Any = None, **config: Any) -> Renderer:
    model = tiny_model("llama", **config)
    return Renderer(tokenizer or tiny_tokenizer(), model)


def test_chat_row_is_the_template_and_nothing_else() -> None:
    tokenizer = tiny_tokenizer()
    prompt = renderer(tokenizer).render(chat("12"))
    expected = [START, "user\n12", END, "\n", START, "assistant\n"]
    pieces = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in expected]
    assert prompt.token_ids == tuple(token for piece in pieces for token in piece)
    assert prompt.prefill == ""


@pytest.mark.parametrize("add_bos", [False, True])
def test_template_writes_bos_once_whatever_the_tokenizer_adds(add_bos: bool) -> None:
    tokenizer = tiny_tokenizer(chat_template=LLAMA_LIKE, add_bos=add_bos)
    rendering = renderer(tokenizer)
    prompt = rendering.render(chat("hello"))
    assert prompt.token_ids.count(BOS_ID) == 1
    assert prompt.token_ids[0] == BOS_ID
    assert rendering.bos_count(prompt.token_ids) == 1


def test_row_that_brings_a_second_bos_is_refused() -> None:
    twice = tiny_tokenizer(chat_template="{{ bos_token }}" + LLAMA_LIKE)
    with pytest.raises(ModelError, match=r"row-7 begins with 2 beginning-of-text tokens, expected one"):
        renderer(twice).render(chat("hello"))


def test_bos_inside_is_not_a_second_one() -> None:
    """ChatML models such as SmolLM2 name the turn opener as their BOS."""
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = START
    rendering = renderer(tokenizer)
    assert rendering.bos_count(rendering.render(chat("hello", "hi", "hello")).token_ids) == 1


@pytest.mark.parametrize(("add_bos", "text", "count"), [(True, "12", 1), (False, "12", 0), (True, BOS + "12", 1)])
def test_plain_row_gets_bos_when_the_tokenizer_adds_it(add_bos: bool, text: str, count: int) -> None:
    tokenizer = tiny_tokenizer(add_bos=add_bos)
    prompt = renderer(tokenizer).render(Prompt(id="p", text=text))
    digits = tuple(tokenizer.convert_tokens_to_ids(["1", "2"]))
    assert prompt.token_ids == (BOS_ID,) * count + digits
    assert prompt.prefill == ""


def test_plain_row_never_gets_the_end_token_that_a_tokenizer_appends() -> None:
    tokenizer = tiny_tokenizer(add_bos=True)
    both = TemplateProcessing(single=f"{BOS} $A {END}", special_tokens=[(BOS, BOS_ID), (END, END_ID)])
    tokenizer.backend_tokenizer.post_processor = both
    assert END_ID not in renderer(tokenizer).render(Prompt(id="p", text="12")).token_ids


def test_empty_plain_row_is_refused() -> None:
    with pytest.raises(DataError, match="row p renders to no token"):
        renderer().render(Prompt(id="p", text=""))


def test_chat_row_without_template_is_refused_and_plain_row_works() -> None:
    rendering = renderer(tiny_tokenizer(chat_template=None))
    with pytest.raises(ModelError, match=r"row row-7 is a conversation, but the tokenizer has no chat template"):
        rendering.render(chat("hello"))
    assert rendering.render(Prompt(id="p", text="hello")).token_ids


def test_template_that_refuses_a_role_names_the_row() -> None:
    prompt = chat("be kind", "hello", roles=("system", "user"))
    with pytest.raises(ModelError, match=r"refuses row row-7 \(roles: system, user\): no system role"):
        renderer(tiny_tokenizer(chat_template=NO_SYSTEM)).render(prompt)


def test_tokenizer_without_bos() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = None
    rendering = renderer(tokenizer)
    prompt = rendering.render(Prompt(id="p", text="12"))
    assert len(prompt.token_ids) == 2
    assert (rendering.describe(prompt)["bos_id"], rendering.describe(prompt)["bos_count"]) == (None, 0)


def test_template_that_demands_a_system_turn_is_probed_with_one() -> None:
    demanding = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('system first') }}{% endif %}" + THINKING
    rendering = renderer(tiny_tokenizer(chat_template=demanding))
    assert (rendering.stop_ids, rendering.prefill) == ((END_ID,), "<think>\n")
    assert rendering.render(chat("be kind", "hello", roles=("system", "user"))).prefill == "<think>\n"


def test_template_that_refuses_every_probe_leaves_the_configured_stop_id() -> None:
    picky = "{% if messages|length != 1 or messages[0]['content'] == 'Hello' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    rendering = renderer(tiny_tokenizer(chat_template=picky))
    assert (rendering.stop_ids, rendering.prefill) == ((END_ID,), "")
    assert rendering.render(chat("12")).token_ids


def test_pieces_show_every_token() -> None:
    tokenizer = tiny_tokenizer()
    ids = [START_ID, *tokenizer("12 the", add_special_tokens=False)["input_ids"], END_ID]
    assert renderer(tokenizer).pieces(ids) == [START, "1", "2", " the", END]


def test_prefilled_tag_is_found() -> None:
    rendering = renderer(tiny_tokenizer(chat_template=THINKING))
    assert rendering.prefill == "<think>\n"
    prompt = rendering.render(chat("hello"))
    assert prompt.prefill == "<think>\n"
    assert rendering.describe(prompt)["text"].endswith("<|im_start|>assistant\n<think>\n")


def test_empty_thought_of_a_finished_turn_is_no_prefill() -> None:
    assert renderer(tiny_tokenizer(chat_template=EMPTY_THOUGHT_IN_LAST_TURN)).prefill == ""


def test_prefilled_empty_thought_is_found() -> None:
    template = EMPTY_THOUGHT_IN_LAST_TURN.replace(
        "assistant\n' }}{% endif %}", "assistant\n<think>\n\n</think>\n\n' }}{% endif %}"
    )
    assert template != EMPTY_THOUGHT_IN_LAST_TURN
    assert renderer(tiny_tokenizer(chat_template=template)).prefill == "<think>\n\n</think>\n\n"


def test_begun_answer_is_continued_and_counts_as_prefill() -> None:
    rendering = renderer()
    prompt = rendering.render(chat("hello", "The answer is"))
    assert rendering.describe(prompt)["text"] == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nThe answer is"
    assert prompt.prefill == "The answer is"


def test_turn_end_of_the_template_is_a_stop_id_though_no_config_lists_it() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = EOS
    model = tiny_model("llama", eos_token_id=EOS_ID)
    model.generation_config = GenerationConfig(eos_token_id=EOS_ID)
    assert Renderer(tokenizer, model).stop_ids == (EOS_ID, END_ID)


def test_stop_ids_are_the_union_and_lists_are_allowed() -> None:
    tokenizer = tiny_tokenizer(chat_template=NO_TURN_END)
    model = tiny_model("llama", eos_token_id=[7, 8])
    model.generation_config = GenerationConfig(eos_token_id=[8, 9])
    assert Renderer(tokenizer, model).stop_ids == (END_ID, 7, 8, 9)


def test_no_stop_id_is_refused() -> None:
    tokenizer = tiny_tokenizer(chat_template=NO_TURN_END)
    tokenizer.eos_token = None
    model = tiny_model("llama", eos_token_id=None)
    model.generation_config = GenerationConfig()
    with pytest.raises(ModelError, match="no stop id"):
        Renderer(tokenizer, model)


def test_special_token_after_other_text_is_no_turn_end() -> None:
    template = NO_TURN_END.replace("\n{% endfor %}", " over<|im_start|>{% endfor %}")
    assert renderer(tiny_tokenizer(chat_template=template)).stop_ids == (END_ID,)


def test_pad_equal_to_eos_is_kept() -> None:
    rendering = renderer(tiny_tokenizer(pad=END))
    assert rendering.pad_id == END_ID
    assert END_ID in rendering.stop_ids


def test_pad_without_embedding_is_replaced() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "<|new pad|>"})
    assert tokenizer.pad_token_id == 128
    assert renderer(tokenizer, pad_token_id=None).pad_id == END_ID


def test_token_without_embedding_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["zebra"])
    with pytest.raises(ModelError, match="token id 128, but the model has 128 embeddings"):
        renderer(tokenizer).render(Prompt(id="p", text="a zebra"))


def test_decode_cuts_at_the_first_stop_id() -> None:
    tokenizer = tiny_tokenizer()
    rendering = renderer(tokenizer)
    word, other = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("the cat .", " after"))
    assert rendering.decode([*word, END_ID, *other, END_ID]) == "the cat ."
    assert rendering.decode([START_ID, *word]) == "the cat ."
    assert rendering.decode([END_ID]) == ""


def test_describe_is_plain_and_complete() -> None:
    rendering = renderer()
    prompt = rendering.render(chat("12"))
    report = rendering.describe(prompt)
    assert report["text"] == "<|im_start|>user\n12<|im_end|>\n<|im_start|>assistant\n"
    assert report["token_ids"] == list(prompt.token_ids)
    assert report["num_tokens"] == len(prompt.token_ids)
    assert (report["bos_id"], report["bos_count"]) == (BOS_ID, 0)
    assert report["stop_ids"] == {END_ID: END}
    assert (report["pad_id"], report["pad_text"], report["prefill"]) == (0, "<pad>", "")


def test_too_long_lists_every_row_over_the_limit() -> None:
    prompts = [Prompt(id=str(size), token_ids=(5,) * size) for size in (3, 4, 5)]
    assert too_long(prompts, 3) == [("4", 4), ("5", 5)]
