"""Values of kept columns as JSON."""

import base64
import math
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from transforms.base.errors import DataGateError


def json_value(value: Any, where: str) -> Any:
    """A value as JSON: times in ISO 8601, bytes in base64, decimals as text.

    Raises DataGateError for NaN and infinity.

    >>> json_value([date(2026, 3, 1), b"ab", Decimal("1.20"), {"a": None}], "x")
    ['2026-03-01', 'YWI=', '1.20', {'a': None}]
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataGateError(
                f"{where} has {value}, for which JSON has no value; leave the column out or mend it"
            )
        return value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, dict):
        return {str(name): json_value(item, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, where) for item in value]
    return value
