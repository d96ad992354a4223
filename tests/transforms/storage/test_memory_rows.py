"""Rows that a program holds, as files that are there for one run."""

import subprocess
import sys
import threading
from pathlib import Path

from sentence_beam.transforms import storage


def test_a_file_is_there_inside_and_nowhere_else() -> None:
    path = f"{storage.ROWS}a 1.parquet"
    with storage.folder_of_rows() as folder:
        Path(folder, "a 1.parquet").write_bytes(b"rows")
        (entry,), beside, *_ = storage.storage_of(path).match(path)
        assert (entry.path, entry.size, beside) == (path, 4, [])
        assert storage.read_bytes(path) == b"rows"
        assert storage.checksum_of(entry) == storage.sha256_of(f"{folder}/a 1.parquet")[0]
        code = f"from sentence_beam.transforms import storage; print(storage.read_bytes({path!r}))"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert child.stdout == "b'rows'\n"
    assert storage.storage_of(path).stat(path) is None
    assert not Path(folder).exists()


def test_rows_of_two_threads_do_not_mix() -> None:
    found = []

    def hold(text: str) -> None:
        with storage.folder_of_rows() as folder:
            Path(folder, "rows").write_text(text)
            found.append((text, storage.read_bytes(f"{storage.ROWS}rows").decode()))

    threads = [threading.Thread(target=hold, args=(text,)) for text in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(own == read for own, read in found)
    assert len(found) == 3
