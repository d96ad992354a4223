"""Storage: write once, replace only what was read, on local disk and through Beam's filesystems.

Covers transforms/storage/base.py.
Covers transforms/storage/dispatch.py.
Covers transforms/storage/local.py.
"""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem, MatchResult
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import match_inputs
from sentence_beam.transforms.storage.local import LocalStorage

BLOBS: dict[str, bytes] = {}


class _Upload(io.BytesIO):
    def __init__(self, path: str):
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            BLOBS[self._path] = self.getvalue()
        super().close()


class MemoryFileSystem(FileSystem):
    """mem://, as a stand-in for an object store without conditional writes."""

    def __init__(self, pipeline_options: PipelineOptions):
        super().__init__(pipeline_options)
        pipeline_options.view_as(PipelineOptions)  # as Azure's does

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath, *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        yield from (
            FileMetadata(path, len(data))
            for path, data in BLOBS.items()
            if path.startswith(dir_or_prefix)
        )

    def match(self, patterns: list[str], limits: list[int] | None = None) -> list[MatchResult]:
        import re

        found = []
        for pattern in patterns:
            expression = re.compile(self.translate_pattern(pattern))
            found.append(
                MatchResult(pattern, [m for m in self._list("mem://") if expression.match(m.path)])
            )
        return found

    def create(self, path: str, mime_type: str = "", compression_type: str = "") -> io.BytesIO:
        return _Upload(path)

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> io.BytesIO:
        return io.BytesIO(BLOBS[path])

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise NotImplementedError

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        return path in BLOBS

    def size(self, path: str) -> int:
        return len(BLOBS[path])

    def last_updated(self, path: str) -> float:
        return 0.0

    def checksum(self, path: str) -> str:
        import zlib

        return str(zlib.crc32(BLOBS[path]))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, len(BLOBS[path]))

    def delete(self, paths: list[str]) -> None:
        missing = [path for path in paths if BLOBS.pop(path, None) is None]
        if missing:
            raise BeamIOError(
                "Delete operation failed", dict.fromkeys(missing, FileNotFoundError())
            )


