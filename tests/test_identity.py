"""The tokenizer or image processor is part of a model's identity: nothing made with another one is used or added to."""

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import CHAT, CORPUS, GPT2, ROBERTA, byte_bpe, image_model_of, model_of, unigram, with_heads, wordpiece
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast, ViTImageProcessor

import whichtoken as wt
from whichtoken.bench import auto
from whichtoken.bench import folder as bench_folder
from whichtoken.bench._run import gather, prepare, run_sample
from whichtoken.bench.external import read_external_scores
from whichtoken.cli.run import main
from whichtoken.errors import LibraryMismatch, UsageError
from whichtoken.jobs import _corpus
from whichtoken.jobs.work import Engine, OnReceipt, Range, Work, Worker
from whichtoken.models import fingerprint
from whichtoken.render import report
from whichtoken.web.limits import Limits
from whichtoken.web.service import make_service

UNCHECKED = "made before tokenizers were checked"
FEW = wt.bench.protocol(metrics=("aopc",), orders=("morf",), perturbations=("delete",), min_tokens=1)
METHODS = ["attcat", "gae", "random"]
Change = Callable[[Any], None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parts are done in this process; no figures; what is kept for the user is kept here."""

    def run(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        worker = Worker(work)
        for part in parts:
            on_receipt(worker(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]

    monkeypatch.setattr(_corpus, "run_parts", run)
    monkeypatch.setattr(bench_folder, "_write_figures", lambda *_: None)
    monkeypatch.setattr(report, "curves_png", lambda *_: b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tokenizer() -> PreTrainedTokenizerFast:
    return copy.deepcopy(wordpiece())


def swapped() -> PreTrainedTokenizerFast:
    """The tokenizer with two words of its vocabulary swapped."""
    stored = json.loads(tokenizer().backend_tokenizer.to_str())
    words = stored["model"]["vocab"]
    words["slow"], words["rare"] = words["rare"], words["slow"]
    changed = tokenizer()
    changed._tokenizer = Tokenizer.from_str(json.dumps(stored))
    return changed


@pytest.fixture(scope="module")
def subject() -> wt.Subject:
    return wt.Subject(model_of("bert"), tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def other(subject: wt.Subject) -> wt.Subject:
    """The same model, with two words of its tokenizer swapped."""
    return replace(subject, processor=swapped())


def remove_stamps(path: Path) -> None:
    """Make the JSON files at a path those of the version that did not store the tokenizer."""
    for file in [path] if path.is_file() else path.glob("*.json"):
        text = file.read_text("utf-8")
        for pattern in (r',\s*"processor": "[^"]*"', r', \["processor", "[^"]*"\]'):
            text = re.sub(pattern, "", text)
        assert "processor" not in text
        file.write_text(text, encoding="utf-8")


def set_backend(**parts: Any) -> Change:
    def change(tokenizer: Any) -> None:
        for name, part in parts.items():
            setattr(tokenizer.backend_tokenizer, name, part)

    return change


def set_attributes(**attributes: Any) -> Change:
    def change(tokenizer: Any) -> None:
        for name, value in attributes.items():
            setattr(tokenizer, name, value)

    return change


TEMPLATE = processors.TemplateProcessing(single="[CLS] $A", pair="$A $B:1", special_tokens=[("[CLS]", 2)])


@pytest.mark.parametrize(
    "change",
    {
        "vocabulary": set_attributes(_tokenizer=swapped().backend_tokenizer),
        "normaliser": set_backend(normalizer=normalizers.BertNormalizer(lowercase=False)),
        "pre-tokenizer": set_backend(pre_tokenizer=pre_tokenizers.Whitespace()),
        "template": set_backend(post_processor=TEMPLATE),
        "special token": set_attributes(mask_token="[PAD]"),
        "added token": lambda tokenizer: tokenizer.add_tokens([AddedToken("touching film")]),
        "chat template": set_attributes(chat_template=CHAT),
        "limit": set_attributes(model_max_length=12),
        "truncated side": set_attributes(truncation_side="left"),
    }.items(),
    ids=lambda named: named[0],
)
def test_the_identity_follows_whatever_decides_how_a_tokenizer_reads(change: tuple[str, Change]) -> None:
    made = wt.Subject(model_of("bert"), tokenizer())
    before = made.identity()
    change[1](made.tokenizer)
    after = made.identity()
    assert after.revision == before.revision == made.fingerprint()
    assert after.processor != before.processor
    if change[0] != "vocabulary":
        assert wt.Subject(made.model, tokenizer()).identity() == before


def test_the_order_of_merges_and_the_scores_of_pieces_count() -> None:
    """Two vocabularies with the same words may still split a text differently."""
    for made, change in ((byte_bpe(GPT2), reverse_merges), (unigram(ROBERTA), change_scores)):
        stored = json.loads(made.backend_tokenizer.to_str())
        changed = copy.deepcopy(made)
        change(stored["model"])
        changed._tokenizer = Tokenizer.from_str(json.dumps(stored))
        assert changed.get_vocab() == made.get_vocab()
        assert fingerprint.fingerprint_processor(changed) != fingerprint.fingerprint_processor(made)


def reverse_merges(model: dict[str, Any]) -> None:
    model["merges"].reverse()


def change_scores(model: dict[str, Any]) -> None:
    model["vocab"][-1][1] -= 1


def test_the_identity_is_the_same_however_the_files_are_laid_out_and_however_often_it_was_used(tmp_path: Path) -> None:
    used = wt.Subject(model_of("bert"), tokenizer())
    before = used.identity()
    used.tokenizer(CORPUS, truncation=True, max_length=7, padding="max_length")
    wt.explain(used, CORPUS[:2], "attcat")
    assert used.identity() == before
    used.tokenizer.save_pretrained(tmp_path)  # with the truncation and padding of that call
    file = tmp_path / "tokenizer.json"
    stored = json.loads(file.read_text("utf-8"))
    assert stored["truncation"]
    for text in (json.dumps(stored), json.dumps(dict(reversed(stored.items())), indent=8, ensure_ascii=True)):
        file.write_text(text, encoding="utf-8")
        assert replace(used, processor=AutoTokenizer.from_pretrained(tmp_path)).identity() == before


def test_the_vocabulary_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have 250,000 entries, and the identity is asked for in every batch."""
    hashed, original = list[Any](), fingerprint._hash_tokenizer

    def count(settings: str, backend: Any) -> str:
        hashed.append(backend)
        return original(settings, backend)

    monkeypatch.setattr(fingerprint, "_hash_tokenizer", count)
    made = wt.Subject(model_of("bert"), tokenizer())
    wt.explain(made, CORPUS, METHODS)
    made.tokenizer(CORPUS, truncation=True, max_length=7, padding=True)
    wt.explain(made, CORPUS, METHODS)
    assert len(hashed) == 1


def test_a_pre_tokenizer_written_in_python_has_an_identity() -> None:
    class Words:
        def pre_tokenize(self, text: Any) -> None:
            text.split(lambda _, piece: [piece])

    made = tokenizer()
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Words())
    assert fingerprint.fingerprint_processor(made) != fingerprint.fingerprint_processor(tokenizer())


