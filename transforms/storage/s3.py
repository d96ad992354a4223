"""s3:// through Beam's client, with ETags in listings and writes on condition.

Beam's own filesystem leaves ETags out, makes a client for every call, completes interrupted uploads
and has no conditions. Here the client lives as long as the process.
"""

import contextlib
import copy
import errno
import functools
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from apache_beam.io.aws.clients.s3.boto3_client import Client
from apache_beam.io.aws.clients.s3.messages import GetRequest, Item, S3ClientError
from apache_beam.io.aws.s3io import S3IO
from apache_beam.options.pipeline_options import PipelineOptions
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    ResponseStreamingError,
    SSOError,
    TokenRetrievalError,
)

from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.storage.base import (
    Entry,
    Matched,
    OutsideFileError,
    get_checksum,
    match_file,
    select_between,
    split_url,
)
from sentence_beam.transforms.storage.beam_options import get_filesystem_options
from sentence_beam.transforms.storage.globs import Glob, match_entries
from sentence_beam.transforms.storage.listing import Page, list_objects
from sentence_beam.transforms.storage.ranged import RangedReader

OBJECTS_IN_A_PAGE = 1000  # at most, as the service has it
# The ending of buckets in one zone: they list in no order and cannot start at a name.
UNSORTED = "--x-s3"
MISSING = 404
CONFLICT = 409  # two conditional writes at once; maybe neither was done
CHANGED = 412
OUTSIDE = 416
NOT_IMPLEMENTED = 501
TRIES = 5
MOST_PUT = 5 << 30  # bytes of one request, as the service has it
PART = 256 << 20  # bytes of a part of a larger object; the service takes 10,000 parts
BROKEN_OFF = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
CREDENTIALS_MISSING = (
    CredentialRetrievalError, NoCredentialsError, PartialCredentialsError, ProfileNotFound,
    SSOError, TokenRetrievalError,
)  # fmt: skip
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
UNKNOWN = ("AuthFailure", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch")
ELSEWHERE = (
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
)
CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile of `aws configure` by"
    " AWS_PROFILE"
)


