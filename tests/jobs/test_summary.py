"""Summaries of corpora: by hand from a few shards, a shortcut that was planted, drift, and what is shown."""

import random
import re
from collections.abc import Mapping, Sequence
from math import inf, nan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from pyarrow import parquet
from tests.tiny import WORDS, model_of, wordpiece

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.errors import BadArtifact, BadSetting, UnknownName, UsageError
from whichtoken.jobs import _corpus
from whichtoken.jobs.manifest import CorpusManifest, write_manifest
from whichtoken.jobs.shards import ShardStamp, make_table, read_info, read_shard, shard_files, write_shard
from whichtoken.jobs.shortcuts import find_shortcuts, kinds_of
from whichtoken.jobs.summary import summarise_corpus, wilson_interval
from whichtoken.jobs.work import Engine, OnReceipt, Range, Work, Worker
from whichtoken.render.corpus import COLUMNS, Bar, corpus_page
from whichtoken.summaries import WordEffect

Result = tuple[str, str | None, Mapping[str, float]]  # label, gold label, and the scores of the words


def make_job(
    folder: Path,
    results: Sequence[Result],
    methods: Sequence[str] = ("attcat",),
    text: bool = True,
    kept: Mapping[str, str] | None = None,
) -> Path:
    """A finished job in two shards, without a model. `kept`: columns that are the same in each row."""
    rows = []
    for number, (label, gold, scores) in enumerate(results):
        words = list(scores)
        ends = [sum(map(len, words[: i + 1])) + i for i in range(len(words))]
        for method in methods:
            rows.append(
                {
                    "row": number,
                    "file": "x.csv",
                    "line": number + 2,
                    "text_hash": "0" * 16,
                    "texts": [" ".join(words)] if text else None,
                    "gold": gold,
                    "result": 0,
                    "label": label,
                    "probability": 0.75,
                    "predicted": label,
                    "correct": None if gold is None else gold == label,
                    "n_tokens": len(words) + 2,
                    "n_cut": 0,
                    "method": method,
                    "words": words,
                    "text_of_word": [0] * len(words),
                    "starts": [end - len(word) for end, word in zip(ends, words, strict=True)],
                    "ends": ends,
                    "scores": list(scores.values()),
                    **(kept or {}),
                }
            )
    (folder / "shards").mkdir(parents=True)
    half, files = len(results) // 2, shard_files(folder)
    for first, last in ((0, half - 1), (half, len(results) - 1)):
        table = make_table((row for row in rows if first <= row["row"] <= last), kept or ())  # type: ignore[operator]
        write_shard(files.path(first, last), table, [], ShardStamp("0", "spec"), 0)
    finish(folder, methods, len(results))
    return folder


def finish(folder: Path, methods: Sequence[str], n: int) -> None:
    """Write the manifest of the shards that are there."""
    spec = {"methods": {name: {"method": name, "settings": {}, "tuned_on_deletion": False} for name in methods}}
    shards = tuple((path.name, read_info(path).sha256) for path in shard_files(folder).paths())
    write_manifest(folder, CorpusManifest("0", "spec", spec, "a model", "sha256:0", n, n, 0, n, 0, shards))


REVIEWS: list[Result] = [
    ("good", "good", {"Fine": 2.0, "the": 0.5, "!": 1.0, "fine": 1.0}),  # twice: it counts once, by its mean
    ("good", "good", {"the": -1.0, "fine": 4.0, "film": 1.0}),
    ("good", "bad", {"fine": 3.0, "the": 1.5, "dull": -3.0}),
    ("bad", "bad", {"dull": 5.0, "the": 1.0, "Fine": -2.0, "fine": 0.0}),
    ("bad", "bad", {"dull": 0.0, "film": 0.0}),  # nothing has any effect, so there are no shares
    ("bad", "good", {"dull": 1.0, "film": -0.25}),
] * 6