def test_the_identity_follows_the_settings_of_an_image_processor() -> None:
    settings = {"size": {"height": 12, "width": 12}}
    made = wt.Subject(image_model_of("vit"), ViTImageProcessor(**settings))
    same = replace(made, processor=ViTImageProcessor(**settings))
    assert made.identity() == same.identity()
    identities = {made.identity(), replace(made, processor=None).identity()}
    for change in ({"image_mean": [0.4, 0.5, 0.5]}, {"resample": 3}, {"do_rescale": False}):
        identities.add(replace(made, processor=ViTImageProcessor(**settings, **change)).identity())
    assert len(identities) == 5
    assert len({identity.revision for identity in identities}) == 1


def test_the_library_and_mask_of_another_tokenizer_are_refused(
    subject: wt.Subject, other: wt.Subject, tmp_path: Path
) -> None:
    wt.references.build(subject, CORPUS, out=tmp_path / "library", rule="random", min_tokens=1)
    wt.heads.save(replace(chosen_heads(subject), processor=subject.identity().processor), tmp_path / "heads.json")
    assert subject.with_references(tmp_path / "library").with_heads(tmp_path / "heads.json").heads is not None
    said = r"was built for tiny, tokenizer or image processor sha256:\w+; tiny has sha256:\w+ \(.* count\); build one"
    with pytest.raises(LibraryMismatch, match=said):
        other.with_references(tmp_path / "library")
    with pytest.raises(LibraryMismatch, match=said):
        other.with_heads(tmp_path / "heads.json")


def chosen_heads(subject: wt.Subject) -> wt.heads.HeadMask:
    mask = with_heads(subject).heads
    assert mask is not None
    return mask


