"""Files are whole or not there."""

import os
from pathlib import Path

import pytest

from whichtoken.atomic_write import check_writable, open_whole, write_folder, write_whole
from whichtoken.errors import UsageError


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
