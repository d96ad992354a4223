"""s3://: Beam's filesystem, but for listings with ETags, which it leaves out."""

import re
from collections.abc import Iterator
from typing import Any

import boto3  # noqa: F401  # Beam's filesystem imports without it, and fails later
from apache_beam.io.aws.clients.s3.boto3_client import Client
from apache_beam.io.aws.clients.s3.messages import ListRequest, S3ClientError
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.store.storage import BeamStorage, Entry, literal_part


class S3Storage(BeamStorage):
    """Objects of S3 and of what speaks like it."""

    def __init__(self) -> None:
        if FileSystems._pipeline_options is None:  # outside of a command and a worker; Beam's filesystem insists
            FileSystems.set_options(PipelineOptions([]))

    def match(self, pattern: str) -> list[Entry]:
        prefix = literal_part(pattern)
        if prefix == pattern:
            entry = self.stat(pattern)
            return [entry] if entry else []
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        found = [_entry(path, item) for path, item in _listed(prefix) if matches(path) and not path.endswith("/")]
        return sorted(found, key=lambda entry: entry.path)


def _listed(prefix: str) -> Iterator[tuple[str, Any]]:
    bucket, _, start = prefix.removeprefix("s3://").partition("/")
    client, request = Client(FileSystems._pipeline_options), ListRequest(bucket, start)
    while True:
        try:
            page = client.list(request)
        except S3ClientError as error:
            if error.code == 404:  # Beam's word for an empty listing too
                return
            raise
        yield from ((f"s3://{bucket}/{item.key}", item) for item in page.items)
        if not page.next_token:
            return
        request.continuation_token = page.next_token


def _entry(path: str, item: Any) -> Entry:
    return Entry(path, item.size, item.etag, f"{item.size}-{item.etag}")