@pytest.fixture(params=["local", "mem", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder to write in, on each kind of storage."""
    BLOBS.clear()
    if request.param == "gs":
        return request.getfixturevalue("gs")
    return str(tmp_path) if request.param == "local" else "mem://bucket"


def test_put_if_absent_never_writes_over(root: str) -> None:
    path = storage.join(root, "deep", "a.bin")
    store = storage.storage_of(path)
    assert store.put_if_absent(path, b"first")
    assert not store.put_if_absent(path, b"second")
    assert storage.read_bytes(path) == b"first"


def test_ensure_replaces_other_bytes_and_leaves_equal_ones(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = storage.join(root, "deep", "a.bin")
    for data in (b"first", b"second"):
        storage.ensure(path, data)
        assert storage.read_bytes(path) == data
    monkeypatch.setattr(
        type(storage.storage_of(path)), "replace_if", lambda *_: pytest.fail("written again")
    )
    storage.ensure(path, b"second")


def test_ensure_says_so_where_it_never_gets_to_write(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "none")
    with pytest.raises(OSError, match=r"/a can be neither written nor read"):
        storage.ensure(str(tmp_path / "a"), b"x")


def test_replace_if_needs_the_version_that_was_read(root: str) -> None:
    path = storage.join(root, "pointer.json")
    store = storage.storage_of(path)
    assert store.read_versioned(path) is None
    assert store.replace_if(path, b"one", None)
    assert not store.replace_if(path, b"two", None)
    data, version = store.read_versioned(path) or (b"", "")
    assert data == b"one"
    assert store.replace_if(path, b"two", version)
    assert not store.replace_if(path, b"three", version)
    assert storage.read_bytes(path) == b"two"


def test_stat_match_open_delete(root: str) -> None:
    paths = [storage.join(root, name) for name in ("b.txt", "a.txt", "c.bin")]
    store = storage.storage_of(paths[0])
    for path in paths:
        store.put_if_absent(path, path.encode())
    assert [e.path for e in store.match(storage.join(root, "*.txt")).files] == [paths[1], paths[0]]
    entry = store.stat(paths[0])
    assert entry is not None
    assert entry.size == len(paths[0])
    with store.open(paths[0]) as f:
        f.seek(2)
        assert f.read(3) == paths[0].encode()[2:5]
    assert storage.sha256_of(paths[0])[1] == entry.size
    store.delete(paths[0])
    store.delete(paths[0])
    assert store.stat(paths[0]) is None


def test_below_lists_everything_in_one_go(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [storage.join(root, "a", name) for name in ("x.json", "deep/er/y.bin", "z.json.tmp-1")]
    store = storage.storage_of(root)
    for path in [*paths, storage.join(root, "ab", "no.json")]:
        store.put_if_absent(path, path.encode())
    monkeypatch.setattr(
        FileSystems, "checksum", lambda path: pytest.fail("a request for every file")
    )
    found = store.below(storage.join(root, "a"))
    assert [(entry.path, entry.size) for entry in found] == [
        (path, len(path)) for path in sorted(paths)
    ]
    assert store.below(storage.join(root, "none")) == []


def test_delete_if_needs_the_version_that_was_read(root: str) -> None:
    path = storage.join(root, "pointer.json")
    store = storage.storage_of(path)
    assert not store.delete_if(path, "1")
    store.put_if_absent(path, b"one")
    _, first = store.read_versioned(path) or (b"", "")
    store.replace_if(path, b"two", first)
    assert not store.delete_if(path, first)
    data, second = store.read_versioned(path) or (b"", "")
    assert data == b"two"
    assert store.delete_if(path, second)
    assert store.read_versioned(path) is None


def test_many_files_are_removed_at_once(root: str) -> None:
    paths = [storage.join(root, f"{i}.txt") for i in range(5)]
    store = storage.storage_of(root)
    for path in paths[:4]:
        store.put_if_absent(path, b"x")
    store.delete(*paths[1:])
    assert [entry.path for entry in store.below(root)] == paths[:1]
    store.delete()


def test_a_local_listing_says_when_a_file_was_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.utime(tmp_path / "a", (5, 7))
    assert [entry.modified for entry in LocalStorage().below(str(tmp_path))] == [7]


@pytest.mark.parametrize("pattern", ["*.txt", "b*", "**", "?.t*"])
def test_a_link_to_nothing_is_named_where_a_pattern_names_it(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone")
    assert LocalStorage().match(str(tmp_path / pattern)).broken == (str(tmp_path / "b.txt"),)
    with pytest.raises(SentenceBeamError, match=r"b\.txt is a link to a file that is not there"):
        match_inputs(str(tmp_path / pattern))
    assert [
        Path(entry.path).name for entry in LocalStorage().match(str(tmp_path / "a*")).files
    ] == ["a.txt"]
    assert LocalStorage().match(str(tmp_path / "b.txt")).files == []


@pytest.mark.parametrize("pattern", ["*/a.txt", "?/**/*.txt", "{b,c}/*"])
def test_a_link_to_nothing_is_named_where_files_of_a_pattern_could_be_behind_it(
    tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.txt").write_text("x")
    (tmp_path / "b").symlink_to(tmp_path / "not mounted")
    with pytest.raises(SentenceBeamError, match=r"b is a link to a folder that does not exist"):
        LocalStorage().match(str(tmp_path / pattern))
    assert len(LocalStorage().match(str(tmp_path / "c*" / "*.txt")).files) == 1
    (tmp_path / "b").rename(tmp_path / ".b")
    assert len(LocalStorage().match(str(tmp_path / pattern)).files) == 1


UNKNOWN = [errno.EACCES, errno.EIO, errno.ESTALE]


@pytest.mark.parametrize("code", UNKNOWN)
@pytest.mark.parametrize(
    "list_files", [lambda place, folder: place.match(f"{folder}/**.txt").files, LocalStorage.below]
)
def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    list_files: Callable[..., list[storage.Entry]],
) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("x")
    (tmp_path / "in" / "deep" / "b.txt").write_text("x")
    _failing(monkeypatch, "scandir", str(tmp_path / "in" / "deep"), code)
    with pytest.raises(SentenceBeamError, match=r"in/deep cannot be read"):
        list_files(LocalStorage(), str(tmp_path / "in"))


@pytest.mark.parametrize("code", UNKNOWN)
def test_a_file_whose_status_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "b.txt"
    path.write_text("x")
    _failing(monkeypatch, "stat", str(path), code)
    for act in (
        lambda: LocalStorage().stat(str(path)),
        lambda: LocalStorage().match(f"{tmp_path}/*"),
    ):
        with pytest.raises(SentenceBeamError, match=r"b\.txt cannot be read"):
            act()


def test_what_went_away_since_it_was_listed_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    _failing(monkeypatch, "stat", str(tmp_path / "b.txt"), errno.ENOENT)
    _failing(monkeypatch, "scandir", str(tmp_path / "deep"), errno.ENOENT)
    assert [Path(entry.path).name for entry in LocalStorage().match(f"{tmp_path}/**").files] == [
        "a.txt"
    ]


def _failing(monkeypatch: pytest.MonkeyPatch, call: str, at: str, code: int) -> None:
    """Let one of the system's calls fail for one path."""
    real = getattr(os, call)

    def failing(path: object, *args: object, **options: object) -> object:
        if path == at:
            raise OSError(code, os.strerror(code), at)
        return real(path, *args, **options)

    monkeypatch.setattr(os, call, failing)


def test_only_folders_that_a_pattern_leads_into_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a/x", "lost+found"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a" / "x" / "1.txt").write_text("x")
    _failing(monkeypatch, "scandir", str(tmp_path / "lost+found"), errno.EACCES)
    for pattern, found in {
        "*.txt": [],
        "a/*/*.txt": ["1.txt"],
        "a**": ["1.txt"],
        "[ab]/?/1.txt": ["1.txt"],
    }.items():
        assert [
            Path(entry.path).name for entry in LocalStorage().match(f"{tmp_path}/{pattern}").files
        ] == found


def test_linked_folders_are_followed_and_never_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("x")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "deep" / "up").symlink_to(tmp_path / "in")
    (tmp_path / "elsewhere" / "self").symlink_to(tmp_path / "elsewhere")
    for pattern in ("**.txt", "*/*.txt"):
        found = [entry.path for entry in LocalStorage().match(f"{tmp_path}/in/{pattern}").files]
        assert found == [f"{tmp_path}/in/link/a.txt"]


