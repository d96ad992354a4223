"""The folder that a training writes as a whole, and the folder of an unfinished training."""

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

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.training.train_options import TrainOptions

RECORD = "training.json"
SETTINGS = "asked.json"
LOCK = "lock"
CHECKPOINTS = "checkpoints"
_AT_FDCWD = -100  # constants of Linux
_RENAME_EXCHANGE = 2


def check_output(options: TrainOptions) -> Path:
    """Return the folder to write.

    Raises OptionError for a URL, a file, and a folder that exists without `--overwrite` or
    `--resume`, or was written by something else.
    """
    if not storage.is_local(options.output):
        raise OptionError(
            f"{cite('output')} {options.output}: a model is written to a local folder; copy it from"
            " there"
        )
    output = Path(storage.absolute(options.output))
    if output.is_file():
        raise OptionError(f"{cite('output')} {options.output} is a file; name a folder")
    exists = output.is_dir() and any(output.iterdir())
    if exists and (options.overwrite or options.resume) and not (output / RECORD).is_file():
        raise OptionError(
            f"{cite('output')} {options.output} exists and no training wrote it; name another"
            " folder"
        )
    if exists and not options.overwrite and not options.resume:
        raise OptionError(
            f"{cite('output')} {options.output} exists; say {cite('overwrite=True')} to replace it,"
            " or name another folder"
        )
    return output


def locate_work(output: Path) -> Path:
    """Return the folder of a training that is not finished."""
    return output.with_name(f"{output.name}.training")


@contextmanager
def working(output: Path, options: TrainOptions, settings: Mapping[str, Any]) -> Iterator[Path]:
    """Lock and yield the folder of a training in progress; it remains if the body fails.

    `settings` is all that decides the result: a training can only resume with the same. Raises
    OptionError if it differs, and for an unfinished training without `--resume` or `--overwrite`.
    """
    work = locate_work(output)
    if work.is_dir() and not options.resume and not options.overwrite:
        raise OptionError(
            f"{work} holds an unfinished training; say {cite('resume=True')} to go on, or"
            f" {cite('overwrite=True')} to begin again"
        )
    if work.is_dir() and any(work.iterdir()) and not (work / LOCK).is_file():
        raise OptionError(
            f"{work}, where checkpoints would go, exists and no training wrote it; name another"
            f" {cite('output')}"
        )
    work.mkdir(parents=True, exist_ok=True)
    with open(work / LOCK, "w") as lock:
        _lock(lock.fileno(), work)
        if options.resume and (work / SETTINGS).is_file():
            _check_same(work, settings)
        else:
            shutil.rmtree(work / CHECKPOINTS, ignore_errors=True)
            _write_whole(work / SETTINGS, json.dumps(settings, indent=2, ensure_ascii=False))
        try:
            yield work
        except BaseException:
            if not is_begun(output):
                shutil.rmtree(work)
            raise
    # rename first: a folder that is half deleted would look like an unfinished training
    done = work.with_name(f"{work.name}-done-{uuid.uuid4().hex}")
    os.rename(work, done)
    shutil.rmtree(done, ignore_errors=True)


def is_begun(output: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((locate_work(output) / CHECKPOINTS).glob("checkpoint-*"))


def is_finished(output: Path, options: TrainOptions, settings: Mapping[str, Any]) -> bool:
    """Whether the same training is finished, so that there is nothing to resume.

    Raises OptionError if the folder holds another training.
    """
    if not options.resume or not (output / RECORD).is_file() or locate_work(output).is_dir():
        return False
    recorded = json.loads((output / RECORD).read_text(encoding="utf8"))
    _refuse_others(str(output), recorded.get("asked", {}), settings)
    return True


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `output` once the body has ended well."""
    temporary = output.with_name(f"{output.name}.tmp-{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            _sync(path)
        _sync(temporary)
        _put(temporary, output)
        _sync(output.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(new: Path, output: Path) -> None:
    """Rename a folder to one that may exist; then the two are exchanged.

    One of them exists at any time.
    """
    if not output.exists():
        os.rename(new, output)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    names = (_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(output))
    if libc.renameat2(*names, _RENAME_EXCHANGE) == 0:
        return
    failed = ctypes.get_errno()
    if failed not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(failed, os.strerror(failed), str(output))
    # the file system cannot exchange names
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


def _check_same(work: Path, settings: Mapping[str, Any]) -> None:
    try:
        recorded = json.loads((work / SETTINGS).read_text(encoding="utf8"))
    except ValueError:
        raise OptionError(
            f"{work / SETTINGS} is damaged; say {cite('overwrite=True')} to begin again"
        ) from None
    _refuse_others(str(work), recorded, settings)


def _refuse_others(folder: str, recorded: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(settings))
    other = next(
        (key for key in sorted({*recorded, *now}) if recorded.get(key) != now.get(key)), None
    )
    if other is not None:
        raise OptionError(
            f"{folder}: its {other.replace('_', ' ')} was {recorded.get(other)}, and is"
            f" {now.get(other)} now; resume with the same, or say {cite('overwrite=True')} to begin"
            " again"
        )


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf8")
    os.replace(temporary, path)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, indented."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


def read_record(output: Path) -> dict[str, Any]:
    """Return the training.json of a finished training."""
    record: dict[str, Any] = json.loads((output / RECORD).read_text(encoding="utf8"))
    return record
