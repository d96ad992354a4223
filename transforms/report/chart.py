"""Small charts of one number a run: where everything is; `templates/chart.svg` draws it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

WIDTH, HEIGHT = 360, 168
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 24
DOTS = 60  # more runs than this are a line without dots
Box = tuple[float, float, float, float]  # a bar's left edge, top, width and height
UNEVEN = 20  # a largest value so many times the middle one needs a logarithmic axis


@dataclass(frozen=True)
class Series:
    """One number a run, None where there is none, with each run's label; `failed` runs are marked.

    `show` writes a number; `whole` ones are counts, of which there are no fractions to mark.
    """

    labels: Sequence[str]
    values: Sequence[float | None]
    failed: Sequence[bool]
    show: Callable[[float], str]
    whole: bool = False

    @property
    def known(self) -> list[float]:
        """The numbers of the runs that have one."""
        return [value for value in self.values if value is not None]


@dataclass(frozen=True)
class Band:
    """The part of a chart that is one run's: its left edge, middle and width, its label, and its
    value as text.
    """

    x: float
    middle: float
    width: float
    label: str
    shown: str
    failed: bool


@dataclass(frozen=True)
class Chart:
    """A chart in the picture's units from its top left: marks of the axis, what shows the values,
    the runs.

    `line` and `dots` are (x, y), `bars` and the bars below zero, `below`, (x, y, width, height),
    `ticks` (y, text); without ticks nothing is known. The area below a line is filled if the axis
    begins at 0.
    """

    bands: Sequence[Band] = ()
    ticks: Sequence[tuple[float, str]] = ()
    is_log: bool = False
    line: Sequence[tuple[float, float]] = ()
    has_area: bool = False
    dots: Sequence[tuple[float, float]] = ()
    bars: Sequence[Box] = ()
    below: Sequence[Box] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    base: int = HEIGHT - BOTTOM


@dataclass(frozen=True)
class Axis:
    """A vertical axis from `low` to `high`, linear or logarithmic, with the values to mark on
    it.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def marks(self, show: Callable[[float], str]) -> list[tuple[float, str]]:
        """Position and text of each marked value."""
        return [(self.y(tick), show(tick)) for tick in self.ticks]

    def y(self, value: float) -> float:
        """The vertical position of a value, in the picture's units from its top."""
        share = (self._scaled(value) - self._scaled(self.low)) / (
            self._scaled(self.high) - self._scaled(self.low)
        )
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    def _scaled(self, value: float) -> float:
        return math.copysign(math.log1p(abs(value)), value) if self.is_log else value


def is_uneven(values: Sequence[float]) -> bool:
    """Whether one value would flatten all others: a first full run beside small ones."""
    above = sorted(value for value in values if value > 0)
    return len(above) > 2 and above[-1] > UNEVEN * above[len(above) // 2]


def linear_axis(
    values: Sequence[float], from_zero: bool, whole: bool = False, top: float | None = None
) -> Axis:
    """An axis with round marks around the values; `top` is a value that they cannot exceed.

    >>> linear_axis([0, 37], from_zero=True).ticks
    (0.0, 20.0, 40.0)
    """
    low, high = (min(0.0, *values), max(0.0, *values)) if from_zero else (min(values), max(values))
    # rounding is no span
    span = high - low if high - low > 1e-6 * abs(high) else abs(high) * 0.1 or 1.0
    if not from_zero:
        # counts have nothing below zero
        low, high = max(low - span * 0.1, min(low, 0.0)), high + span * 0.1
    if top is not None:
        high = min(high, top)
    step = max(_round_step((high - low or 1.0) / 2), 1.0 if whole else 1e-9)
    first = math.floor(low / step)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    ticks = tuple(round(step * i, 10) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def log_axis(values: Sequence[float]) -> Axis:
    """An axis of powers of ten from zero on, and below zero if values are, with some of the powers
    marked.
    """
    above, below = _power(max(values)), _power(-min(values))
    step = -(-(above + below) // 4)
    ticks = [
        0.0,
        *(10.0**i for i in range(step, above + 1, step)),
        *(-(10.0**i) for i in range(step, below + 1, step)),
    ]
    return Axis(
        -(10.0**below) if below else 0.0,
        10.0**above if above else 0.0,
        tuple(sorted(ticks)),
        is_log=True,
    )


def _power(value: float) -> int:
    """The power of ten that is not below a value; 0 for none above zero."""
    return max(1, math.ceil(math.log10(value + 1))) if value > 0 else 0


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


def line_chart(series: Series, top: float | None = None) -> Chart:
    """The chart of a level: counts from 0 with the area below them, others on an axis around their
    values.
    """
    if not series.known:
        return Chart()
    axis = linear_axis(series.known, from_zero=series.whole, whole=series.whole, top=top)
    points = [
        (_x(i, series), axis.y(value)) for i, value in enumerate(series.values) if value is not None
    ]
    dots = points if len(points) <= DOTS else points[-1:]
    return Chart(
        _bands(series), axis.marks(series.show), line=points, has_area=axis.low == 0, dots=dots
    )


def bar_chart(series: Series) -> Chart:
    """The chart of an amount, as bars from zero."""
    if not series.known:
        return Chart()
    axis = _bar_axis(series.known, series.whole)
    return Chart(_bands(series), axis.marks(series.show), axis.is_log, bars=_bars(series, axis))


def change_chart(more: Series, less: Series) -> Chart:
    """The chart of what came and what went: bars above zero and, for `less`, below it, on one
    axis.
    """
    if not more.known:
        return Chart()
    gone = replace(less, values=[None if value is None else -value for value in less.values])
    axis = _bar_axis([*more.known, *gone.known], more.whole)
    bands = [
        replace(band, shown=f"+{band.shown} \N{MINUS SIGN}{other.shown}")
        if value is not None
        else band
        for band, other, value in zip(_bands(more), _bands(less), more.values, strict=True)
    ]
    marks = [
        (axis.y(tick), f"\N{MINUS SIGN}{more.show(-tick)}" if tick < 0 else more.show(tick))
        for tick in axis.ticks
    ]
    return Chart(bands, marks, axis.is_log, bars=_bars(more, axis), below=_bars(gone, axis))


def _bar_axis(values: Sequence[float], whole: bool) -> Axis:
    """An axis from zero; logarithmic if one value would flatten all others."""
    if is_uneven([abs(value) for value in values]):
        return log_axis(values)
    return linear_axis(values, from_zero=True, whole=whole)


def _bars(series: Series, axis: Axis) -> list[Box]:
    """The bars of a series, from zero to each value."""
    width = round(min(max(_band(series) * 0.7, 0.6), 26), 1)
    zero = axis.y(0)
    bars = []
    for i, value in enumerate(series.values):
        if value:
            y = axis.y(value)
            bars.append(
                (round(_x(i, series) - width / 2, 1), min(y, zero), width, round(abs(zero - y), 1))
            )
    return bars


def _band(series: Series) -> float:
    return (WIDTH - LEFT - RIGHT) / len(series.values)


def _x(i: int, series: Series) -> float:
    return round(LEFT + (i + 0.5) * _band(series), 1)


def _bands(series: Series) -> list[Band]:
    width, found = _band(series), []
    for i, (label, value) in enumerate(zip(series.labels, series.values, strict=True)):
        shown = "failed" if series.failed[i] else "" if value is None else series.show(value)
        left = round(LEFT + i * width, 1)
        found.append(Band(left, _x(i, series), round(width, 1), label, shown, series.failed[i]))
    return found
