"""Files are whole or not there."""

import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forked import forked

from whichtoken.atomic_write import check_writable, clear_abandoned, open_whole, write_folder, write_whole
from whichtoken.errors import UsageError
from whichtoken.tables import BenchTable, Trend


def test_an_error_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), open_whole(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    path, plain = tmp_path / "out.txt", tmp_path / "plain.txt"
    plain.write_text("")
    write_whole(path, b"new")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write_whole(path, b"newer")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_bytes() == b"newer"


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_whole(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    write_whole(os.devnull, "nothing")
    assert Path(os.devnull).is_char_device()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where even root cannot make files")
def test_a_folder_that_takes_no_files_is_an_error_too() -> None:
    with pytest.raises(UsageError, match=r"whichtoken\.html cannot be written"):
        write_whole("/proc/whichtoken.html", "x")


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path, "is a folder; give the name of a file"),
        (tmp_path / "nowhere" / "x", "there is no folder"),
    ):
        with pytest.raises(UsageError, match=message):
            check_writable(path)


def test_a_full_disk_is_said_before_the_work(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    def attempt() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as if the disk were full
        for path in (folder / "new", tmp_path / "old"):
            with pytest.raises(UsageError, match=rf"^{path} cannot be written: File too large$"):
                check_writable(path)

    (tmp_path / "old").touch()
    assert forked(attempt) == 0
    assert not list(folder.iterdir())
    check_writable(folder / "new")
    check_writable(os.devnull)
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no permission"):
        check_writable(tmp_path / "x")


def test_a_folder_takes_its_place_whole_with_the_usual_modes(tmp_path: Path) -> None:
    target, plain = tmp_path / "made", tmp_path / "plain"
    plain.mkdir()
    (plain / "file").write_text("")
    with write_folder(target) as beside:
        (beside / "file").write_text("new")
        (beside / "file").chmod(0o600)
        assert not target.exists()
    assert target.stat().st_mode == plain.stat().st_mode
    assert (target / "file").stat().st_mode == (plain / "file").stat().st_mode
    assert (target / "file").read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [target, plain]


def test_the_umask_of_the_process_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: files that other threads create meanwhile would get other permissions."""

    def refuse(mask: int) -> int:
        raise AssertionError("the umask was changed")

    before = os.umask(0o027)
    try:
        (tmp_path / "plain").mkdir()
        (tmp_path / "plain" / "file").write_text("")
        with monkeypatch.context() as patch:
            patch.setattr("os.umask", refuse)
            write_whole(tmp_path / "file", "new")
            with write_folder(tmp_path / "made") as beside:
                (beside / "file").write_text("new")
                (beside / "file").chmod(0o600)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("plain/file", "file", "made/file", "plain", "made")]
    assert modes == [0o640, 0o640, 0o640, 0o750, 0o750]


def test_a_private_file_is_never_readable_by_others_while_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o600)
    with open_whole(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for name in ("old", "new"):
        with write_folder(target) as beside:
            (beside / name).write_text(name)
    assert os.listdir(target) == ["new"]
    with pytest.raises(ZeroDivisionError), write_folder(target) as beside:
        (beside / "half").write_text("x" * (1 // 0))
    assert os.listdir(target) == ["new"]
    assert os.listdir(tmp_path) == ["made"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with write_folder(tmp_path / "link") as beside:
        (beside / "file").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"


def test_everything_reaches_the_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(os.fstat(file).st_ino))
    write_whole(tmp_path / "file", "x")
    with write_folder(tmp_path / "made") as beside:
        (beside / "one").write_text("1")
        (beside / "two").write_text("2")
    paths = [tmp_path / "file", tmp_path / "made" / "one", tmp_path / "made" / "two"]
    assert sorted(synced) == sorted(path.stat().st_ino for path in paths)


def abandoned(folder: Path) -> list[Path]:
    """What killed processes left: two temporary files, a folder half written, and one that was being replaced."""
    files = [folder / ".out.txt.abcd_123.whichtoken-new", folder / ".other.json.00000000.whichtoken-new"]
    for file in files:
        file.write_text("half")
    half, old = folder / ".made.abcdefgh.whichtoken-new", folder / ".gone.abcdefgh.whichtoken-old"
    for path in (half, old / "gone"):
        path.mkdir(parents=True)
        (path / "file").write_text("kept")
    return [*files, half, old]


@pytest.mark.parametrize("how", ["file", "folder"])
def test_what_a_killed_process_left_is_cleared_by_the_next_write(how: str, tmp_path: Path) -> None:
    abandoned(tmp_path)
    if how == "file":
        write_whole(tmp_path / "new", "x")
    else:
        with write_folder(tmp_path / "new"):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"new", "gone"}
    assert (tmp_path / "gone" / "file").read_text() == "kept"  # it was being replaced, and its successor is not there


def test_a_folder_that_has_a_successor_is_not_put_back(tmp_path: Path) -> None:
    abandoned(tmp_path)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "file").write_text("newer")
    clear_abandoned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["gone"]
    assert (tmp_path / "gone" / "file").read_text() == "newer"


def test_what_a_living_process_is_writing_stays(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "old").write_text("old")
    with open_whole(tmp_path / "out.txt") as file, write_folder(tmp_path / "made") as beside:
        file.write(b"one")
        (beside / "new").write_text("new")
        before = set(tmp_path.iterdir())
        assert forked(lambda: write_whole(tmp_path / "out.txt", "other")) == 0  # another process, in the same folder
        clear_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == before | {tmp_path / "out.txt"}
    assert (tmp_path / "out.txt").read_text() == "one"  # the last to finish
    assert {path.name for path in tmp_path.iterdir()} == {"made", "out.txt"}
    assert os.listdir(tmp_path / "made") == ["new"]


def test_files_of_the_user_and_links_are_not_cleared(tmp_path: Path) -> None:
    for name in (".out.abcdefgh", ".config.20240101.old", "x.abcdefgh.whichtoken-new", ".x.abcdefg.whichtoken-new"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "target").mkdir()
    (tmp_path / ".x.abcdefgh.whichtoken-new").symlink_to("target")
    before = set(tmp_path.iterdir())
    clear_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == before
    clear_abandoned(tmp_path / "nowhere")


def test_a_process_killed_while_it_writes_leaves_what_the_next_one_clears(tmp_path: Path) -> None:
    def write_half() -> None:
        with open_whole(tmp_path / "out.txt") as file:
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(write_half) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    write_whole(tmp_path / "another.txt", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["another.txt"]


def limited(work: Callable[[], object], tmp_path: Path) -> str:
    """What a process says that may write files of 4 kB: as if the disk were full then. Empty if it could."""

    def attempt() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            work()
        except UsageError as error:
            (tmp_path / "said").write_text(str(error))

    assert forked(attempt) == 0
    return (tmp_path / "said").read_text() if (tmp_path / "said").exists() else ""


def write_rows(path: Path) -> None:
    from whichtoken.bench.folder import _write_rows

    source = random.Random(0)
    _write_rows([{"value": source.random()} for _ in range(10_000)], path)


def write_figure(path: Path) -> None:
    from whichtoken.render.charts import curves

    curves(BenchTable("t", (), (), (), (Trend("aopc", "morf", "delete", (0.0, 0.5), {"a": (0.0, 1.0)}),)), path)


def write_library(path: Path) -> None:
    with write_folder(path) as beside:
        (beside / "file").write_bytes(bytes(10_000))


FULL: dict[str, Callable[[Path], object]] = {
    "text": lambda path: write_whole(path, "x" * 10_000),
    "parquet.parquet": write_rows,
    "figure.png": write_figure,
    "folder": write_library,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "figure.png")) for name in FULL]
)
def test_a_full_disk_is_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    said = limited(lambda: FULL[name](folder / name), tmp_path)
    assert said == f"{folder / name} cannot be written: File too large"
    assert not list(folder.iterdir())
    FULL[name](folder / name)
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_full_device_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^/dev/full cannot be written: No space left on device$"):
        write_whole("/dev/full", "x")


def test_text_that_is_none_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"out\.txt cannot be written: it holds '\\ud800', half of a surrogate pair"):
        write_whole(tmp_path / "out.txt", "a\ud800")
    assert not list(tmp_path.iterdir())


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("x" * 255), "x")
    write_whole(tmp_path / ("é" * 127), "x")
    assert len(list(tmp_path.iterdir())) == 2
