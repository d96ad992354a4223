"""Answers as JSON, and errors as a status and one line."""

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from transforms.base.errors import OptionError, SentenceBeamError
from transforms.search import UnknownIdError
from transforms.serve.question import RefusedError

_LOGGER = logging.getLogger(__name__)


def as_json(
    content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON object on one line."""
    text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False)
    return Response(
        f"{text}\n".encode("utf8", "replace"), status, dict(headers or {}), "application/json"
    )


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as hex, what is no number as null, all other kinds as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def line_of(error: Exception) -> str:
    """What an error says, on one line; of one that is not ours with its type."""
    line = " ".join(str(error).split())
    return line if isinstance(error, SentenceBeamError) else f"{type(error).__name__}: {line}"


def status_of(error: Exception) -> tuple[int, str]:
    """The HTTP status of an error, and the line that says what is wrong; what is no user's mistake
    is logged.
    """
    line = line_of(error)
    if isinstance(error, RefusedError):
        return error.status, line
    if isinstance(error, UnknownIdError):
        return 404, line.removeprefix("--id: ")
    if isinstance(error, OptionError):
        return 400, line
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    _LOGGER.error("%s", line)
    return 503 if isinstance(error, SentenceBeamError | OSError) else 500, line


def said(error: Exception) -> Response:
    """The answer that an error is."""
    status, line = status_of(error)
    headers = {"Retry-After": "1"} if status == 503 else getattr(error, "headers", None)
    return as_json({"error": line}, status, headers)
