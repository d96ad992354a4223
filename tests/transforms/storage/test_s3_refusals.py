"""What S3 refuses is one line that names the URL and the mend.

Covers transforms/storage/s3.py.
"""

import io
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")

from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    TokenRetrievalError,
)

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage import s3

URL = "s3://bucket/store/manifest.json"
CALLS: list[Callable[[], object]] = [
    lambda: storage.storage_of(URL).read_versioned(URL),
    lambda: storage.storage_of(URL).stat(URL),
    lambda: storage.storage_of(URL).match("s3://bucket/store/*.json"),
    lambda: storage.storage_of(URL).replace_if(URL, b"", None),
]


class Body(io.BytesIO):
    """A body as botocore reads it."""

    def stream(self, size: int = 1 << 16) -> Iterator[bytes]:
        yield self.read()


@pytest.fixture(autouse=True)
def _own_client() -> Iterator[None]:
    """No client is left behind that was made without an environment."""
    yield
    s3.make_shared_client.cache_clear()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that has every request answered by a refusal, or fail before it is sent."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    s3.make_shared_client.cache_clear()

    def by(said: object, status: int = 400) -> None:
        def respond(request: object, **_: object) -> AWSResponse:
            if isinstance(said, Exception):
                raise said
            head = request.method == "HEAD"  # type: ignore[attr-defined]
            text = "" if head else f"<Error><Code>{said}</Code><Message>no</Message></Error>"
            return AWSResponse(URL, status, {"ETag": '"tag"'}, Body(text.encode()))

        s3.copy_shared_client().client.meta.events.register("before-send.s3", respond)

    return by


@pytest.mark.parametrize(
    ("said", "status", "line"),
    [
        (
            NoCredentialsError(),
            0,
            "no AWS credentials (Unable to locate credentials); set AWS_ACCESS_KEY_ID",
        ),
        (
            TokenRetrievalError(provider="sso", error_msg="Token has expired"),
            0,
            "no AWS credentials (Error when",
        ),
        (
            EndpointConnectionError(endpoint_url="http://x"),
            0,
            "see the AWS credentials, region and endpoint",
        ),
        ("AccessDenied", 403, "permission denied (403); the account needs Get, Put, List, Delete"),
    ],
)
def test_a_refusal_of_every_request(
    answer: Callable[..., None], said: object, status: int, line: str
) -> None:
    answer(said, status)
    for call in CALLS:
        with pytest.raises(SentenceBeamError) as caught:
            call()
        assert line in str(caught.value)
        assert str(caught.value).startswith("s3://bucket/store/")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "status", "line"),
    [
        ("ExpiredToken", 400, "the AWS credentials have expired (ExpiredToken); sign in again"),
        (
            "InvalidAccessKeyId",
            403,
            "the AWS credentials are refused (InvalidAccessKeyId); set AWS_ACCESS_KEY_ID",
        ),
        ("SignatureDoesNotMatch", 403, "the AWS credentials are refused (SignatureDoesNotMatch)"),
        ("IllegalLocationConstraintException", 400, "is in another region"),
        ("NoSuchBucket", 404, "there is no such bucket (404); create it or mend the path"),
    ],
)
def test_a_refusal_that_says_why(
    answer: Callable[..., None], said: str, status: int, line: str
) -> None:
    answer(said, status)
    for call in (CALLS[0], CALLS[2]):  # the answer to HEAD says nothing
        with pytest.raises(SentenceBeamError) as caught:
            call()
        assert line in str(caught.value)


def test_a_refusal_that_cannot_say_why(answer: Callable[..., None]) -> None:
    answer("", 400)
    with pytest.raises(
        SentenceBeamError, match=r"bad request \(400\): expired credentials, or another region"
    ):
        CALLS[1]()


def test_a_name_that_no_bucket_has() -> None:
    with pytest.raises(
        SentenceBeamError, match="that can be no bucket's name; write s3://bucket/folder"
    ):
        storage.storage_of("s3:///a").read_versioned("s3:///a")


@pytest.mark.parametrize(("times", "whole"), [(4, True), (5, False)])
def test_bytes_that_break_off_are_asked_for_again(
    answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch, times: int, whole: bool
) -> None:
    left = [times]

    def read(_: object) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise IncompleteReadError(actual_bytes=2, expected_bytes=5)
        return b"whole"

    monkeypatch.setattr("botocore.response.StreamingBody.read", read)
    answer("", 200)
    if whole:
        assert storage.storage_of(URL).read_versioned(URL) == (b"whole", '"tag"')
    else:
        with pytest.raises(SentenceBeamError, match="2 read, but total bytes expected is 5"):
            storage.storage_of(URL).read_versioned(URL)


def test_a_part_that_breaks_off_is_completed(
    answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bytes(range(100))

    def get_range(_: object, request: object, start: int, stop: int) -> bytes:
        return whole[start : start + 30]

    answer("", 200)
    monkeypatch.setattr(type(s3.copy_shared_client()), "get_range", get_range)
    with storage.storage_of(URL).open(URL, storage.Entry(URL, 100, "", "", 0)) as file:
        assert file.fetch(20, 100) == whole[20:]  # type: ignore[attr-defined]
        assert file.read() == whole