def test_libraries_of_a_methods_own_references_are_those_of_the_tokenizer() -> None:
    made = wt.Subject(model_of("bert"), tokenizer())
    method = wt.method("contrast-cat", references=CORPUS)
    text = [CORPUS[2]]  # both tokenizers read it alike
    (before,) = wt.explain(made, text, method)[0].values()
    made.tokenizer._tokenizer = swapped().backend_tokenizer
    (after,) = wt.explain(made, text, method)[0].values()
    (fresh,) = wt.explain(wt.Subject(model_of("bert"), swapped()), text, method)[0].values()
    assert after.scores == fresh.scores != before.scores


def test_a_record_of_another_tokenizer_is_not_degraded_and_not_taken_for_that_of_the_model(
    subject: wt.Subject, other: wt.Subject
) -> None:
    text = CORPUS[2]  # both tokenizers read it alike
    record, theirs = (wt.explain(one, [text], "attcat")[0]["attcat"] for one in (subject, other))
    assert (record.scores, record.tokens, record.revision) == (theirs.scores, theirs.tokens, theirs.revision)
    assert record != theirs
    assert wt.Attribution.from_json(record.to_json()) == record
    assert wt.degrade(subject, [record])[0].processor == record.processor
    with pytest.raises(UsageError, match="explain a model other than tiny; use the model they explain"):
        wt.degrade(other, [record])
    service = make_service([replace(other, name="other"), subject], Limits())
    try:
        found = [service.of_record(of) for of in (record, theirs)]
    finally:
        service.stop()
    assert [None if model is None else model.subject.title for model in found] == ["tiny", "other"]


def test_a_benchmark_of_another_tokenizer_is_neither_continued_nor_used(
    subject: wt.Subject, other: wt.Subject, tmp_path: Path
) -> None:
    texts = [text for text in CORPUS if "slow" not in text and "rare" not in text]  # both read these alike
    table = wt.bench.run(subject, texts, METHODS, protocol=replace(FEW, sample=1), out=tmp_path / "out")
    assert subject.identity().processor in dict(table.facts).values()
    with pytest.raises(UsageError, match=r"holds another benchmark \(processor was 'sha256:.*; choose another folder"):
        wt.bench.run(other, texts, METHODS, protocol=replace(FEW, sample=2), out=tmp_path / "out")
    wt.bench.run(subject, texts, METHODS, protocol=replace(FEW, sample=2), out=tmp_path / "out")
    assert auto.best_method(subject, benchmark=tmp_path / "out").method in METHODS
    with pytest.raises(UsageError, match="benchmark of tiny, not of this model: tokenizer or image processor sha2"):
        auto.best_method(other, benchmark=tmp_path / "out")