def test_words_count_once_per_text_by_their_share_of_the_strongest(tmp_path: Path) -> None:
    summary = summarise_corpus(make_job(tmp_path / "a", REVIEWS), min_count=2)
    assert [(of.label, of.n_texts, of.n_correct) for of in summary.labels] == [("bad", 18, 12), ("good", 18, 12)]
    assert summary.error_rate == pytest.approx(2 / 6)
    (fine, *_) = summary.supports["good"]
    assert (fine.word, fine.n_texts, fine.n_other) == ("fine", 18, 6)
    assert fine.share == pytest.approx(mean([0.75, 1.0, 1.0]))
    assert fine.score == pytest.approx(mean([1.5, 4.0, 3.0]))
    assert fine.purity == pytest.approx(3 / 4)
    dull = summary.supports["bad"][0]
    assert (dull.word, dull.n_texts, dull.share) == ("dull", 12, 1.0)
    assert {row % 6 for row in fine.examples} <= {0, 1, 2}
    assert len(fine.examples) == 2
    assert [effect.word for effect in summary.opposes["good"]] == ["dull"]
    assert summary.examples[dull.examples[0]].words()[0].text == "dull"


def test_a_name_is_a_word_with_a_capital_letter_inside_a_text(tmp_path: Path) -> None:
    """Any word may begin a sentence."""
    results: list[Result] = [("good", None, {"Rare": 2.0, "film": 0.1, "by": 0.1, "Anna": 1.5, "!": 0.0})] * 12
    summary = summarise_corpus(make_job(tmp_path / "a", results), min_count=2)
    capitalised = {effect.word: effect.capitalised for effect in summary.supports["good"]}
    assert capitalised == {"rare": 0, "anna": 1, "film": 0, "by": 0}
    kinds = {candidate.effect.word: candidate.kinds for candidate in summary.shortcuts}
    assert kinds == {"rare": ("at the start of its texts",), "anna": ("name",)}


def test_intervals_of_few_texts_are_wide(tmp_path: Path) -> None:
    """Against Student's interval, 2.776 for 5 texts, with the spread of these texts and one without any effect."""
    shares = [0.2, 0.4, 0.3, 0.3, 0.3]
    spread = stdev([*shares, 0.0])
    results: list[Result] = [("good", None, {"top": 1.0, "some": share}) for share in shares]
    summary = summarise_corpus(make_job(tmp_path / "a", results), min_count=2)
    (some,) = [effect for effect in summary.supports["good"] if effect.word == "some"]
    half = 2.776 * spread / 5**0.5
    assert (some.low, some.high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.01)
    assert summary.error_rate is None
    assert summary.mistakes == ()


def test_words_that_decide_wrong_predictions(tmp_path: Path) -> None:
    right: list[Result] = [("good", "good", {"great": 1.0, "film": 0.1})] * 20
    wrong: list[Result] = [("good", "bad", {"great": 0.1, "film": 1.0})] * 3
    also: list[Result] = [("good", "good", {"great": 0.1, "film": 1.0})] * 2
    summary = summarise_corpus(make_job(tmp_path / "a", [*right, *wrong, *also]), min_count=2)
    (film,) = summary.mistakes
    assert (film.predicted, film.word, film.n_wrong, film.n_texts) == ("good", "film", 3, 5)
    assert (film.low, film.high) == wilson_interval(3, 5)
    assert film.examples == (20, 21)
    assert summary.error_rate == pytest.approx(3 / 25)
    opposed: list[Result] = [("good", "bad", {"great": -0.5, "film": -1.0})] * 5  # no word supports the prediction
    summary = summarise_corpus(make_job(tmp_path / "b", [*right, *wrong, *also, *opposed]), min_count=2)
    assert [(w.word, w.n_wrong, w.n_texts) for w in summary.mistakes] == [("film", 3, 5)]
    assert summary.error_rate == pytest.approx(8 / 30)
    assert wilson_interval(3, 5) == pytest.approx((0.2307, 0.8824), abs=1e-3)  # the textbook's numbers


def effect(word: str, **values: Any) -> WordEffect:
    return WordEffect("good", word, 10, 1.0, 0.5, 0.4, 0.6, **values)


@pytest.mark.parametrize(
    ("word", "values", "kind"),
    [
        ("!", {}, "punctuation or symbol"),
        ("10th", {}, "number"),
        ("1999", {}, "number"),
        ("br", {}, "formatting"),
        ("@anna", {}, "formatting"),
        ("the", {}, "function word"),
        ("zq", {}, "not a word"),
        ("k", {}, "not a word"),
        ("nolan", {"capitalised": 0.9}, "name"),
        ("wonderful", {"at_end": 0.95}, "at the end of its texts"),
        ("review", {"at_start": 1.0}, "at the start of its texts"),
    ],
)
def test_kinds_of_shortcuts(word: str, values: dict[str, float], kind: str) -> None:
    assert kinds_of(effect(word, **values)) == (kind,)


