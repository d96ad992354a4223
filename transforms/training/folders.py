"""The folder that a training writes, whole or not at all, and the one beside it with an unfinished
training.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transforms import storage
from transforms.base.errors import OptionError, SentenceBeamError
from transforms.training.options import TrainOptions

RECORD, ASKED, LOCK, CHECKPOINTS = "training.json", "asked.json", "lock", "checkpoints"
_CURRENT, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def output_of(options: TrainOptions) -> Path:
    """The folder to write. Raises OptionError for a URL, a file, and a folder that the options do
    not speak of.
    """
    if not storage.is_local(options.output):
        raise OptionError(
            f"--output {options.output}: a model is written to a local folder; copy it from there"
        )
    output = Path(storage.absolute(options.output))
    if output.is_file():
        raise OptionError(f"--output {options.output} is a file; name a folder")
    there = output.is_dir() and any(output.iterdir())
    if there and (options.overwrite or options.resume) and not (output / RECORD).is_file():
        raise OptionError(
            f"--output {options.output} is there and no training wrote it; name another folder"
        )
    if there and not options.overwrite and not options.resume:
        raise OptionError(
            f"--output {options.output} is there; say --overwrite to replace it, or name another"
            " folder"
        )
    return output


def work_of(output: Path) -> Path:
    """The folder of a training that is not finished."""
    return output.with_name(f"{output.name}.training")


@contextmanager
def working(output: Path, options: TrainOptions, asked: Mapping[str, Any]) -> Iterator[Path]:
    """The folder of a training under way, which stays there where the body does not end well.

    `asked` is all that decides the result: a training goes on only where that is as it was. Raises
    OptionError where it is not, and where there is an unfinished training of which the options say
    nothing.
    """
    work = work_of(output)
    if work.is_dir() and not options.resume and not options.overwrite:
        raise OptionError(
            f"{work} holds an unfinished training; say --resume to go on, or --overwrite to begin"
            " again"
        )
    if work.is_dir() and any(work.iterdir()) and not (work / LOCK).is_file():
        raise OptionError(
            f"{work}, where checkpoints would go, is there and no training wrote it; name another"
            " --output"
        )
    work.mkdir(parents=True, exist_ok=True)
    with open(work / LOCK, "w") as lock:
        _lock(lock.fileno(), work)
        if options.resume and (work / ASKED).is_file():
            _check_same(work, asked)
        else:
            shutil.rmtree(work / CHECKPOINTS, ignore_errors=True)
            _write(work / ASKED, json.dumps(asked, indent=2, ensure_ascii=False))
        try:
            yield work
        except BaseException:
            if not is_begun(output):
                shutil.rmtree(work)
            raise
    # half a folder would pass for an unfinished training
    done = work.with_name(f"{work.name}-done-{uuid.uuid4().hex}")
    os.rename(work, done)
    shutil.rmtree(done, ignore_errors=True)


def is_begun(output: Path) -> bool:
    """Whether there is a checkpoint to go on from."""
    return any((work_of(output) / CHECKPOINTS).glob("checkpoint-*"))


def is_finished(output: Path, options: TrainOptions, asked: Mapping[str, Any]) -> bool:
    """Whether there is nothing to resume because the folder is there, and of the same training.

    Raises OptionError where it is of another one.
    """
    if not options.resume or not (output / RECORD).is_file() or work_of(output).is_dir():
        return False
    known = json.loads((output / RECORD).read_text(encoding="utf8"))
    _refuse_others(str(output), known.get("asked", {}), asked)
    return True


@contextmanager
def staged(output: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `output` when the body has ended well."""
    temporary = output.with_name(f"{output.name}.tmp-{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            _synced(path)
        _synced(temporary)
        _put(temporary, output)
        _synced(output.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(new: Path, output: Path) -> None:
    """Rename a folder to one that may be there; then both change places, so that one of them is
    always there.
    """
    if not output.exists():
        os.rename(new, output)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_CURRENT, os.fsencode(new), _CURRENT, os.fsencode(output), _EXCHANGE) == 0:
        return
    failed = ctypes.get_errno()
    if failed not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(failed, os.strerror(failed), str(output))
    # a file system that cannot exchange names
    old = output.with_name(f"{output.name}.old-{uuid.uuid4().hex}")
    os.rename(output, old)
    os.rename(new, output)
    shutil.rmtree(old)


def _lock(file: int, work: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SentenceBeamError(
            f"{work} is written by another training now; wait for it, or name another folder"
        ) from None


def _check_same(work: Path, asked: Mapping[str, Any]) -> None:
    try:
        known = json.loads((work / ASKED).read_text(encoding="utf8"))
    except ValueError:
        raise OptionError(f"{work / ASKED} is damaged; say --overwrite to begin again") from None
    _refuse_others(str(work), known, asked)


def _refuse_others(where: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(asked))
    other = next((key for key in sorted({*known, *now}) if known.get(key) != now.get(key)), None)
    if other is not None:
        raise OptionError(
            f"{where}: its {other.replace('_', ' ')} was {known.get(other)}, and is"
            f" {now.get(other)} now; resume with the same, or say --overwrite to begin again"
        )


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf8")
    os.replace(temporary, path)


def _synced(path: Path) -> None:
    """Have the disk keep a file or folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read_record(output: Path) -> dict[str, Any]:
    """The training.json of a finished training."""
    found: dict[str, Any] = json.loads((output / RECORD).read_text(encoding="utf8"))
    return found
