"""gs:// through google-cloud-storage, for the operations that Beam's filesystem lacks.

These are writes on condition that an object is absent or of one generation, listings with
checksums and generations, and readers of one generation. Client and credentials are Beam's
(`--project`, `--impersonate_service_account`, ...).
"""

import base64
import contextlib
import errno
import functools
import hashlib
import mimetypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast

import google.auth
import google_crc32c
from apache_beam.io.gcp.gcsio import create_storage_client
from apache_beam.options.pipeline_options import PipelineOptions
from google.api_core.exceptions import (
    BadRequest,
    Forbidden,
    NotFound,
    PreconditionFailed,
    RequestRangeNotSatisfiable,
    Unauthorized,
)
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from google.cloud.storage import Client
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from sentence_beam.transforms.base.errors import InputChangedError, SentenceBeamError, first_line
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.storage.base import (
    Entry,
    Matched,
    OutsideFileError,
    match_file,
    split_url,
)
from sentence_beam.transforms.storage.beam_options import get_filesystem_options
from sentence_beam.transforms.storage.globs import Glob, match_entries
from sentence_beam.transforms.storage.listing import Page, list_objects
from sentence_beam.transforms.storage.ranged import RangedReader

FIELDS = "items(name,size,crc32c,generation,updated),nextPageToken"
OBJECTS_IN_A_PAGE = 1000  # at most, as the service has it
DELETES_AT_ONCE = 64  # the client keeps as many connections


