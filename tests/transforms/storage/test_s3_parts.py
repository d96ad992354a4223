"""Objects too large for one request to s3:// are written in parts."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sentence_beam.transforms.storage import s3

DATA = b"0123456789ab!"


class Service:
    """A bucket in memory that refuses the part of one number, if any."""

    def __init__(self, refused: int | None = None):
        self.refused = refused
        self.calls: list[str] = []
        self.parts: dict[int, bytes] = {}
        self.objects: dict[str, bytes] = {}

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        self.calls.append("create")
        return {"UploadId": "u"}

    def upload_part(self, PartNumber: int, Body: bytes, **_: Any) -> dict[str, str]:
        if PartNumber == self.refused:
            error = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
            raise ClientError(error, "UploadPart")
        self.parts[PartNumber] = Body
        return {"ETag": f"e{PartNumber}"}

    def complete_multipart_upload(
        self,
        Key: str,
        MultipartUpload: dict[str, Any],
        **given: str,
    ) -> None:
        assert given["IfNoneMatch"] == "*"
        named = MultipartUpload["Parts"]
        assert named == [{"ETag": f"e{n}", "PartNumber": n} for n in sorted(self.parts)]
        self.objects[Key] = b"".join(self.parts[each["PartNumber"]] for each in named)

    def abort_multipart_upload(self, **_: Any) -> None:
        self.calls.append("abort")

    def put_object(self, Key: str, Body: bytes, **_: Any) -> None:
        self.calls.append("put")
        self.objects[Key] = Body


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "MOST_PUT", 12)
    monkeypatch.setattr(s3, "PART", 5)


def used(monkeypatch: pytest.MonkeyPatch, service: Service) -> s3.S3Storage:
    monkeypatch.setattr(s3, "copy_shared_client", lambda: SimpleNamespace(client=service))
    monkeypatch.setattr(s3.S3Storage, "stat", lambda self, path: None)
    return s3.S3Storage()


def test_a_large_object_is_written_in_parts_and_appears_on_condition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()
    assert used(monkeypatch, service).put_if_absent("s3://bucket/a", DATA)
    assert service.objects == {"a": DATA}
    assert [len(part) for part in service.parts.values()] == [5, 5, 3]
    assert service.calls == ["create"]


def test_an_object_of_the_most_bytes_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    assert used(monkeypatch, service).put_if_absent("s3://bucket/a", DATA[:12])
    assert service.calls == ["put"]


def test_an_upload_that_fails_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(refused=2)
    with pytest.raises(Exception, match="SlowDown"):
        used(monkeypatch, service).put_if_absent("s3://bucket/a", DATA)
    assert service.calls == ["create", "abort"]
    assert not service.objects