class S3Storage:
    """Objects of S3 and of services with its interface. An object appears whole or not at all.

    Conditions are checked before a write and sent with it, because some services ignore them.
    """

    pins = False

    def match(self, pattern: str, hidden: bool = False) -> Matched:
        glob = Glob(pattern, hidden)
        if glob.is_literal:
            return match_file(self.stat(pattern))
        return match_entries(glob, _list(glob.literal))

    def below(self, folder: str) -> list[Entry]:
        return _list(folder.rstrip("/") + "/")

    def lists_ranges(self, folder: str) -> bool:
        return not split_url(folder)[0].endswith(UNSORTED)

    def between(self, folder: str, low: str, high: str) -> list[Entry]:
        if not self.lists_ranges(folder):
            return select_between(self.below(folder), folder, low, high)
        return _list(folder.rstrip("/") + "/", low, high)

    def stat(self, path: str) -> Entry | None:
        bucket, key = split_url(path)
        if not key:
            return None  # a bucket
        try:
            with _explaining_refusals(path):
                item = copy_shared_client().get_object_metadata(GetRequest(bucket, key))
                return _make_entry(bucket, item)
        except S3ClientError as error:
            if error.code == MISSING:
                return None
            raise

    def open(self, path: str, entry: Entry | None = None) -> BinaryIO:
        entry = entry or self.stat(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        part = functools.partial(_read_part, path, copy_shared_client())
        return cast(BinaryIO, RangedReader(entry.size, part))

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """Return the bytes and the ETag, or None if the object does not exist."""
        bucket, key = split_url(path)
        with _explaining_refusals(path):
            client = copy_shared_client().client
            try:
                return _read_object(client, bucket, key)
            except client.exceptions.NoSuchKey:
                return None
            except ClientError as error:
                # The body of the answer, which would name the error, was lost.
                if error.response["Error"]["Code"] == str(MISSING):
                    return None
                raise

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.stat(path) is None and self._put(path, data, IfNoneMatch="*")

    def checksum_of(self, path: str, data: bytes) -> str:
        return get_checksum(self.stat(path))

    def replace_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Replace the object at this version; equal bytes count as written by a retry."""
        current = self.read_versioned(path)
        if current is None and version is None:
            return self._put(path, data, IfNoneMatch="*")
        if current is None:
            return False
        if current[1] != version:
            return current[0] == data
        return self._put(path, data, IfMatch=version)

    def delete(self, *paths: str) -> None:
        for path, error in S3IO(client=copy_shared_client()).delete_files(list(paths)):
            if error is not None:
                with _explaining_refusals(path):
                    raise error

    def delete_if(self, path: str, version: str) -> bool:
        current = self.read_versioned(path)
        if current is None or current[1] != version:
            return False
        bucket, key = split_url(path)
        with _explaining_refusals(path):
            try:
                copy_shared_client().client.delete_object(Bucket=bucket, Key=key, IfMatch=version)
            except ClientError as error:
                if _read_status(error) in (CONFLICT, CHANGED, MISSING):
                    return False
                raise
        return True

    def _put(self, path: str, data: bytes, **condition: str) -> bool:
        """Write an object on condition; if refused, return whether it holds these bytes by now."""
        bucket, key = split_url(path)
        for attempt in range(TRIES):
            with _explaining_refusals(path):
                try:
                    _write(copy_shared_client().client, bucket, key, data, condition)
                    return True
                except ClientError as error:
                    status = _read_status(error)
                    if status == NOT_IMPLEMENTED and condition:
                        return self._put(path, data)
                    if status == CONFLICT and attempt + 1 < TRIES:
                        continue
                    if (
                        status in (CONFLICT, CHANGED)
                        or error.response["Error"]["Code"] == "NoSuchKey"
                    ):
                        break
                    raise
        current = self.read_versioned(path)
        return current is not None and current[0] == data


def _write(client: Any, bucket: str, key: str, data: bytes, condition: dict[str, str]) -> None:
    """Write an object on condition: by one request, or in parts if it is too large for one."""
    if len(data) <= MOST_PUT:
        client.put_object(Bucket=bucket, Key=key, Body=data, **condition)
        return
    upload = {
        "Bucket": bucket,
        "Key": key,
        "UploadId": client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"],
    }
    view = memoryview(data)
    parts = []
    try:
        for number, start in enumerate(range(0, len(data), PART), 1):
            body = bytes(view[start : start + PART])
            answer = client.upload_part(**upload, PartNumber=number, Body=body)
            parts.append({"ETag": answer["ETag"], "PartNumber": number})
        client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **condition)
    except (BotoCoreError, ClientError):
        # parts of an upload that never ends are paid for
        with contextlib.suppress(BotoCoreError, ClientError):
            client.abort_multipart_upload(**upload)
        raise


def _read_part(path: str, client: Any, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of an object.

    If a connection breaks, the client returns the bytes that arrived; the rest is requested again.
    """
    data = b""
    with _explaining_refusals(path):
        for _ in range(TRIES):
            data += _read_range(path, client, start + len(data), stop)
            if len(data) >= stop - start:
                break
    return data


def _read_range(path: str, client: Any, start: int, stop: int) -> bytes:
    """Return bytes of an object in one request. Raises OutsideFileError if it has none of them."""
    try:
        data: bytes = client.get_range(GetRequest(*split_url(path)), start, stop)
    except S3ClientError as error:
        if error.code != OUTSIDE:
            raise
        raise OutsideFileError(errno.EINVAL, "it ends before the bytes requested", path) from error
    return data


def _read_object(client: Any, bucket: str, key: str) -> tuple[bytes, str]:
    """Return an object's bytes and ETag; retry if the connection breaks, as the client does not."""
    for _ in range(TRIES - 1):
        response = client.get_object(Bucket=bucket, Key=key)
        with contextlib.suppress(*BROKEN_OFF):
            return response["Body"].read(), response["ETag"]
    response = client.get_object(Bucket=bucket, Key=key)
    return response["Body"].read(), response["ETag"]


def _list(prefix: str, low: str = "", high: str = "") -> list[Entry]:
    bucket, start = split_url(prefix)
    with _explaining_refusals(prefix):
        if bucket.endswith(UNSORTED):
            pages = _iterate_pages(bucket, start)
            entries = [_make_entry(bucket, item) for items, _ in pages for item in items]
        else:
            entries = list_objects(functools.partial(_list_page, bucket, start), start, low, high)
    files = (entry for entry in entries if not entry.path.endswith("/"))
    return sorted(files, key=lambda entry: entry.path)


def _list_page(bucket: str, prefix: str, after: str, upto: str) -> Page[Entry]:
    """Return the first objects of a prefix whose names lie in (after, upto]; "" is no bound."""
    for items, more in _iterate_pages(bucket, prefix, after):
        last = items[-1].key if items else ""
        if last > after or not more:  # some services ignore the start
            within = (item for item in items if item.key > after and not (upto and item.key > upto))
            entries = [_make_entry(bucket, item) for item in within]
            return Page(entries, last, more and not (upto and last >= upto))
    raise AssertionError("the last page has no successor")


def _iterate_pages(bucket: str, prefix: str, after: str = "") -> Iterator[tuple[list[Item], bool]]:
    """Yield the pages of a listing after a name, each with whether there are more."""
    begin = {}
    if after:
        begin["StartAfter"] = after
    paginator = copy_shared_client().client.get_paginator("list_objects_v2")
    size = {"PageSize": OBJECTS_IN_A_PAGE}
    for page in paginator.paginate(Bucket=bucket, Prefix=prefix, PaginationConfig=size, **begin):
        items = [
            Item(x["ETag"], x["Key"], x["LastModified"], x["Size"])
            for x in page.get("Contents", ())
        ]
        yield items, page["IsTruncated"]


def _make_entry(bucket: str, item: Any) -> Entry:
    path = f"s3://{bucket}/{item.key}"
    version = f"{item.size}-{item.etag}"
    return Entry(path, item.size, item.etag, version, item.last_modified.timestamp())


def copy_shared_client() -> Any:
    """Return a client for one reader, since Beam's holds its stream; connections are shared."""
    return copy.copy(make_shared_client(os.getpid()))


@functools.lru_cache(1)
@keep_root_logger()
def make_shared_client(process: int) -> Any:
    """Return the client whose connections all readers of a process share."""
    return Client(get_filesystem_options() or PipelineOptions([]))


@contextlib.contextmanager
def _explaining_refusals(path: str) -> Iterator[None]:
    """Turn refusals into one line that says what mends them."""
    try:
        yield
    except (BotoCoreError, S3ClientError, ClientError) as error:
        refusal = _explain(error)
        if refusal is None:
            raise
        raise SentenceBeamError(f"{path}: {refusal}") from error


def _explain(error: Exception) -> str | None:
    """Return what is wrong and what mends it; None for other errors, such as a missing object."""
    # Beam keeps only the text of the cause
    cause = error.__context__ if isinstance(error, S3ClientError) else error
    if not isinstance(cause, ClientError):
        return _explain_unsent(cause)
    code = str(cause.response["Error"]["Code"])
    status = _read_status(cause)
    refusal = _explain_credentials(code, status) or _explain_access(code, status)
    if refusal is not None:
        return refusal
    if code == "NoSuchBucket" or (status == MISSING and cause is error):
        return "there is no such bucket (404); create it or mend the path"
    return None


def _explain_unsent(cause: BaseException | None) -> str | None:
    """Return why no request was sent, and what mends it."""
    if isinstance(cause, CREDENTIALS_MISSING):
        return f"no AWS credentials ({first_line(cause).rstrip('.')}); {CREDENTIALS}"
    if isinstance(cause, ParamValidationError):
        return "that can be no bucket's name; write s3://bucket/folder"
    if isinstance(cause, BotoCoreError):
        return f"{first_line(cause)}; see the AWS credentials, region and endpoint"
    return None


def _explain_credentials(code: str, status: int) -> str | None:
    """Return what is wrong with the credentials that were sent, and what mends it."""
    if code in EXPIRED:
        return (
            f"the AWS credentials have expired ({code}); sign in again (`aws sso login`), or"
            f" {CREDENTIALS}"
        )
    if code in UNKNOWN or status == 401:
        return f"the AWS credentials are refused ({code}); {CREDENTIALS}"
    return None


def _explain_access(code: str, status: int) -> str | None:
    """Return why these credentials cannot reach the bucket, and what mends it."""
    if code in ELSEWHERE or status == 301:
        return f"the bucket is in another region ({code}); set AWS_DEFAULT_REGION to that"
    if status == 403:
        return "permission denied (403); the account needs Get, Put, List, Delete"
    if code == "400":  # the answer to HEAD has no body that could say more
        return (
            f"bad request (400): expired credentials, or another region; {CREDENTIALS}, or set"
            " AWS_DEFAULT_REGION"
        )
    return None


def _read_status(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]