def test_scores_of_another_tokenizer_are_not_measured(subject: wt.Subject, other: wt.Subject, tmp_path: Path) -> None:
    text = CORPUS[2]
    for one, expected in ((subject, None), (other, "scores for a model other than tiny")):
        record = wt.explain(one, [text], "attcat")[0]["attcat"]
        (tmp_path / "scores.jsonl").write_text(record.to_json() + "\n", encoding="utf-8")
        bench = prepare(subject, ["gae"], FEW)
        external = read_external_scores(tmp_path / "scores.jsonl", bench.task)
        bench = replace(bench, external={key: {"theirs": of["attcat"]} for key, of in external.items()})
        sample = gather(bench, bench.task.examples([text], None, None))
        if expected is None:
            assert {line.method for line in run_sample(bench, sample, None, {}).lines} == {"gae", "theirs"}
            continue
        with pytest.raises(UsageError, match=expected):
            run_sample(bench, sample, None, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model and texts in files."""
    model_of("bert").float().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(CORPUS * 2) + "\n", encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ending:
        main(list(arguments))
    return int(str(ending.value.code))


def explain_corpus(folder: Path) -> int:
    call = ["corpus", "explain", "--data", str(folder / "texts.txt"), "--model", str(folder / "model")]
    return run(*call, "--method", "attcat", "--rows-per-part", "4", "--out", str(folder / "out"))


def test_a_corpus_job_is_not_continued_with_another_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_corpus(folder) == 0
    first, *rest = sorted((folder / "out" / "shards").iterdir())
    first.unlink()
    swapped().save_pretrained(folder / "model")
    capsys.readouterr()
    assert explain_corpus(folder) == 2
    said = capsys.readouterr().err.strip()
    assert re.fullmatch(r"whichtoken: \S+ holds another corpus job \(processor was '.*; choose another folder", said)
    assert sorted((folder / "out" / "shards").iterdir()) == rest
    tokenizer().save_pretrained(folder / "model")
    assert explain_corpus(folder) == 0


def test_a_corpus_job_of_the_version_before_is_summarised_and_not_continued(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain_corpus(folder) == 0
    assert run("corpus", "summary", str(folder / "out"), "--min-count", "2") == 0
    assert UNCHECKED not in capsys.readouterr().out
    remove_stamps(folder / "out")
    before = sorted((path, path.stat().st_mtime_ns) for path in (folder / "out").rglob("*"))
    assert explain_corpus(folder) == 2
    said = capsys.readouterr().err.strip()
    expected = rf"whichtoken: \S+ holds a corpus job {UNCHECKED}, so it cannot be resumed; choose another folder"
    assert re.fullmatch(expected, said)
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "out").rglob("*")) == before
    out = str(folder / "out")
    assert run("corpus", "summary", out, "--before", out, "--min-count", "2") == 0
    shown = capsys.readouterr().out
    assert f"processor {UNCHECKED}" in re.sub(" +", " ", shown)
    assert f"12 texts, {UNCHECKED}" in shown


def test_a_library_and_a_mask_of_the_version_before_are_used_and_say_so(
    subject: wt.Subject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = wt.references.build(subject, CORPUS, out=tmp_path / "library", rule="random", min_tokens=1)
    mask = replace(chosen_heads(subject), processor=subject.identity().processor)
    wt.heads.save(mask, tmp_path / "heads.json")
    assert UNCHECKED not in f"{library} {library.summary()} {mask}"
    for path in (tmp_path / "library", tmp_path / "heads.json"):
        remove_stamps(path)
    older = subject.with_references(tmp_path / "library").with_heads(tmp_path / "heads.json")
    assert older.references is not None
    assert (older.references.digest, older.heads) == (library.digest, replace(mask, processor=""))
    record = wt.explain(older, CORPUS[:1], "mask-lrp")[0]["mask-lrp"]
    assert record.processor == subject.identity().processor
    for kind, path in (("references", tmp_path / "library"), ("heads", tmp_path / "heads.json")):
        assert run(kind, "show", str(path)) == 0
        assert UNCHECKED in " ".join(capsys.readouterr().out.split())


def test_a_record_of_the_version_before_is_read_and_says_so(subject: wt.Subject) -> None:
    record = wt.explain(subject, CORPUS[:1], "attcat")[0]["attcat"]
    stored = json.loads(record.to_json())
    del stored["processor"]
    older = wt.Attribution.from_json(json.dumps(stored))
    assert older == replace(record, processor="")
    assert older.to_json() == json.dumps(stored, ensure_ascii=False)
    assert UNCHECKED in older.to_html()
    assert UNCHECKED not in record.to_html()
    (curve,) = wt.degrade(subject, [older])
    stored = json.loads(curve.to_json())
    del stored["processor"]
    assert wt.Curve.from_json(json.dumps(stored)) == replace(curve, processor="")


def test_a_benchmark_of_the_version_before_is_read_and_not_continued(subject: wt.Subject, tmp_path: Path) -> None:
    table = wt.bench.run(subject, CORPUS, METHODS, protocol=replace(FEW, sample=1), out=tmp_path)
    assert UNCHECKED not in table.to_html()
    remove_stamps(tmp_path)
    older = wt.bench.read_table(tmp_path)
    assert older.lines == table.lines
    assert UNCHECKED in older.to_html()
    assert auto.best_method(subject, benchmark=tmp_path).why.endswith(f", {UNCHECKED}")
    message = f"holds a benchmark {UNCHECKED}, so it cannot be resumed; choose another folder"
    for size in (1, 2):
        with pytest.raises(UsageError, match=message):
            wt.bench.run(subject, CORPUS, METHODS, protocol=replace(FEW, sample=size), out=tmp_path)


def test_what_comes_with_the_default_model_was_made_with_its_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    default = wt.load()
    assert default.references is not None
    assert default.heads is not None
    assert default.references.identity == default.heads.identity == default.identity()
    assert UNCHECKED not in auto.best_method(default).why
    assert run("model") == 0
    assert UNCHECKED not in capsys.readouterr().out
