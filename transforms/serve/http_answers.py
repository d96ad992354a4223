"""Answers as JSON, and errors as a status and one line."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.base.plain_values import to_json_value
from sentence_beam.transforms.search import UnknownIdError
from sentence_beam.transforms.serve.question import RefusedError

_LOGGER = logging.getLogger(__name__)


def as_json(
    content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a JSON object on one line."""
    text = json.dumps(to_json_value(content), ensure_ascii=False, allow_nan=False)
    return Response(
        f"{text}\n".encode("utf8", "replace"), status, dict(headers or {}), "application/json"
    )


def explain_error(error: Exception) -> str:
    """Return an error's message on one line, with the type if it is not ours."""
    line = " ".join(str(error).split())
    return line if isinstance(error, SentenceBeamError) else f"{type(error).__name__}: {line}"


def choose_status(error: Exception) -> tuple[int, str]:
    """Return the HTTP status of an error and its line; errors that no user made are logged."""
    line = explain_error(error)
    if isinstance(error, RefusedError):
        return error.status, line
    if isinstance(error, UnknownIdError):
        return 404, line.removeprefix("id: ")
    if isinstance(error, OptionError):
        return 400, line
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    _LOGGER.error("%s", line)
    status = 503 if isinstance(error, SentenceBeamError | OSError) else 500
    return status, line


def make_error_response(error: Exception) -> Response:
    """Return the response for an error: its status and its line as JSON."""
    status, line = choose_status(error)
    headers = {"Retry-After": "1"} if status == 503 else getattr(error, "headers", None)
    return as_json({"error": line}, status, headers)