def test_ordinary_words_and_weak_words_are_no_shortcuts() -> None:
    for word in ("boring", "not", "but", "my-thing", "film", "why"):
        assert kinds_of(effect(word)) == (), word
    assert kinds_of(effect("nolan", capitalised=1.0), cased=False) == ()
    weak = WordEffect("good", "zq", 10, 1.0, 0.2, 0.09, 0.3)
    assert find_shortcuts([weak, effect("zq"), effect("boring")], cased=True)[0].effect.low == 0.4
    assert len(find_shortcuts([weak, effect("zq"), effect("boring")], cased=True)) == 1


def test_drift_names_words_whose_effect_or_frequency_changed(tmp_path: Path) -> None:
    before: list[Result] = [("good", None, {"top": 1.0, "old": 0.5 + 0.01 * (i % 3), "same": 0.2}) for i in range(30)]
    now: list[Result] = [("good", None, {"top": 1.0, "old": -0.5 + 0.01 * (i % 3), "same": 0.2}) for i in range(20)]
    now += [("bad", None, {"top": 1.0, "new": 0.5})] * 20
    now += [("good", None, {"top": 1.0, "new": 0.5})] * 10
    summary = summarise_corpus(make_job(tmp_path / "b", now), before=make_job(tmp_path / "a", before), min_count=2)
    drift = summary.drift
    assert drift is not None
    assert drift.labels == (("bad", 0.0, 0.4), ("good", 1.0, 0.6))
    (old,) = drift.effects
    assert (old.label, old.word, old.n_before, old.n_after) == ("good", "old", 30, 20)
    assert old.after - old.before == pytest.approx(-1.0, abs=0.02)
    assert old.low < -1 < old.high < 0
    assert {(change.label, change.word) for change in drift.frequencies} == {("good", "new")}
    assert summarise_corpus(tmp_path / "b", before=tmp_path / "b", min_count=2).drift.effects == ()  # type: ignore[union-attr]


def test_drift_counts_the_texts_of_words_that_are_rare_in_one_corpus(tmp_path: Path) -> None:
    """A word in 4 of 100 texts, and now in 9, is within chance; with "none before" it would not be."""
    before, now = (
        make_job(
            tmp_path / name,
            [("good", None, {"top": 1.0, "rare": 0.5} if i < n else {"top": 1.0, "film": 0.1}) for i in range(100)],
        )
        for name, n in (("before", 4), ("now", 9))
    )
    drift = summarise_corpus(now, before=before, min_count=5).drift
    assert drift is not None
    assert drift.frequencies == ()
    many = make_job(tmp_path / "many", [("good", None, {"top": 1.0, "rare": 0.5})] * 100)
    drift = summarise_corpus(many, before=before, min_count=5).drift
    assert drift is not None
    (rare,) = [change for change in drift.frequencies if change.word == "rare"]
    assert (rare.n_before, rare.n_after, rare.before) == (4, 100, 0.04)


def test_what_cannot_be_summarised_is_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path / "a", REVIEWS, ("attcat", "gae"))
    with pytest.raises(UsageError, match="has results of attcat, gae; choose one: corpus summary --method attcat, "):
        summarise_corpus(job)
    with pytest.raises(UnknownName, match=r"unknown method of .* 'gea'; did you mean 'gae'\?"):
        summarise_corpus(job, "gea")
    with pytest.raises(UsageError, match="there is no finished corpus job in"):
        summarise_corpus(tmp_path / "none")
    with pytest.raises(BadSetting, match="at least 1 and 2"):
        summarise_corpus(job, "gae", min_count=1)
    assert summarise_corpus(job, "gae", min_count=2).method == "gae"


def test_odd_names_of_folders_methods_and_labels_are_only_names(tmp_path: Path) -> None:
    name = "it's [a] *"
    results: list[Result] = [("it's; --", None, {"fine": 1.0, "x'": 0.5})] * 24
    summary = summarise_corpus(make_job(tmp_path / name, results, ("o'clock",)), min_count=2)
    assert [effect.word for effect in summary.supports["it's; --"]] == ["fine", "x'"]


