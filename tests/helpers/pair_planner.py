"""Histories in which every pair of items comes together: in one run if that is possible, else in
two in a row.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from helpers.pair_table import (
    COMMANDS,
    ITEMS,
    LASTING,
    PASSING,
    POOLED,
    START,
    Item,
    all_pairs,
    apart,
    reasons,
)

Asked = dict[str, str]
Pairs = set[frozenset[Item]]
# pairs that a run may begin with; items tried as its next one; items of a run
TRIES, SOME, MOST = 12, 40, 9
GATES = ("deletes", "rejects", "bad file")  # values of these refuse a run by themselves


@dataclass
class Planner:
    """Draws runs, and remembers which pairs have not come together yet."""

    seed: int
    uncovered: Pairs = field(default_factory=all_pairs)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @classmethod
    def of_part(cls, part: int, parts: int) -> "Planner":
        """The planner of one of so many equal parts of all pairs, with the part's number as its
        seed.
        """
        return cls(part, set(sorted(all_pairs(), key=sorted)[part::parts]))

    def first_run(self) -> Asked:
        """The options of a new store, one in four other than at first."""
        asked = dict(START)
        wanted = [
            item
            for pair in self.rng.sample(
                sorted(self.uncovered, key=sorted), min(3, len(self.uncovered))
            )
            for item in pair
        ]
        if any(item.option == "limit" for item in wanted):
            asked["limit"] = PASSING["limit"].values[0]
        for name, row in LASTING.items():
            value = self.rng.choice(
                [value for value in row.values if Item(name, value) not in wanted] or [asked[name]]
            )
            is_other = Item(name, asked[name]) in wanted or self.rng.random() < 0.25
            if is_other and not reasons(None, False, {**asked, name: value}):
                asked[name] = value
        return asked

    def next_run(self, held: Mapping[str, str], limited: bool, before: Iterable[Item]) -> Asked:
        """A run over a store with these options, after a run that was given these items."""
        known = held, limited, set(before)
        wanted = sorted(self.uncovered, key=sorted) or sorted(all_pairs(), key=sorted)
        begun = [
            self._of_pair(sorted(pair), *known)
            for pair in self.rng.sample(wanted, min(TRIES, len(wanted)))
        ]
        asked = max(begun, key=lambda asked: len(self._new(asked, *known)))
        if "command" in asked:
            return asked
        for _ in range(MOST - len(asked)):
            some = [
                item
                for item in self.rng.sample(ITEMS, SOME)
                if item.option not in (*asked, "command")
            ]
            more = [asked, *(self._with(asked, item, *known) for item in some)]
            asked = max(more, key=lambda asked: len(self._new(asked, *known)))
        return asked

    def done(
        self, asked: Asked, held: Mapping[str, str], limited: bool, before: Iterable[Item]
    ) -> None:
        """Count the pairs of a run that ended as it should."""
        self.uncovered -= together(asked, held, limited, set(before))

    def _new(
        self, asked: Asked, held: Mapping[str, str], limited: bool, before: set[Item]
    ) -> Pairs:
        return together(asked, held, limited, before) & self.uncovered

    def _of_pair(
        self, pair: list[Item], held: Mapping[str, str], limited: bool, before: set[Item]
    ) -> Asked:
        """A run with both items of a pair, or with one of them where they are apart."""
        first, second = self.rng.sample(pair, 2)
        if apart(first, second):
            commands = [item for item in pair if item.option == "command"]
            wanted = commands[0] if commands and held.get(first.option) == first.value else first
            return self._with({}, wanted, held, limited, before)
        return self._with({first.option: first.value}, second, held, limited, before)

    def _with(
        self, asked: Asked, item: Item, held: Mapping[str, str], limited: bool, before: set[Item]
    ) -> Asked:
        """The run with one item more, and with what that needs; without it if the run is full of
        reasons then.
        """
        if any(apart(item, Item(*other)) for other in asked.items()):
            return asked
        more = {**asked, item.option: item.value}
        pooled = [name for name in more if name in POOLED and more[name] != held.get(name)]
        if pooled and "append" not in more:
            more["reembed"] = "yes"
        if asked and len(more) > 3 and not _may_be(held, limited, more):
            return asked
        return more


def _may_be(held: Mapping[str, str], limited: bool, asked: Asked) -> bool:
    """Whether a run of many items goes through, or is refused by one gate alone."""
    found = reasons(held, limited, asked)
    return not found or (
        len(found) == 1 and len(found[0].options) == 1 and found[0].options <= set(GATES)
    )


def items_of(asked: Mapping[str, str], held: Mapping[str, str] | None) -> set[Item]:
    """The items of a run: lasting options that change, and all others."""
    return {Item(*item) for item in asked.items() if held is None or held.get(item[0]) != item[1]}


def together(asked: Asked, held: Mapping[str, str], limited: bool, before: set[Item]) -> Pairs:
    """The pairs that come together in a run: done by it, or the reason why it is refused."""
    given = items_of(asked, held)
    if "command" in asked:
        command = Item("command", asked["command"])
        return {
            frozenset((command, other))
            for other in {*map(Item._make, held.items()), *before} - {command}
        }
    in_a_row = {
        frozenset((a, b)) for a in before for b in given if a.option != b.option and apart(a, b)
    }
    found = reasons(held, limited, asked)
    pairs = {frozenset(pair) for pair in combinations(given, 2) if not apart(*pair)}
    if not found:
        return in_a_row | {pair for pair in pairs if _shows(pair, asked)}
    if (
        all(len(reason.options) == 1 and reason.options <= set(GATES) for reason in found)
        and len(found) < 3
    ):
        return in_a_row | {
            pair
            for pair in pairs
            if all(reason.options & {item.option for item in pair} for reason in found)
        }
    in_force = {**held, **asked}
    of_two = [sorted(reason.options) for reason in found if len(reason.options) == 2]
    return {frozenset(Item(name, in_force.get(name, "9")) for name in names) for names in of_two}


def _shows(pair: frozenset[Item], asked: Asked) -> bool:
    """Whether a run shows what two items do together: embedding all again hides what others do."""
    names = {item.option for item in pair}
    return "reembed" not in asked or not names.isdisjoint((*POOLED, "reembed"))


def commands_of(values: Iterable[str] = COMMANDS.values) -> list[Item]:
    """The items that are commands of their own."""
    return [Item("command", value) for value in values]