class GcsStorage:
    """Objects of Google Cloud Storage. An object appears whole or not at all."""

    pins = True

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            return match_file(self.stat(pattern))
        return match_entries(glob, self._list(glob.literal))

    def below(self, folder: str) -> list[Entry]:
        return self._list(folder.rstrip("/") + "/")

    def lists_ranges(self, folder: str) -> bool:
        return True

    def between(self, folder: str, low: str, high: str) -> list[Entry]:
        return self._list(folder.rstrip("/") + "/", low, high)

    def stat(self, path: str) -> Entry | None:
        blob = _get_blob(path)
        return None if blob is None else _make_entry(blob)

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        """Open the object at the entry's generation; it is read by ranges."""
        entry = entry or self.stat(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        generation = int(entry.version) if entry.version else None
        blob = _make_blob(path, generation)
        return cast(BinaryIO, RangedReader(entry.size, functools.partial(_read_part, path, blob)))

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        blob = _make_blob(path)
        try:
            with _explaining_refusals(path):
                data = _download(blob)
                if blob.generation is None:  # some emulators do not send it with the bytes
                    blob.reload(retry=DEFAULT_RETRY)
        except NotFound:
            return None
        return data, str(blob.generation)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._write(path, data, 0)

    def checksum_of(self, path: str, data: bytes) -> str:
        return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        return self._write(path, data, int(version or 0))

    def delete(self, *paths: str) -> None:
        # One by one: the quota counts a batch of a hundred as a hundred deletions.
        with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:
            list(pool.map(self.delete_object, paths))

    def delete_if(self, path: str, version: str) -> bool:
        return self.delete_object(path, int(version))

    def _list(self, prefix: str, low: str = "", high: str = "") -> list[Entry]:
        bucket, start = split_url(prefix)
        with _explaining_refusals(prefix, missing=True):
            entries = list_objects(functools.partial(_list_page, bucket, start), start, low, high)
        return sorted(entries, key=lambda entry: entry.path)

    def _write(self, path: str, data: bytes, generation: int) -> bool:
        blob = _make_blob(path)
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        try:
            with _explaining_refusals(path, missing=True):
                blob.upload_from_string(
                    data, kind, if_generation_match=generation, retry=DEFAULT_RETRY
                )
        except PreconditionFailed:
            # The client retries a write if its answer was lost, and then meets its own object.
            written = _get_blob(path)
            digest = hashlib.md5(data, usedforsecurity=False).digest()
            return written is not None and written.md5_hash == base64.b64encode(digest).decode()
        return True

    def delete_object(self, path: str, generation: int | None = None) -> bool:
        """Delete one object, if given only of that generation; return whether it existed."""
        blob = _make_blob(path)
        try:
            with _explaining_refusals(path):
                blob.delete(if_generation_match=generation, retry=DEFAULT_RETRY)
        except (NotFound, PreconditionFailed):
            return False
        return True


def _list_page(bucket: str, prefix: str, after: str, upto: str) -> Page[Entry]:
    """Return the first objects of a prefix whose names lie in (after, upto]; "" is no bound."""
    low = after and after + "\0"
    high = upto and upto + "\0"
    window = {"start_offset": low or None, "end_offset": high or None}
    blobs = get_process_client().list_blobs(
        bucket,
        prefix=prefix,
        fields=FIELDS,
        page_size=OBJECTS_IN_A_PAGE,
        retry=DEFAULT_RETRY,
        **window,
    )
    page = list(next(blobs.pages, ()))
    # Some emulators ignore the offsets.
    within = (blob for blob in page if low <= blob.name and not (high and blob.name >= high))
    entries = [_make_entry(blob) for blob in within if not blob.name.endswith("/")]
    last = page[-1].name if page else ""
    return Page(entries, last, blobs.next_page_token is not None)


def _make_entry(blob: Any) -> Entry:
    modified = blob.updated.timestamp() if blob.updated is not None else 0.0
    path = f"gs://{blob.bucket.name}/{blob.name}"
    return Entry(path, int(blob.size), blob.crc32c, str(blob.generation), modified)


def _read_part(path: str, blob: Any, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of one generation of an object."""
    try:
        with _explaining_refusals(path):
            return _download(blob, start=start, end=stop - 1)
    except NotFound as error:
        raise InputChangedError(
            f"{path} was replaced or removed while it was read; run again once it stays as it is"
        ) from error
    except RequestRangeNotSatisfiable as error:
        raise OutsideFileError(errno.EINVAL, "it ends before the bytes requested", path) from error


def _download(blob: Any, **part: int) -> bytes:
    """Return the bytes of an object, or a part of them.

    The client's own retries resume a broken download but do not cover the text of a refusal, which
    it reads afterwards.
    """
    download = DEFAULT_RETRY(blob.download_as_bytes)
    return cast(bytes, download(**part, raw_download=True, retry=DEFAULT_RETRY))


def _make_blob(path: str, generation: int | None = None) -> Any:
    bucket, name = split_url(path)
    with _explaining_refusals(path):
        return get_process_client().bucket(bucket).blob(name, generation=generation)


def _get_blob(path: str) -> Any:
    """Return the object with its properties, None if there is no object."""
    bucket, name = split_url(path)
    if not name:
        return None  # a bucket
    with _explaining_refusals(path):
        return get_process_client().bucket(bucket).get_blob(name, retry=DEFAULT_RETRY)


def get_process_client() -> Any:
    """Return the process's client; a forked child must not share its parent's connections."""
    return _make_client(os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST"))


@functools.lru_cache(1)
@keep_root_logger()
def _make_client(process: int, emulator: str | None) -> Any:
    options = get_filesystem_options() or PipelineOptions([])
    try:
        # This fails at once; Beam would try for half a minute and go on without credentials.
        google.auth.default()
        client = create_storage_client(options)
    except DefaultCredentialsError:
        if not emulator:
            raise
        client = Client.create_anonymous_client()
    # The cache would ask for the bucket of every missing object.
    client._bucket_metadata_cache = None
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=DELETES_AT_ONCE))
    return client


@contextlib.contextmanager
def _explaining_refusals(path: str, missing: bool = False) -> Iterator[None]:
    """Turn refusals into one line that says what mends them.

    `missing` is true if a 404 can only mean the bucket.
    """
    bucket = f"gs://{split_url(path)[0]}"
    try:
        yield
    except Forbidden as error:
        raise SentenceBeamError(
            f"{path}: permission denied (403); the account needs the role Storage Object User on"
            f" {bucket}"
        ) from error
    except (Unauthorized, DefaultCredentialsError, RefreshError) as error:
        raise SentenceBeamError(
            f"{path}: no valid Google credentials; run `gcloud auth application-default login`, or"
            " name a service account's file in GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    except BadRequest as error:
        raise SentenceBeamError(
            f"{path}: {bucket} is refused (400, {first_line(error)}); check the name of the bucket"
        ) from error
    except NotFound as error:
        if missing:
            raise SentenceBeamError(
                f"{path}: there is no bucket {bucket} (404); create it or mend the path"
            ) from error
        raise
