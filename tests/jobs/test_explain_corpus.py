"""explain_corpus: shards, manifest, failures; resuming, and refusing what is another job or damaged."""

import gc
import json
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from tests.tiny import CORPUS, model_of, wordpiece

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.errors import BadArtifact, BadInput, LibraryMismatch, ShardFailed, UsageError
from whichtoken.jobs import _corpus
from whichtoken.jobs.explaining import ModelChoice
from whichtoken.jobs.files import CorpusFiles, write_blocks
from whichtoken.jobs.parts import lock_folder
from whichtoken.jobs.shards import COLUMNS, FAILURE_COLUMNS, SCHEMA, hash_texts, read_info, read_shard
from whichtoken.jobs.work import Engine, OnReceipt, Range, Work, Worker

METHODS = "attcat,gradient-x-input"
TEXTS = [f"{CORPUS[i % len(CORPUS)]} {'slow ' * (i % 5)}film" for i in range(11)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are done here, in reverse order; tests/jobs/test_engines.py is about processes."""

    def run(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        worker = Worker(work)
        for part in reversed(parts):
            on_receipt(worker(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]

    monkeypatch.setattr(_corpus, "run_parts", run)


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusFiles:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"nr": f"r{i}", "body": text, "gold": i % 3, "stars": i} for i, text in enumerate(TEXTS)]
    parquet.write_table(pa.Table.from_pylist(rows[:6]), folder / "a.parquet")
    lines = [json.dumps(row) for row in rows[6:]]
    (folder / "b.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CorpusFiles((str(folder / "*"),), ("body",), "gold", "nr", ("stars",))


def explain(corpus: CorpusFiles, out: Path, model: str | ModelChoice, **options: Any) -> wt.jobs.CorpusManifest:
    methods = options.pop("methods", METHODS)
    return wt.jobs.explain_corpus(corpus, out, model, methods, wt.jobs.ExplainOptions(rows_per_part=4, **options))


def read_all(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((out / "shards").iterdir()) for row in parquet.read_table(path).to_pylist()]


def hashes(out: Path) -> dict[str, str]:
    return {path.name: read_info(path).sha256 for path in sorted((out / "shards").iterdir())}


def test_long_reading_says_how_far_it_is(corpus: CorpusFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichtoken.jobs.files.SAY_EVERY", 0.0)
    said: list[str] = []
    write_blocks(corpus, tmp_path / "out", 4, said.append)
    assert said == ["4 rows read", "8 rows read", "11 rows read"]


def test_shards_hold_what_explain_returns(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    manifest = explain(corpus, tmp_path / "out", model)
    rows = read_all(tmp_path / "out")
    assert list(rows[0]) == [*COLUMNS, "stars"]
    assert [(row["row"], row["method"]) for row in rows] == [(i, m) for i in range(11) for m in METHODS.split(",")]
    alone = wt.explain(model, [{"text": text} for text in TEXTS], METHODS)
    for row, expected in zip(rows, [r for result in alone for r in result.values()], strict=True):
        words = expected.words()
        assert row["words"] == [word.text for word in words]
        assert list(zip(row["starts"], row["ends"], strict=True)) == [word.span for word in words]
        assert row["scores"] == pytest.approx([word.score for word in words], rel=1e-4, abs=1e-6)
        assert (row["label"], row["texts"]) == (expected.label, [TEXTS[row["row"]]])
        assert row["probability"] == pytest.approx(expected.probability, rel=1e-5)
        assert row["text_hash"] == hash_texts([TEXTS[row["row"]]])
        assert row["n_tokens"] == len(expected.tokens)
        assert row["correct"] == (row["gold"] == row["predicted"])
    assert {(row["row"], row["id"], row["gold"], row["stars"], row["line"]) for row in rows} == {
        (i, f"r{i}", ["contradiction", "entailment", "neutral"][i % 3], str(i), i if i < 6 else i - 5)
        for i in range(11)
    }
    assert {Path(row["file"]).name for row in rows} == {"a.parquet", "b.jsonl"}
    assert (manifest.n_rows, manifest.n_explained, manifest.n_failed, manifest.n_results) == (11, 11, 0, 22)
    assert manifest.n_tokens == sum(row["n_tokens"] for row in rows) / 2
    assert len({row["settings_hash"] for row in rows}) == 2
    assert wt.jobs.read_manifest(tmp_path / "out") == manifest
    assert dict(manifest.shards) == hashes(tmp_path / "out")
    assert not list((tmp_path / "out" / ".blocks").glob("*.parquet"))


def test_kept_columns_with_names_of_ours_have_names_of_their_own(model: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,method,words,kept_words\na slow film,post,3,x\nthe plot was rare,mail,4,y\n")
    files = CorpusFiles((str(tmp_path / "x.csv"),), keep=("method", "words", "kept_words"))
    explain(files, tmp_path / "out", model, methods="attcat")
    rows = read_all(tmp_path / "out")
    assert list(rows[0]) == [*COLUMNS, "kept_method", "kept_kept_words", "kept_words"]
    assert [row["kept_method"] for row in rows] == ["post", "mail"]
    assert [(row["kept_kept_words"], row["kept_words"]) for row in rows] == [("3", "x"), ("4", "y")]
    assert [row["method"] for row in rows] == ["attcat", "attcat"]
    assert rows[0]["words"] == ["a", "slow", "film"]


def test_the_columns_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert f"Columns of schema {SCHEMA}," in text
    listed = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert set(COLUMNS) <= listed


def test_workers_in_another_folder_find_relative_paths(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_elsewhere(engine: Engine, work: Any, parts: list[Range], on_receipt: OnReceipt) -> None:
        with monkeypatch.context() as patch:
            patch.chdir("/")
            for part in parts:
                on_receipt(Worker(work)(lambda p=part: work.read(*p), part).check())  # type: ignore[misc]

    monkeypatch.setattr(_corpus, "run_parts", run_elsewhere)
    monkeypatch.chdir(Path(model).parent)
    assert explain(corpus, Path("out"), f"./{Path(model).name}", methods="attcat").model == f"./{Path(model).name}"
    shutil.rmtree("out")


def test_texts_need_not_be_stored(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    explain(corpus, tmp_path / "out", model, keeps_text=False, methods="attcat")
    assert {row["texts"] for row in read_all(tmp_path / "out")} == {None}


def test_methods_that_know_how_sure_they_are_have_bounds(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    explain(corpus, tmp_path / "out", model, methods="posterior,attcat")
    for row in read_all(tmp_path / "out"):
        if row["method"] == "posterior":
            assert all(a <= s <= b for a, s, b in zip(row["low"], row["scores"], row["high"], strict=True))
            assert row["additivity"] is not None
        else:
            assert (row["low"], row["high"], row["additivity"]) == (None, None, None)


def test_the_same_job_skips_finished_shards_and_ends_with_the_same_content(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    manifest = explain(corpus, whole, model)

    def stop_after_one(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        Worker(work)(lambda: work.read(*parts[1]), parts[1]).check()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_corpus, "run_parts", stop_after_one)
        with pytest.raises(KeyboardInterrupt):
            explain(corpus, out, model)
    assert not (out / "manifest.json").exists()
    (kept,) = (out / "shards").iterdir()
    before = kept.stat().st_mtime_ns
    seen: list[Any] = []
    engine = Engine(show=lambda progress: seen.append(progress.describe()))
    options = wt.jobs.ExplainOptions(rows_per_part=4)
    assert wt.jobs.explain_corpus(corpus, out, model, METHODS, options, engine) == manifest
    assert kept.stat().st_mtime_ns == before
    assert read_all(out) == read_all(whole)
    assert len(seen) == 2
    assert seen[-1].startswith("11 of 11 rows, ")


def test_shards_are_not_read_again_by_the_run_that_wrote_them(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_corpus, "read_shard", lambda *_: pytest.fail("a shard was read"))
    manifest = explain(corpus, tmp_path / "out", model, methods="attcat")
    assert dict(manifest.shards) == {
        path.name: read_shard(path)[1].sha256 for path in (tmp_path / "out/shards").iterdir()
    }
    with pytest.raises(BadArtifact, match="belongs to another job"):
        read_info(next((tmp_path / "out" / "shards").iterdir()), "another")


def test_a_finished_job_does_nothing(corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: Any) -> None:
    manifest = explain(corpus, tmp_path / "out", model, methods="attcat")
    monkeypatch.setattr(_corpus, "write_blocks", lambda *_: pytest.fail("the rows were read again"))
    monkeypatch.setattr("whichtoken.jobs.explaining.explain_each", lambda *_: pytest.fail("explained again"))
    assert explain(corpus, tmp_path / "out", model, methods="attcat") == manifest


def test_another_job_into_the_same_folder_is_refused(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    explain(corpus, out, model, methods="attcat")
    before = read_all(out)
    for changed in ({"methods": "gradient-x-input"}, {"methods": "attcat", "target": 1}):
        with pytest.raises(UsageError, match="holds another corpus job"):
            explain(corpus, out, model, **changed)
    with pytest.raises(UsageError, match="another corpus job \\(special_tokens was None, now 'text'\\)"):
        explain(corpus, out, ModelChoice(model, special_tokens="text"), methods="attcat")
    more = Path(corpus.patterns[0]).parent / "c.csv"
    more.write_text("nr,body,gold,stars\nr11,slow film,0,1\n")
    with pytest.raises(UsageError, match=r"holds another corpus job \(rows was"):
        explain(corpus, out, model, methods="attcat")
    assert read_all(out) == before
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        explain(corpus, tmp_path / "foreign", model)
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["notes.txt"]


def test_rows_that_are_refused_leave_no_texts_behind(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    explain(corpus, tmp_path / "out", model, methods="attcat", keeps_text=False)
    (Path(corpus.patterns[0]).parent / "c.csv").write_text("nr,body,gold,stars\nr11,slow film,0,1\n")
    with pytest.raises(UsageError, match=r"holds another corpus job \(rows was"):
        explain(corpus, tmp_path / "out", model, methods="attcat", keeps_text=False)
    assert not list((tmp_path / "out" / ".blocks").glob("*.parquet"))


def test_a_folder_below_the_data_is_resumed_and_not_read(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "data")
    below = CorpusFiles(("**/*.*",), ("body",), "gold", "nr", ("stars",))
    manifest = explain(below, Path("out"), model, methods="attcat")
    assert manifest.n_rows == 11
    (tmp_path / "data" / "out" / "shards" / "000004-000007.parquet").unlink()
    assert explain(below, Path("out"), model, methods="attcat") == manifest


def test_files_are_paths_patterns_or_names_with_brackets(tmp_path: Path) -> None:
    names = ["a.txt", "b [1].txt", "c.txt"]
    for name in names:
        (tmp_path / name).write_text("slow film\n")
    for files in (tmp_path / "*.txt", str(tmp_path / "*.txt"), [tmp_path / name for name in names]):
        found = CorpusFiles.of(files, tmp_path / "out")
        assert [path.name for path in found.find()] == names
        assert write_blocks(found, tmp_path / "blocks", 2).n_rows == 3
    with pytest.raises(BadInput, match=r"is a folder; give its files by a pattern such as '.*/\*\.parquet'$"):
        CorpusFiles((str(tmp_path),)).find()


def test_a_damaged_shard_is_refused_with_the_fix(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    explain(corpus, out, model, methods="attcat")
    path = out / "shards" / "000004-000007.parquet"
    whole = path.read_bytes()
    table = parquet.read_table(path)
    changed = table.set_column(0, table.schema.field(0), pa.array([r + 1 for r in table.column(0).to_pylist()]))
    parquet.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(BadArtifact, match=r"was changed after it was saved.*delete this file and run again"):
        explain(corpus, out, model, methods="attcat")
    path.write_bytes(whole[:-20])
    with pytest.raises(BadArtifact, match=r"000004-000007\.parquet cannot be read"):
        explain(corpus, out, model, methods="attcat")
    path.unlink()
    explain(corpus, out, model, methods="attcat")
    assert path.read_bytes() == whole
    shutil.copy(path, out / "shards" / "000000-000003.parquet")
    with pytest.raises(BadArtifact, match="holds rows 4 to 7, which is not what its name says"):
        explain(corpus, out, model, methods="attcat")


def test_the_hash_of_a_shard_covers_every_column_and_the_failures(
    corpus: CorpusFiles, model: str, tmp_path: Path
) -> None:
    explain(corpus, tmp_path / "out", model, methods="posterior")
    path = tmp_path / "out" / "shards" / "000000-000003.parquet"
    table, _ = read_shard(path)
    for place, column in enumerate(table.schema):
        values = table.column(place).to_pylist()
        changed = [None if values[0] is not None else _some(column.type), *values[1:]]
        other = table.set_column(place, column, pa.array(changed, column.type))
        parquet.write_table(other.replace_schema_metadata(table.schema.metadata), path)
        with pytest.raises(BadArtifact, match="does not match its sha256"):
            read_shard(path)
    described = table.schema.metadata[b"whichtoken"].decode()
    failure = '"failures": [{"row": 1, "file": "", "line": 1, "id": null, "reason": ""}]'
    parquet.write_table(
        table.replace_schema_metadata({b"whichtoken": described.replace('"failures": []', failure)}), path
    )
    with pytest.raises(BadArtifact, match="does not match its sha256"):
        read_shard(path)


def _some(kind: Any) -> Any:
    return ["x"] if pa.types.is_list(kind) else "x" if pa.types.is_string(kind) else 0.5


def test_rows_that_fail_are_listed_with_their_reason(model: str, tmp_path: Path) -> None:
    lines = ["text,label", "the film is slow,1", "a,b,c", ",1", "it was a rare plot,0", "won,9"]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    files = CorpusFiles((str(tmp_path / "x.csv"),), label="label")
    manifest = explain(files, tmp_path / "out", model, methods="attcat")
    assert (manifest.n_rows, manifest.n_explained, manifest.n_failed) == (5, 2, 3)
    failures = parquet.read_table(tmp_path / "out" / "failures.parquet")
    assert failures.column_names == list(FAILURE_COLUMNS)
    found = {row["line"]: row["reason"] for row in failures.to_pylist()}
    assert set(found) == {3, 4, 6}
    assert found[3].startswith("expected 2 columns, as in the header, found 3")
    assert found[4].startswith("has an empty text")
    assert found[6].startswith("the gold label '9' is not a label of the model")
    assert {row["row"] for row in read_all(tmp_path / "out")} == {0, 3}
    with pytest.raises(ShardFailed, match=r"--max-failures allows 2.*failures\.parquet lists the rows"):
        explain(files, tmp_path / "other", model, methods="attcat", max_failures=2)
    assert parquet.read_table(tmp_path / "other" / "failures.parquet").equals(failures)
    with pytest.raises(ShardFailed, match="3 rows failed, and --max-failures allows 1"):  # those of the first run
        explain(files, tmp_path / "other", model, methods="attcat", max_failures=1)
    assert explain(files, tmp_path / "other", model, methods="attcat") == manifest


def test_a_label_that_is_nan_is_missing_and_an_infinite_one_is_no_label(model: str, tmp_path: Path) -> None:
    table = pa.table({"text": TEXTS[:3], "label": [float("nan"), 1.0, float("inf")]})
    parquet.write_table(table, tmp_path / "x.parquet")
    files = CorpusFiles((str(tmp_path / "x.parquet"),), label="label")
    manifest = explain(files, tmp_path / "out", model, methods="attcat")
    assert [row["gold"] for row in read_all(tmp_path / "out")] == [None, "entailment"]
    (failed,) = parquet.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    assert (manifest.n_failed, failed["row"]) == (1, 2)
    assert failed["reason"].startswith("the gold label 'inf' is not a label of the model")


def test_a_row_that_makes_the_model_return_nan_fails_alone(tmp_path: Path) -> None:
    made = model_of("bert").float()
    with torch.no_grad():
        made.bert.embeddings.word_embeddings.weight[wordpiece().convert_tokens_to_ids("rare")] = float("nan")
    made.save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    (tmp_path / "x.txt").write_text("the film is slow\nit was a rare plot\nnobody won\n")
    files = CorpusFiles((str(tmp_path / "x.txt"),))
    manifest = explain(files, tmp_path / "out", str(tmp_path / "model"), methods="attcat")
    (failed,) = parquet.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    assert (manifest.n_explained, failed["row"]) == (2, 1)
    assert "gives NaN or infinite logits" in failed["reason"]


def test_files_that_cannot_be_read_are_refused_before_any_work(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    folder = Path(corpus.patterns[0]).parent
    (folder / "c.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-30])
    with pytest.raises(BadInput, match=r"c\.parquet cannot be read"):
        explain(corpus, tmp_path / "out", model)
    parquet.write_table(pa.table({"text": ["slow"]}), folder / "c.parquet")
    with pytest.raises(BadInput, match=r"c\.parquet, row 0: no column 'body'; the columns are text"):
        explain(corpus, tmp_path / "out", model)
    (folder / "c.parquet").unlink()
    (folder / "c.jsonl").write_text('{"nr": "r11", "text": "slow"}\n')  # lines of JSON have columns of their own
    assert explain(corpus, tmp_path / "out", model).n_failed == 1
    with pytest.raises(BadInput, match=r"no file matches .*\*\.csv"):
        explain(CorpusFiles((str(folder / "*.csv"),)), tmp_path / "none", model)
    (folder / "d.jsonl").write_text('{"words": "slow"}\n{"words": "film"}\n')
    with pytest.raises(
        BadInput, match=r"none of the 2 rows can be used; the first is .*no column has a usual name for texts"
    ):
        explain(CorpusFiles((str(folder / "d.jsonl"),)), tmp_path / "none", model)


def test_a_folder_that_cannot_be_written_is_refused(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; give the name of a folder"):
        explain(corpus, tmp_path / "file", model)
    with pytest.raises(UsageError, match="cannot be created"):
        explain(corpus, tmp_path / "file" / "out", model)


def test_two_processes_do_not_work_in_one_folder(corpus: CorpusFiles, model: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        lock_folder(tmp_path / "out"),
        pytest.raises(UsageError, match=r"another process is working in .*out; wait for it"),
    ):
        explain(corpus, tmp_path / "out", model)


def test_a_model_that_changes_meanwhile_is_noticed(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_with_another(engine: Engine, work: Any, parts: list[Range], on_receipt: OnReceipt) -> None:
        model_of("bert", labels=2).float().save_pretrained(work.model.name)
        on_receipt(Worker(work)(lambda: work.read(*parts[0]), parts[0]).check())

    shutil.copytree(model, tmp_path / "model")
    monkeypatch.setattr(_corpus, "run_parts", run_with_another)
    with pytest.raises(LibraryMismatch, match="has changed since the job was planned"):
        explain(corpus, tmp_path / "out", str(tmp_path / "model"))


def test_workers_use_the_gpus_that_are_reserved_for_them_and_the_job_itself_needs_none(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str | None] = []

    def look(engine: Engine, work: Any, parts: list[Range], on_receipt: OnReceipt) -> None:
        devices.append(work.model.device)
        raise KeyboardInterrupt

    monkeypatch.setattr(_corpus, "run_parts", look)
    for number, (engine, device) in enumerate(
        [
            (Engine("ray", gpus_per_worker=0.5), None),
            (Engine("ray", gpus_per_worker=0.5), "cuda:1"),  # which is not on this machine
            (Engine("ray"), None),
        ]
    ):
        choice = wt.jobs.ModelChoice(model, device=device)
        with pytest.raises(KeyboardInterrupt):
            wt.jobs.explain_corpus(corpus, tmp_path / str(number), choice, "attcat", engine=engine)
    assert devices == ["cuda", "cuda:1", None]


def test_the_job_itself_does_not_keep_the_model_while_workers_run(
    corpus: CorpusFiles, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    load = wt.jobs.ModelChoice.open

    def remember(choice: wt.jobs.ModelChoice) -> Any:
        subject = load(choice)
        opened.append(weakref.ref(subject.model))
        return subject

    def look(engine: Engine, work: Work, parts: list[Range], on_receipt: OnReceipt) -> None:
        gc.collect()
        assert [reference() for reference in opened] == [None]
        raise KeyboardInterrupt

    monkeypatch.setattr(wt.jobs.ModelChoice, "open", remember)
    monkeypatch.setattr(_corpus, "run_parts", look)
    with pytest.raises(KeyboardInterrupt):
        explain(corpus, tmp_path / "out", model)


def test_the_command(corpus: CorpusFiles, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", corpus.patterns[0], "--column", "body", "--label", "gold", "--id", "nr", "--keep", "stars"]
    call = ["corpus", "explain", *data, "--model", model, "--method", METHODS, "--out", str(tmp_path / "out")]
    for expected in (0, 0):
        with pytest.raises(SystemExit) as ending:
            main([*call, "--rows-per-part", "4"])
        assert ending.value.code == expected
        said = capsys.readouterr().err
        assert said.startswith("whichtoken: 11 of 11 rows explained, 0 failed; ")
        assert f"22 results in 3 shards, written to {tmp_path / 'out'} in " in said
    without = [word for word in call if word not in ("--method", METHODS)]
    with pytest.raises(SystemExit) as ending:
        main([*without, "-o", "steps=3"])
    assert ending.value.code == 2
    assert "-o steps=3 changes a method; name it with --method" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ending:
        main([*call, "--no-text", "--rows-per-part", "4"])
    assert ending.value.code == 2
    assert "holds another corpus job (keeps_text was True, now False); choose another folder" in capsys.readouterr().err


def test_shards_can_be_read_with_pandas_polars_duckdb_and_datasets(
    corpus: CorpusFiles, model: str, tmp_path: Path
) -> None:
    explain(corpus, tmp_path / "out", model)
    expected = read_all(tmp_path / "out")
    for library in ("pandas", "polars", "duckdb", "datasets"):
        rows = read_with(library, tmp_path / "out")
        assert len(rows) == len(expected) == 22, library
        for row, other in zip(rows, expected, strict=True):
            assert (row["row"], row["method"], row["label"]) == (other["row"], other["method"], other["label"])
            assert list(row["words"]) == other["words"]
            assert [float(score) for score in row["scores"]] == other["scores"]


def read_with(library: str, out: Path) -> list[dict[str, Any]]:
    pattern, rows = str(out / "shards" / "*.parquet"), list[dict[str, Any]]()
    if library == "pandas":
        import pandas as pd

        read = pd.concat(pd.read_parquet(path) for path in sorted((out / "shards").iterdir()))
        rows = read.to_dict("records")
    elif library == "polars":
        import polars as pl

        rows = pl.read_parquet(pattern).to_dicts()
    elif library == "duckdb":
        import duckdb

        found = duckdb.sql(f"SELECT * FROM read_parquet('{pattern}') ORDER BY row, method")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    else:
        from datasets import Dataset

        rows = Dataset.from_parquet(pattern, cache_dir=str(out / "cache")).to_list()
    return rows