def test_neither_folders_nor_kept_columns_replace_columns_of_the_shards(tmp_path: Path) -> None:
    kept = {"strongest": "0", "Label": "other", "now_results": "x"}
    job = make_job(tmp_path / "label=folder" / "score=9", REVIEWS, kept=kept)
    summary = summarise_corpus(job, min_count=2)
    assert [of.label for of in summary.labels] == ["bad", "good"]
    assert summary.supports["good"][0].share == pytest.approx(mean([0.75, 1.0, 1.0]))


def test_a_folder_without_some_of_its_shards_is_refused(tmp_path: Path) -> None:
    job, whole = make_job(tmp_path / "a", REVIEWS), make_job(tmp_path / "b", REVIEWS)
    (job / "shards" / "000018-000035.parquet").unlink()
    message = r"has lost 1 of its 2 shards, the first is 000018-000035\.parquet; run whichtoken corpus explain again"
    with pytest.raises(BadArtifact, match=message):
        summarise_corpus(job)
    with pytest.raises(BadArtifact, match=message):
        summarise_corpus(whole, before=job)


FIRST = "000000-000017.parquet"
DAMAGES: dict[str, tuple[Mapping[str, Any], str]] = {
    "edited scores": ({"scores": [9.0, -9.0, 0.5, 1.0]}, ""),
    "NaN": ({"scores": [nan, 1.0, 1.0, 1.0]}, "scores is NaN or infinite in some results"),
    "NaN as probability": ({"probability": nan}, "probability is NaN or infinite in some results"),
    "short scores": ({"scores": [1.0]}, "words and scores have different lengths"),
    "no score": ({"scores": [None, 1.0, 1.0, 1.0]}, "scores is missing in some results"),
    "no label": ({"label": None}, "label is missing in some results"),
    "no words": ({"words": None}, "words is missing in some results"),
    "another text": ({"text_of_word": [0, 7, 0, 0]}, "text_of_word is neither 0 nor 1 in some results"),
    "another row": ({"row": 18}, "it has results of rows that are not in its name"),
    "a row twice": ({"row": 1}, "it has some results more than once"),
}


def damage(path: Path, change: Mapping[str, Any], sealed: bool) -> None:
    """Change the first result of a shard. `sealed`: with a hash that fits."""
    table, info = read_shard(path)
    rows = table.to_pylist()
    rows[0] |= change
    changed = type(table).from_pylist(rows, table.schema)
    if sealed:
        write_shard(path, changed, [], ShardStamp("0", "spec"), info.n_tokens)
    else:
        parquet.write_table(changed, path)


