"""Models that generate text: prompts, answers, rows and sources."""

import copy
import sys
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.tiny import language_subject
from tokenizers import decoders

import whichtoken as wt
from whichtoken.data.prompts import Message
from whichtoken.errors import BadArtifact, BadInput, BadSetting, UnknownName, UsageError
from whichtoken.models import templates
from whichtoken.models.generation import render_chat

PROMPT = "The film was slow, but the music was touching. It is a rare plot."
CHAT = [
    {"role": "system", "content": "It is a film."},
    {"role": "user", "content": "The music was slow. user"},
]
KINDS = ("llama", "gpt2")
LINEAR = "attn-lrp,cp-lrp,gradient-x-input"


@cache
def subject(kind: str = "llama", chat: bool = False) -> wt.Subject:
    return language_subject(kind, chat=chat)


def explain(kind: str = "llama", **arguments: Any) -> Any:
    return wt.explain(subject(kind), **{"prompt": PROMPT, "generate": 5, "methods": "attn-lrp", **arguments})[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_greedy_answer_is_what_the_stock_model_generates(kind: str) -> None:
    own = subject(kind)
    encoded = own.tokenizer(PROMPT, return_tensors="pt")
    stock = own.model.generate(**encoded, max_new_tokens=5, do_sample=False)[0].tolist()
    assert list(explain(kind)["attn-lrp"].generated.ids) == stock


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_a_batch_that_is_padded_on_the_left(kind: str) -> None:
    own, prompts = subject(kind), [PROMPT, "It is a man."]
    tokenizer = copy.deepcopy(own.tokenizer)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    encoded = tokenizer(prompts, return_tensors="pt", padding=True)
    stock = own.model.generate(**encoded, max_new_tokens=5, do_sample=False)[:, encoded["input_ids"].shape[1] :]
    together: Any = wt.explain(own, prompt=prompts, generate=5, methods="random")
    for result, expected in zip(together, stock.tolist(), strict=True):
        generated = result["random"].generated
        answer = list(generated.ids[generated.first :])
        assert answer == expected[: len(answer)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_generated_with_a_cache_is_what_one_pass_predicts(kind: str) -> None:
    generated = explain(kind, generate=8)["attn-lrp"].generated
    with torch.no_grad():
        logits = subject(kind).model(input_ids=torch.tensor([generated.ids])).logits[0]
    assert list(generated.ids[generated.first :]) == logits[generated.first - 1 : -1].argmax(-1).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_generating_leaves_the_model_as_found(kind: str) -> None:
    own = subject(kind)

    def state() -> Any:
        hooks = [(name, len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in own.model.named_modules()]
        weights = [float(p.detach().sum()) for p in own.model.parameters()]
        frozen = [p.requires_grad for p in own.model.parameters()]
        return hooks, weights, frozen, own.model.config.to_dict(), own.model.generation_config.to_dict()

    before = state()
    explain(kind, rows="token", methods="attn-lrp,gae,integrated-gradients,leave-one-out")
    assert state() == before


def test_a_drawn_answer_depends_on_its_seed_only() -> None:
    answers = [
        explain(generate=wt.Generation(8, temperature=2.0, seed=seed), methods="random")["random"].generated.ids
        for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]
    likely = explain(generate=wt.Generation(8, temperature=2.0, top_p=1e-9), methods="random")["random"]
    assert likely.generated.ids == explain(generate=8, methods="random")["random"].generated.ids


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_predicted_by_the_tokens_before_them(kind: str) -> None:
    """Against the logits of the stock model at every position."""
    record, own = explain(kind, target="logprob", methods="gradient-x-input")["gradient-x-input"], subject(kind)
    ids = torch.tensor([record.generated.ids])
    with torch.no_grad():
        logs = own.model(input_ids=ids).logits[0].log_softmax(-1)
    first = record.generated.first
    expected = [float(logs[i - 1, ids[0, i]]) for i in range(first, ids.shape[1])]
    assert record.generated.log_probabilities == pytest.approx(expected, abs=1e-12)
    assert record.value == pytest.approx(sum(expected), abs=1e-12)
    assert record.answer().log_probability == record.value


@pytest.mark.parametrize("kind", KINDS)
def test_rows_sum_to_the_map_of_the_answer_and_future_tokens_have_none(kind: str) -> None:
    for rows in ("token", "sentence"):
        for label, record in explain(kind, rows=rows, methods=LINEAR).items():
            found = torch.tensor([row.scores for row in record.generated.rows], dtype=torch.float64)
            whole = torch.tensor(record.scores, dtype=torch.float64)
            rounding = 1e-5 if label == "gradient-x-input" else 1e-9  # the norms of Llama compute in float32
            assert float((found.sum(0) - whole).abs().max()) <= rounding * float(whole.abs().max()), label
            covered = [token for row in record.generated.rows for token in row.tokens]
            assert covered == list(range(record.generated.first, len(record.tokens)))
            for row in record.generated.rows:
                assert not any(row.scores[row.tokens[-1] :]), "a token cannot explain what was said before it"
                assert any(row.scores[: row.tokens[0]])


@pytest.mark.parametrize("target", ["logit", "logprob"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_map_is_the_gradient_times_the_embeddings_of_the_stock_model(kind: str, target: str) -> None:
    asked = explain(kind, rows="token", methods="gradient-x-input", target=target)
    record, own = asked["gradient-x-input"], subject(kind)
    ids = torch.tensor([record.generated.ids])
    embedded: list[torch.Tensor] = []

    def make_leaf(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    with own.embeddings.register_forward_hook(make_leaf):
        logits = own.model(input_ids=ids).logits[0]
    logits = logits.log_softmax(-1) if target == "logprob" else logits
    for row in record.generated.rows:
        (token,) = row.tokens
        (gradient,) = torch.autograd.grad(logits[token - 1, ids[0, token]], embedded[0], retain_graph=True)
        assert row.scores == pytest.approx((gradient * embedded[0]).sum(-1)[0].tolist(), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_removing_a_word_removes_its_tokens_and_keeps_the_answer(kind: str) -> None:
    """Leave-one-out, written again: also for the first word of GPT-2, which has no token before it."""
    record, own = explain(kind, rows="token", methods="leave-one-out")["leave-one-out"], subject(kind)
    generated, matrix = record.generated, record.matrix
    assert matrix.sources[0] == "The"

    def odds(ids: list[int], number: int) -> float:
        with torch.no_grad():
            logs = own.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        place = len(ids) - (len(generated.ids) - generated.first) + number
        return float(logs[place - 1, ids[place]].exp().logit())

    for column, span in enumerate(matrix.spans):
        kept = [
            token
            for token, own_span, sequence in zip(generated.ids, record.spans, record.sequences, strict=True)
            if sequence != 0 or not (own_span[0] < span[1] and own_span[1] > span[0])
        ]
        for number in range(len(generated.rows)):
            drop = odds(list(generated.ids), number) - odds(kept, number)
            assert matrix.scores[number][column] == pytest.approx(drop, abs=1e-9)


def test_parts_of_an_answer_share_its_evaluations() -> None:
    """One evaluation has the log-probabilities of all tokens, so parts of an answer cost none."""
    methods = ["posterior", "leave-one-out", "lime", "kernel-shap", "context-cite"]
    whole = explain(methods=methods)
    for label, record in explain(methods=methods, rows="token").items():
        extra = 5 if label == "posterior" else 0  # without the top words, which differ
        assert record.evaluations <= whole[label].evaluations + extra, label
        assert record.scores == whole[label].scores


def test_a_prompt_without_any_word_left_still_has_a_first_token() -> None:
    (curve,) = wt.degrade(subject("gpt2"), [explain("gpt2")["attn-lrp"]], grid="tenths-to-all")
    assert len(curve.value) == 11
    assert curve.value[0] == pytest.approx(explain("gpt2")["attn-lrp"].value)


def test_a_continuation_is_kept_as_it_is() -> None:
    record = explain(generate=None, continuation=" the end. It was a man.", rows="sentence")["attn-lrp"]
    assert record.texts == (PROMPT, " the end. It was a man.")
    assert [row.text.strip() for row in record.generated.rows] == ["the end.", "It was a man."]
    assert record.generated.is_given
    assert record.row("man") == record.generated.rows[1]
    with pytest.raises(UnknownName, match="part of the answer 'dog'"):
        record.row("dog")


def test_words_that_several_tokens_make_up_are_added() -> None:
    record = explain(generate=None, continuation=" charming", rows="token")["attn-lrp"]
    assert len(record.generated.rows) > 1
    assert record.row(" charming").scores == pytest.approx(record.scores)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_an_answer_does_not_include_its_neighbours(kind: str) -> None:
    record = explain(kind, generate=None, continuation=" the film was", rows="token")["attn-lrp"]
    said = [row for row in record.generated.rows if row.text.strip()]
    assert [row.text for row in said] == ["the", "film", "was"]
    assert [record.row(row.text) for row in said] == said


@pytest.mark.parametrize("sources", ["token", "word", "sentence"])
def test_sources_and_the_rest_sum_to_the_scores(sources: str) -> None:
    record = explain(sources=sources)["attn-lrp"]
    matrix = record.matrix
    assert sum(matrix.scores[0]) + matrix.rest[0] == pytest.approx(sum(record.scores))
    content = [i for i, s in enumerate(record.sequences) if s == 0]
    assert sum(matrix.scores[0]) == pytest.approx(sum(record.scores[i] for i in content))
    if sources == "sentence":
        assert matrix.sources == ("The film was slow, but the music was touching.", "It is a rare plot.")


@pytest.mark.parametrize(
    ("prompt", "sentences"),
    [
        (
            "Dr. A met Mr. B at 5 p.m. in the U.S. Senate. It was slow.",
            ["Dr. A met Mr. B at 5 p.m. in the U.S. Senate."],
        ),
        ("電影は遅い。音楽は良い！本当？", ["電影は遅い。", "音楽は良い！"]),  # noqa: RUF001
    ],
)
def test_a_sentence_of_any_language_is_one_source(prompt: str, sentences: list[str]) -> None:
    record = explain(prompt=prompt, sources="sentence", generate=1, methods="context-cite")["context-cite"]
    assert list(record.matrix.sources[:-1]) == sentences
    assert len(set(record.matrix.scores[0])) == len(sentences) + 1, "each has a score of its own"


def test_a_row_of_a_sentence_is_not_cut_at_abbreviations() -> None:
    record = explain(generate=None, continuation=" Dr. A slept until 5 p.m. in it. It was 3.5 long.", rows="sentence")
    rows = [row.text.strip() for row in record["attn-lrp"].generated.rows]
    assert rows == ["Dr. A slept until 5 p.m. in it.", "It was 3.5 long."]


def test_documents_are_put_before_the_prompt_and_share_the_answer() -> None:
    documents = {"one": "The film was slow.", "two": "It is a rare plot. The actors were won."}
    (result,) = wt.explain(
        subject(), prompt="Who won?", documents=documents, generate=3, methods="gradient-x-input,leave-one-out"
    )
    for record in result.values():
        assert record.texts[0] == "The film was slow.\n\nIt is a rare plot. The actors were won.\n\nWho won?"
        assert record.matrix.sources == ("one", "two", "the rest of the prompt")
        named = [s for s in record.segments() if s.kind == "document"]
        assert [s.text for s in named] == list(documents.values())
        assert sum(s.shares[0] for s in named) == pytest.approx(1) or not any(s.scores[0] > 0 for s in named)
        assert [s.name for s in record.segments() if s.kind == "sentence"][1] == "It is a rare plot."
    inside = wt.explain(subject(), prompt=record.texts[0], documents=documents, generate=3, methods="leave-one-out")
    assert inside[0]["leave-one-out"].matrix == record.matrix


def places_of(prompt: Any, documents: Any, chat: bool = False) -> tuple[str, dict[str, tuple[int, int]]]:
    result: Any = wt.explain(subject(chat=chat), prompt=prompt, documents=documents, generate=1, methods="random")[0]
    generated = result["random"].generated
    named = [segment for segment in generated.segments if segment.kind == "document"]
    return result["random"].texts[0], {segment.name: segment.span for segment in named}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("prompt", "documents", "text"),
    [
        ("Who?", ["a b", "x a b y"], "a b\n\nx a b y\n\nWho?"),
        ("Is a b it?", ["a b", "x a b y"], "x a b y\n\nIs a b it?"),
        ("x a b y. a b it?", ["a b", "x a b y"], "x a b y. a b it?"),
        ("a b. x a b y. Who?", ["a b", "x a b y"], "a b. x a b y. Who?"),
        ("Who?", ["a b", "a b"], "a b\n\na b\n\nWho?"),
        ("a b? a b", ["a b", "a b"], "a b? a b"),
        ("a b c. a b", ["a b", "b c"], "a b c. a b"),
        ("Who?", [" a b\n", "a b c"], None),
    ],
)
def test_every_document_has_a_place_of_its_own(prompt: str, documents: list[str], text: str, order: int) -> None:
    documents = documents[::order]
    whole, places = places_of(prompt, documents)
    if order == 1 and text is not None:
        assert whole == text
    assert [whole[slice(*span)] for span in places.values()] == [document.strip() for document in documents]
    spans = sorted(places.values())
    assert all(left[1] <= right[0] for left, right in pairwise(spans)), places


def test_documents_in_the_messages_of_a_chat_have_places_of_their_own() -> None:
    chat = [{"role": "system", "content": "It is slow."}, {"role": "user", "content": " was it? slow"}]
    documents = ["slow", "a slow film", "was"]
    whole, places = places_of(chat, documents, chat=True)
    assert whole == "<s><system> It is slow.\n<user> a slow film\n\n was it? slow\n<assistant> "
    assert [whole[slice(*span)] for span in places.values()] == documents
    assert places["document 1"] == (whole.index("slow."), whole.index("slow.") + 4)

    chat = [{"role": "user", "content": "\n  the plot was slow"}]
    whole, places = places_of(chat, ["the plot", "slow"], chat=True)
    assert [whole[slice(*span)] for span in places.values()] == ["the plot", "slow"]


@pytest.mark.parametrize(
    ("documents", "refused", "other"),
    [
        (["a b", "x a b y"], 1, 2),
        (["x a b y", "a b"], 2, 1),
        (["x a", "a b"], 2, 1),
        (["x a b y", "x a b y"], 2, 1),
    ],
)
def test_a_document_that_is_only_inside_another_is_refused(documents: list[str], refused: int, other: int) -> None:
    said = f"input 0: document {refused} has no place of its own .* overlaps document {other};"
    with pytest.raises(BadInput, match=said):
        places_of("Is x a b y it?", documents)


def test_a_chat_has_roles_and_its_template_is_never_removed() -> None:
    result: Any = wt.explain(subject(chat=True), prompt=CHAT, generate=3, methods="leave-one-out,attn-lrp")[0]
    record = result["leave-one-out"]
    text = "<s><system> It is a film.\n<user> The music was slow. user\n<assistant> "
    assert record.texts[0] == text
    roles = [segment for segment in record.generated.segments if segment.kind == "role"]
    assert [(s.name, text[slice(*s.span)]) for s in roles] == [(m["role"], m["content"]) for m in CHAT]
    for token, span, score in zip(record.tokens, record.spans, record.scores, strict=True):
        if span is None:
            assert score == 0, token
    removed = [i for unit in wt_units(record) for i in unit]
    assert removed == [i for i, sequence in enumerate(record.sequences) if sequence == 0]
    assert record.generated.ids[0] == subject().tokenizer.bos_token_id
    assert record.generated.ids[1] != subject().tokenizer.bos_token_id


def wt_units(record: wt.Attribution) -> list[tuple[int, ...]]:
    from whichtoken.tasks import task_for

    return [unit.elements for unit in task_for(subject(chat=True)).units(record, "token")]


def test_tokens_of_a_chat_template_are_neither_sources_nor_removed() -> None:
    """Which tokens these are follows from the text alone: those that lie in no message."""
    own = subject(chat=True)
    record: Any = wt.explain(own, prompt=CHAT, generate=3, methods="leave-one-out")[0]["leave-one-out"]
    text = record.texts[0]
    said = [range(text.index(m["content"]), text.index(m["content"]) + len(m["content"])) for m in CHAT]
    encoded = own.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    inside = [any(at in span for at in range(start, end) for span in said) for start, end in encoded["offset_mapping"]]
    assert encoded["input_ids"] == list(record.generated.ids[: record.generated.first])
    assert [sequence == 0 for sequence in record.sequences[: record.generated.first]] == inside
    assert record.matrix.sources == ("It", "is", "a", "film.", "The", "music", "was", "slow.", "user")
    units = [position for unit in wt_units(record) for position in unit]
    assert units == [position for position, own in enumerate(inside) if own]


@pytest.mark.parametrize("where", ["generation config", "list", "config", "tokenizer"])
def test_an_answer_ends_with_a_stop_token(where: str) -> None:
    own = language_subject()
    free = explain(generate=8, methods="random")["random"].generated
    answer = free.ids[free.first :]
    stop = next(token for number, token in enumerate(answer) if number > 1 and token not in answer[:number])
    own.model.generation_config.eos_token_id = None
    own.model.config.eos_token_id = None
    if where == "tokenizer":
        own.tokenizer.eos_token = own.tokenizer.convert_ids_to_tokens(stop)
    else:
        config = own.model.config if where == "config" else own.model.generation_config
        config.eos_token_id = [9999, stop] if where == "list" else stop
    found = wt.explain(own, prompt=PROMPT, generate=8, methods="random")[0]["random"].generated
    assert found is not None
    assert found.ids[found.first :] == answer[: answer.index(stop) + 1]


DECODERS = {  # as the tokenizers of released models have them
    "gpt2": decoders.ByteLevel(),
    "llama": decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_of_several_tokens_belongs_to_the_one_that_completes_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = language_subject(kind)
    own.tokenizer.backend_tokenizer.decoder = DECODERS[kind]
    prompt, both = (
        own.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("It is", "It is\u20ac\u00e9")
    )
    answer = tuple(both[len(prompt) :])
    assert (both[: len(prompt)], len(answer)) == (prompt, 5)
    monkeypatch.setattr("whichtoken.tasks.generate.generate_ids", lambda *_: answer)
    record: Any = wt.explain(own, prompt="It is", generate=5, methods="random", rows="token")[0]["random"]
    assert record.texts[1] == "\u20ac\u00e9"
    assert record.spans[record.generated.first :] == ((0, 0), (0, 0), (0, 1), (1, 1), (1, 2))
    assert [row.text for row in record.generated.rows] == ["", "", "\u20ac", "", "\u00e9"]


LOOP = "{% for _ in range(99999) %}"
HOSTILE = {
    "loops": (LOOP * 3 + "{% endfor %}" * 3, "did not end within 1 s"),
    "a power": ("{{ 10 ** (10 ** 10) }}", "did not end within 1 s"),
    "a long text": ("{{ 'a' * 20000000 }}", r"makes a text of more than 10,000,000 characters"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", r"refuses these messages: .*recursion"),
    "brackets": ("{{" + "(" * 100_000 + "}}", r"refuses these messages|ended the process that rendered it"),
    "own words": ("{{ raise_exception('not\nso') }}", r"refuses these messages: not so"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_chat_template_cannot_hang_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template, message = HOSTILE[name]
    own = language_subject(chat=True)
    own.tokenizer.chat_template = template
    if message.endswith("1 s"):
        monkeypatch.setattr("whichtoken.models.templates.SECONDS", 1)
    with pytest.raises(BadInput, match=f"input 1: the model's chat template {message}"):
        wt.explain(own, prompt=["It is", CHAT], generate=3, methods="random")
    monkeypatch.undo()
    good: Any = wt.explain(subject(chat=True), prompt=CHAT, generate=3, methods="random")[0]
    assert good["random"].texts[0].startswith("<s><system> It is a film.")


def test_a_chat_that_was_interrupted_is_not_the_answer_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own, said = subject(chat=True).tokenizer, [[Message("user", text)] for text in ("It is slow.", "It is rare.")]
    expected = [render_chat(own, messages, "it", 0) for messages in said]
    asking: Any = templates._renderer.process
    monkeypatch.setattr(asking, "stdin", InterruptedPipe(asking.stdin))
    with pytest.raises(KeyboardInterrupt):
        render_chat(own, said[0], "it", 0)
    monkeypatch.undo()
    assert [render_chat(own, messages, "it", 0) for messages in reversed(said)] == expected[::-1]


@dataclass
class InterruptedPipe:
    """Ctrl-C comes as soon as something was sent."""

    pipe: Any

    def write(self, line: bytes) -> None:
        self.pipe.write(line)

    def flush(self) -> None:
        self.pipe.flush()
        raise KeyboardInterrupt

    def close(self) -> None:
        self.pipe.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, memory is not limited")
def test_a_chat_template_cannot_fill_the_memory() -> None:
    own = language_subject(chat=True)
    own.tokenizer.chat_template = "{{ 'a' * 10000000000 }}"
    with pytest.raises(BadInput, match=r"the model's chat template needs more than 4 GB of memory"):
        wt.explain(own, prompt=CHAT, generate=3, methods="random")


def test_a_chat_is_rendered_as_transformers_renders_it() -> None:
    own = language_subject(chat=True)
    for template in (
        "{{ eos_token }}{{ messages[0]['content'] }}{{ {'a': '<'} | tojson }}{% generation %}a{% endgeneration %}",
        "{% for m in messages %}\n  {{ m['content'] | trim }}\n{% break %}{% endfor %}{{ add_generation_prompt }}",
    ):
        own.tokenizer.chat_template = template
        chat = [{"role": "user", "content": " <b>\u00e9\U0001f600 \ud800\n"}]
        expected = own.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert render_chat(own.tokenizer, [Message(**m) for m in chat], "it", 0)[0] == expected


def test_messages_of_the_same_content_are_found_in_order_where_the_template_depends_on_them() -> None:
    own, chat = language_subject(chat=True), [Message("user", text) for text in ("It is slow.", "It is slow.", "slow")]
    own.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] | length }}: {{ m['content'] }}\n{% endfor %}"
    text, spans = render_chat(own.tokenizer, chat, "it", 0)
    assert text == "11: It is slow.\n11: It is slow.\n4: slow\n"
    assert spans == [(4, 15), (20, 31), (35, 39)]
    own.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] | upper }}\n{% endfor %}"
    with pytest.raises(BadInput, match="the model's chat template changes message 0, so it cannot be located"):
        render_chat(own.tokenizer, chat, "it", 0)


def test_a_foil_is_contrasted_where_it_differs() -> None:
    record = explain(generate=None, continuation=" the film", foil=" the music")["attn-lrp"]
    own = subject()
    assert record.label == "film rather than music"
    toward, against = record.target.ids[0], record.target.rather_than[0]
    with torch.no_grad():
        logits = own.model(input_ids=torch.tensor([record.generated.ids])).logits[0]
    place = record.target.tokens[0]
    assert record.value == pytest.approx(float(logits[place - 1, toward] - logits[place - 1, against]))
    assert record.answer().text == record.generated.rows[0].text == record.label
    with pytest.raises(BadSetting, match="rows='token' is not allowed; it must be 'answer' with a foil"):
        explain(foil="music", rows="token")


def test_a_record_survives_json_and_impossible_ones_are_refused() -> None:
    for rows in ("answer", "token"):
        record = explain(rows=rows, methods="posterior")["posterior"]
        assert wt.Attribution.from_json(record.to_json()) == record
    generated = record.generated
    for wrong in (
        replace(generated, ids=generated.ids[1:]),
        replace(generated, first=0),
        replace(generated, log_probabilities=()),
        replace(generated, rows=(replace(generated.rows[0], tokens=(0,)),)),
        replace(generated, rows=(replace(generated.rows[0], scores=(1.0,)),)),
        replace(generated, segments=(replace(generated.segments[0], span=(0, 10_000)),)),
    ):
        with pytest.raises(BadArtifact, match="generated"):
            wt.Attribution.from_json(replace(record, generated=wrong).to_json())


def test_several_prompts_of_different_lengths_give_what_each_gives_alone() -> None:
    prompts = [PROMPT, "It is", "Nobody did sleep."]
    methods = "attn-lrp,gradient-x-input,leave-one-out,posterior"
    together: Any = wt.explain(subject(), prompt=prompts, generate=4, methods=methods, rows="token")
    for prompt, result in zip(prompts, together, strict=True):
        alone: Any = wt.explain(subject(), prompt=prompt, generate=4, methods=methods, rows="token")[0]
        for label, record in result.items():
            assert record.generated.ids == alone[label].generated.ids
            for one, other in zip(record.generated.rows, alone[label].generated.rows, strict=True):
                assert one.scores == pytest.approx(other.scores, abs=1e-9), label


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "empty prompt": ({"prompt": " "}, BadInput, "input 0 is an empty prompt"),
    "no prompts": ({"prompt": []}, BadInput, "prompt is empty"),
    "border": ({"prompt": "It is sl", "generate": None, "continuation": "ow"}, BadInput, "across their boundary"),
    "joined": (
        {"prompt": "It is sl", "generate": None, "continuation": "ow, but the film was touching."},
        BadInput,
        "joins the end of the prompt, 'It is sl', and the continuation, 'ow, but the ', across their boundary",
    ),
    "too long": ({"generate": 100}, BadInput, r"has \d+ tokens, and its answer up to 100, but the model reads 96"),
    "role": ({"prompt": [{"role": "robot", "content": "It is"}]}, BadInput, "message 0 has the role 'robot'"),
    "same": ({"generate": None, "continuation": " the film", "foil": " the film"}, BadInput, "is what the answer"),
    "no template": ({"prompt": CHAT}, BadInput, "has no chat template"),
    "two answers": ({"continuation": " the"}, BadSetting, "generate=5 is not allowed; it must be None"),
    "no tokens": ({"generate": 0}, BadSetting, "generate=0"),
    "rows": ({"rows": "words"}, BadSetting, "rows='words'"),
    "sources": ({"sources": "page"}, BadSetting, "sources='page'"),
    "no documents": ({"sources": "document"}, BadInput, "has no documents"),
    "target": ({"target": "probability"}, BadSetting, "target='probability'"),
    "contrast-cat": ({"methods": "contrast-cat"}, UsageError, "predicts words, not classes"),
    "full-lrp": ({"methods": "full-lrp"}, UsageError, "hundreds of times the logit"),
    "hidden": ({"methods": "attcat@repo"}, UsageError, "hides special tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name: str) -> None:
    arguments, error, message = BAD[name]
    with pytest.raises(error, match=message) as raised:
        explain(**arguments)
    assert "\n" not in str(raised.value)


def test_a_prompt_is_refused_by_a_classifier() -> None:
    with pytest.raises(UsageError, match=r"a prompt was given, but .* classifies texts"):
        wt.explain(wt.load(), prompt="It is")
    with pytest.raises(UsageError, match="an answer to a prompt was requested"):
        wt.explain(wt.load(), "It is", generate=3)