def test_links_to_files_are_matched_and_folders_are_not(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to(tmp_path / "folder" / "a.txt")
    (tmp_path / "to-folder.txt").symlink_to(tmp_path / "folder")
    assert [Path(e.path).name for e in LocalStorage().match(str(tmp_path / "*")).files] == [
        "link.txt"
    ]


def test_of_many_writers_at_once_exactly_one_wins(tmp_path: Path) -> None:
    path, store = str(tmp_path / "once"), LocalStorage()
    wins: list[int] = []
    start = threading.Barrier(16)

    def write(number: int, conditional: bool) -> None:
        start.wait()
        done = (
            store.replace_if(path + "r", b"%d" % number, None)
            if conditional
            else store.put_if_absent(path, b"%d" % number)
        )
        if done:
            wins.append(number + 100 * conditional)

    threads = [threading.Thread(target=write, args=(i, i >= 8)) for i in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(w // 100 for w in wins) == [0, 1]
    assert (tmp_path / "once").read_bytes() == b"%d" % next(w for w in wins if w < 100)
    assert not list(tmp_path.glob("*.tmp-*"))


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sentence_beam.transforms.storage.local.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        LocalStorage().put_if_absent(str(tmp_path / "a"), b"x" * 1000)
    assert list(tmp_path.iterdir()) == []


def test_local_version_sees_an_edit_of_equal_length_with_its_time_put_back(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    before, times = LocalStorage().stat(str(path)), path.stat()
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = LocalStorage().stat(str(path))
    assert before is not None
    assert after is not None
    assert before.version != after.version
    # both read the bytes that stand there now
    assert storage.checksum_of(before) == storage.checksum_of(after)


def test_filesystems_that_want_options_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    assert storage.storage_of("mem://a").stat("mem://a/b") is None


def test_a_scheme_without_a_filesystem_says_what_to_install() -> None:
    with pytest.raises(SentenceBeamError, match=r"nosuch://.*no filesystem for nosuch://"):
        storage.storage_of("nosuch://bucket/x")
