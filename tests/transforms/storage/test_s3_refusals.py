"""What S3 refuses is one line that names the URL and the mend."""

import io
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")

from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, TokenRetrievalError

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.storage import s3

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
    s3._shared.cache_clear()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that has every request answered by a refusal, or fail before it is sent."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    s3._shared.cache_clear()

    def by(said: object, status: int = 400) -> None:
        def respond(request: object, **_: object) -> AWSResponse:
            if isinstance(said, Exception):
                raise said
            head = request.method == "HEAD"  # type: ignore[attr-defined]
            text = "" if head else f"<Error><Code>{said}</Code><Message>no</Message></Error>"
            return AWSResponse(URL, status, {}, Body(text.encode()))

        s3._client().client.meta.events.register("before-send.s3", respond)

    return by


@pytest.mark.parametrize(
    ("said", "status", "line"),
    [
        (NoCredentialsError(), 0, "no AWS credentials (Unable to locate credentials); set AWS_ACCESS_KEY_ID"),
        (TokenRetrievalError(provider="sso", error_msg="Token has expired"), 0, "no AWS credentials (Error when"),
        (EndpointConnectionError(endpoint_url="http://x"), 0, "see the AWS credentials, region and endpoint"),
        ("AccessDenied", 403, "permission denied (403); the account needs Get, Put, List, Delete"),
    ],
)
def test_a_refusal_of_every_request(answer: Callable[..., None], said: object, status: int, line: str) -> None:
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
        ("InvalidAccessKeyId", 403, "the AWS credentials are refused (InvalidAccessKeyId); set AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, "the AWS credentials are refused (SignatureDoesNotMatch)"),
        ("IllegalLocationConstraintException", 400, "is in another region"),
        ("NoSuchBucket", 404, "there is no such bucket (404); create it or mend the path"),
    ],
)
def test_a_refusal_that_says_why(answer: Callable[..., None], said: str, status: int, line: str) -> None:
    answer(said, status)
    for call in (CALLS[0], CALLS[2]):  # the answer to HEAD says nothing
        with pytest.raises(SentenceBeamError) as caught:
            call()
        assert line in str(caught.value)


def test_a_refusal_that_cannot_say_why(answer: Callable[..., None]) -> None:
    answer("", 400)
    with pytest.raises(SentenceBeamError, match=r"bad request \(400\): expired credentials, or another region"):
        CALLS[1]()


def test_a_name_that_no_bucket_has() -> None:
    with pytest.raises(SentenceBeamError, match="that can be no bucket's name; write s3://bucket/folder"):
        storage.storage_of("s3:///a").read_versioned("s3:///a")
