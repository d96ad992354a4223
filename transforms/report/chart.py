"""Layout of small charts and of heat maps, which templates draw."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

WIDTH = 360
HEIGHT = 168
LEFT = 46
RIGHT = 12
TOP = 12
BOTTOM = 24
DOTS = 60  # a line of more runs has a dot at its end only
Box = tuple[float, float, float, float]  # a bar's left edge, top, width and height
UNEVEN = 20  # ratio of largest to median value above which the axis is logarithmic


@dataclass(frozen=True)
class Series:
    """A number for each run, with the run's label; None for unknown numbers.

    `failed` runs are marked. `show` formats a number. `whole` numbers are counts, so that their
    axis marks no fractions.
    """

    labels: Sequence[str]
    values: Sequence[float | None]
    failed: Sequence[bool]
    show: Callable[[float], str]
    whole: bool = False

    @property
    def known(self) -> list[float]:
        """The numbers that are known."""
        return [value for value in self.values if value is not None]


@dataclass(frozen=True)
class Band:
    """A run's part of a chart: left edge `x`, middle and width, the run's label and its value."""

    x: float
    middle: float
    width: float
    label: str
    shown: str
    failed: bool


@dataclass(frozen=True)
class Chart:
    """A chart: bands of the runs, ticks of the axis, and the shapes of the values.

    Positions are in the picture's units from its top left: `line`, `before` (a second line) and
    `dots` as (x, y), `bars` and `below` (the bars below zero) as (x, y, width, height), `ticks` as
    (y, text). A chart without known values has no ticks. `has_area` fills the area below the line.
    """

    bands: Sequence[Band] = ()
    ticks: Sequence[tuple[float, str]] = ()
    is_log: bool = False
    line: Sequence[tuple[float, float]] = ()
    before: Sequence[tuple[float, float]] = ()
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
    """A vertical axis from `low` to `high`, linear or logarithmic, with the values to mark."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def marks(self, show: Callable[[float], str]) -> list[tuple[float, str]]:
        """Return position and text of each marked value."""
        return [(self.y(tick), show(tick)) for tick in self.ticks]

    def y(self, value: float) -> float:
        """Return the vertical position of a value, in the picture's units from its top."""
        low = self._scale(self.low)
        high = self._scale(self.high)
        share = (self._scale(value) - low) / (high - low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    def _scale(self, value: float) -> float:
        return math.copysign(math.log1p(abs(value)), value) if self.is_log else value


def is_uneven(values: Sequence[float]) -> bool:
    """Return whether one value would flatten all others: a first full run beside small ones."""
    above = sorted(value for value in values if value > 0)
    return len(above) > 2 and above[-1] > UNEVEN * above[len(above) // 2]


def make_linear_axis(
    values: Sequence[float], from_zero: bool, whole: bool = False, top: float | None = None
) -> Axis:
    """Return an axis with round marks around the values, which cannot exceed `top`.

    >>> linear_axis([0, 37], from_zero=True).ticks
    (0.0, 20.0, 40.0)
    """
    low, high = _find_limits(values, from_zero)
    if top is not None:
        high = min(high, top)
    least_step = 1.0 if whole else 1e-9
    step = max(_round_step((high - low or 1.0) / 2), least_step)
    first = math.floor(low / step)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    ticks = tuple(round(step * i, 10) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def _find_limits(values: Sequence[float], from_zero: bool) -> tuple[float, float]:
    """Return the least and largest value to show, with a margin if the axis need not begin at 0."""
    low = min(values)
    high = max(values)
    if from_zero:
        return min(0.0, low), max(0.0, high)
    span = high - low
    if span <= 1e-6 * abs(high):  # a rounding error
        span = abs(high) * 0.1 or 1.0
    # values that cannot be negative keep an axis from 0 on
    return max(low - span * 0.1, min(low, 0.0)), high + span * 0.1


def make_log_axis(values: Sequence[float]) -> Axis:
    """Return an axis of powers of ten from zero on, and below zero if there are negative values."""
    above = _find_power(max(values))
    below = _find_power(-min(values))
    step = -(-(above + below) // 4)
    ticks = [0.0]
    ticks += [10.0**i for i in range(step, above + 1, step)]
    ticks += [-(10.0**i) for i in range(step, below + 1, step)]
    low = -(10.0**below) if below else 0.0
    high = 10.0**above if above else 0.0
    return Axis(low, high, tuple(sorted(ticks)), is_log=True)


def _find_power(value: float) -> int:
    """Return the exponent of a power of ten above the value; 0 if the value is not positive."""
    return 0 if value <= 0 else max(1, math.ceil(math.log10(value + 1)))


def _round_step(rough: float) -> float:
    """Return the smallest of 1, 2, 5, 10 times a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


def draw_line_chart(series: Series, top: float | None = None) -> Chart:
    """Return the chart of a level.

    Counts start at 0 with the area below the line filled; other numbers have an axis around them.
    """
    if not series.known:
        return Chart()
    axis = make_linear_axis(series.known, from_zero=series.whole, whole=series.whole, top=top)
    points = _place_points(series, axis)
    dots = points if len(points) <= DOTS else points[-1:]
    return Chart(
        _make_bands(series), axis.marks(series.show), line=points, has_area=axis.low == 0, dots=dots
    )


def draw_compared_chart(before: Series, after: Series) -> Chart:
    """Return the chart of numbers before and after a change, as two lines."""
    values = [*before.known, *after.known]
    if not values:
        return Chart()
    axis = make_linear_axis(values, from_zero=False)
    bands = []
    for i, band in enumerate(_make_bands(after)):
        text = f"{_show_run(before, i)} before, {band.shown} after"
        bands.append(replace(band, shown=text))
    return Chart(
        bands,
        axis.marks(after.show),
        line=_place_points(after, axis),
        before=_place_points(before, axis),
    )


def _place_points(series: Series, axis: Axis) -> list[tuple[float, float]]:
    """Return the places of the known values of a series."""
    values = enumerate(series.values)
    return [(_find_x(i, series), axis.y(value)) for i, value in values if value is not None]


def draw_bar_chart(series: Series) -> Chart:
    """Return the chart of an amount, as bars from zero."""
    if not series.known:
        return Chart()
    axis = _choose_axis(series.known, series.whole)
    bars = _place_bars(series, axis)
    return Chart(_make_bands(series), axis.marks(series.show), axis.is_log, bars=bars)


def draw_change_chart(more: Series, less: Series) -> Chart:
    """Return the chart of additions (`more`, above zero) and removals (`less`, below)."""
    if not more.known:
        return Chart()
    negative = replace(less, values=[value and -value for value in less.values])
    axis = _choose_axis([*more.known, *negative.known], more.whole)
    return Chart(
        _make_change_bands(more, less),
        axis.marks(lambda value: _show_signed(value, more.show)),
        axis.is_log,
        bars=_place_bars(more, axis),
        below=_place_bars(negative, axis),
    )


def _make_change_bands(more: Series, less: Series) -> list[Band]:
    """Return the bands of a chart of changes, whose texts have both numbers."""
    bands = []
    for band, other, value in zip(_make_bands(more), _make_bands(less), more.values, strict=True):
        if value is None:
            bands.append(band)
        else:
            text = f"+{band.shown} \N{MINUS SIGN}{other.shown}"
            bands.append(replace(band, shown=text))
    return bands


def _show_signed(value: float, show: Callable[[float], str]) -> str:
    return f"\N{MINUS SIGN}{show(-value)}" if value < 0 else show(value)


def _choose_axis(values: Sequence[float], whole: bool) -> Axis:
    """Return an axis from zero; logarithmic if one value would flatten all others."""
    if is_uneven([abs(value) for value in values]):
        return make_log_axis(values)
    return make_linear_axis(values, from_zero=True, whole=whole)


def _place_bars(series: Series, axis: Axis) -> list[Box]:
    """Return the bars of a series, from zero to each value; zeros have none."""
    width = round(min(max(_find_band_width(series) * 0.7, 0.6), 26), 1)
    zero = axis.y(0)
    bars = []
    for i, value in enumerate(series.values):
        if value:
            left = round(_find_x(i, series) - width / 2, 1)
            end = axis.y(value)
            bars.append((left, min(end, zero), width, round(abs(zero - end), 1)))
    return bars


def _find_band_width(series: Series) -> float:
    return (WIDTH - LEFT - RIGHT) / len(series.values)


def _find_x(i: int, series: Series) -> float:
    return round(LEFT + (i + 0.5) * _find_band_width(series), 1)


def _make_bands(series: Series) -> list[Band]:
    width = _find_band_width(series)
    bands = []
    for i, label in enumerate(series.labels):
        left = round(LEFT + i * width, 1)
        text = _show_run(series, i)
        bands.append(Band(left, _find_x(i, series), round(width, 1), label, text, series.failed[i]))
    return bands


def _show_run(series: Series, i: int) -> str:
    """Return the number of a run as text, empty if unknown."""
    if series.failed[i]:
        return "failed"
    value = series.values[i]
    return "" if value is None else series.show(value)


@dataclass(frozen=True)
class Cell:
    """A value of a heat map, its place from the least (0) to the most (1), and its name."""

    value: float | None
    share: float
    title: str


@dataclass(frozen=True)
class HeatMap:
    """A heat map: title, remark, names of the columns, and for each row its name and cells.

    `digits` are those of a value.
    """

    title: str
    remark: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]
    digits: int


def heat_map(
    title: str,
    remark: str,
    names: tuple[list[str], list[str]],
    values: Sequence[Sequence[float | None]],
    digits: int,
) -> HeatMap:
    """Return the map of values, a row for each of the first names, a column for each other."""
    present = [value for row in values for value in row if value is not None]
    least = min(present, default=0.0)
    spread = (max(present, default=0.0) - least) or 1.0
    named_rows = []
    for name, row in zip(names[0], values, strict=True):
        cells = []
        for column, value in zip(names[1], row, strict=True):
            share = (value - least) / spread if value is not None else 0.0
            cells.append(Cell(value, share, f"{name}, {column}"))
        named_rows.append((name, cells))
    return HeatMap(title, remark, names[1], named_rows, digits)