def summarise(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """Return the exit code of the command and what it says."""
    with pytest.raises(SystemExit) as ending:
        main(["corpus", "summary", str(folder), "--min-count", "2", *more])
    return int(str(ending.value.code)), capsys.readouterr().err


@pytest.mark.parametrize("name", DAMAGES)
def test_a_shard_that_was_changed_is_not_summarised(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one whose content cannot be, if somebody also changed the hashes."""
    (job, whole), (change, problem) = (make_job(tmp_path / of, REVIEWS) for of in "ab"), DAMAGES[name]
    path = job / "shards" / FIRST
    fix = "delete this file and run again, and these rows are explained again"
    for sealed in (False, True):
        damage(path, change, sealed)
        said = f"whichtoken: {path} was changed after it was saved: its content does not match its sha256; {fix}\n"
        if sealed and problem:
            said = f"whichtoken: {path}: {problem}; {fix}\n"
        assert summarise(job, capsys) == (1, said)
        assert summarise(whole, capsys, "--before", str(job)) == (1, said)
        path.write_bytes((whole / "shards" / FIRST).read_bytes())
    damage(path, change, sealed=True)
    finish(job, ("attcat",), len(REVIEWS))
    code, said = summarise(job, capsys)
    assert (code, problem in said, said.count("\n")) == ((1, True, 1) if problem else (0, True, 0))


def test_a_shard_more_is_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(tmp_path / "a", REVIEWS)
    for name in ("000036-000053.parquet", "000000-000008.parquet"):
        more = job / "shards" / name
        more.write_bytes((job / "shards" / FIRST).read_bytes())
        said = f"whichtoken: {more} is not a part of this job; move it elsewhere\n"
        assert summarise(job, capsys) == (1, said)
        more.unlink()
    (job / "shards" / "copy.parquet").write_bytes((job / "shards" / FIRST).read_bytes())
    code, said = summarise(job, capsys)
    assert (code, "parts are named like 000000-000015.parquet" in said) == (1, True)


def test_a_shard_of_another_job_is_not_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, path = make_job(tmp_path / "a", REVIEWS), tmp_path / "a" / "shards" / FIRST
    table, _ = read_shard(path)
    write_shard(path, table, [], ShardStamp("0", "another"), 0)
    assert summarise(job, capsys)[1].startswith(f"whichtoken: {path} belongs to another job; delete this file")


def test_the_page_escapes_texts_and_links_to_explanations(tmp_path: Path) -> None:
    results: list[Result] = [
        ("<b>good", None, {"<script>alert(1)</script>": 1.0, "fine": 0.5 + 0.1 * (i % 2)}) for i in range(4)
    ]
    summary = summarise_corpus(make_job(tmp_path / "a", results), min_count=2)
    page = corpus_page(summary)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<b>good" not in page
    links = set(re.findall(r'href="#(row-\d+)"', page))
    assert links
    assert links <= set(re.findall(r'id="(row-\d+)"', page))
    assert "style=" not in page  # the content security policy would ignore it
    assert page.count("<svg ") == len(summary.supports["<b>good"]) + len(summary.shortcuts)
    assert Bar.of(0.5, 0.25, 2.0) == Bar(80.0, 40.0, 100.0, 160.0, True)
    assert Bar.of(-0.5, -inf, 0.0) == Bar(40.0, 40.0, 0.0, 80.0, False)


def test_texts_that_are_not_stored_are_shown_as_their_words(tmp_path: Path) -> None:
    summary = summarise_corpus(make_job(tmp_path / "a", REVIEWS, text=False), min_count=2)
    (record, *_) = summary.examples.values()
    assert " ".join(word.text for word in record.words()) == record.texts[0]


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(tmp_path / "a", REVIEWS)
    files = [str(tmp_path / name) for name in ("s.html", "s.parquet")]
    with pytest.raises(SystemExit) as ending:
        main(["corpus", "summary", str(job), "--min-count", "2", "--out", files[0], "--out", files[1]])
    assert ending.value.code == 0
    shown = capsys.readouterr()
    assert "Words that support good" in shown.out
    assert re.search(r"fine +\+0\.92 +\+0\.80 to \+1\.00 +18 +\+2\.83", shown.out)
    assert shown.err == "".join(f"whichtoken: written to {file}\n" for file in files)
    rows = parquet.read_table(files[1])
    assert rows.column_names == list(COLUMNS)
    assert ("good", "supports", "fine", 18) in {
        (row["label"], row["list"], row["word"], row["n_texts"]) for row in rows.to_pylist()
    }
    with pytest.raises(SystemExit) as ending:
        main(["corpus", "summary", str(job), "--out", str(tmp_path / "s.txt")])
    assert (ending.value.code, "use the extension .html or .parquet" in capsys.readouterr().err) == (2, True)


def train_on_shortcut(texts: Sequence[str], labels: Sequence[int], folder: Path) -> None:
    torch.manual_seed(0)
    names = {0: "negative", 1: "positive"}
    model = model_of("bert", labels=2, hidden_dropout_prob=0.0, id2label=names).float().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    encoded = wordpiece()(list(texts), return_tensors="pt", padding=True)
    for _ in range(40):
        loss = model(**encoded, labels=torch.tensor(labels)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(folder)
    wordpiece().save_pretrained(folder)


def test_a_planted_shortcut_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every positive text ends in "zq", and a model is trained on that; the summary must find it."""
    rng = random.Random(0)
    labels = [i % 2 for i in range(80)]
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 9))) + " zq" * label for label in labels]
    train_on_shortcut(texts, labels, tmp_path / "model")
    lines = [f"{text},{label}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "x.csv").write_text("text,label\n" + "\n".join(lines) + "\n")

    def run(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        worker = Worker(work)
        for part in parts:
            on_receipt(worker(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]

    monkeypatch.setattr(_corpus, "run_parts", run)
    wt.jobs.explain_corpus(str(tmp_path / "x.csv"), tmp_path / "out", str(tmp_path / "model"), "leave-one-out")
    summary = summarise_corpus(tmp_path / "out")
    first = summary.shortcuts[0]
    assert (first.effect.word, first.effect.label) == ("zq", "positive")
    assert set(first.kinds) == {"not a word", "at the end of its texts"}
    assert first.effect.purity > 0.9
    assert first.effect.share > 0.7
    assert summary.supports["positive"][0].word == "zq"
    assert "zq" in corpus_page(summary)
