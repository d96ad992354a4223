"""Assign the columns of a file to the roles of an objective: by name, never by order."""

from collections.abc import Sequence

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.training.train_options import (
    CLASSIFICATION,
    COSENT,
    RANKING,
    REGRESSION,
    TRIPLET,
)

LABEL = "label"
SCORE = "score"
NEGATIVE = "negative"
ROLES = {
    CLASSIFICATION: ("text1", "text2", LABEL),
    REGRESSION: ("text1", "text2", SCORE),
    COSENT: ("text1", "text2", SCORE),
    TRIPLET: ("anchor", "positive", NEGATIVE),
    RANKING: ("anchor", "positive", NEGATIVE),
}
VALUES = (LABEL, SCORE)  # the others are texts
OPTIONAL = {RANKING: (NEGATIVE,)}
ALSO: dict[str, tuple[str, ...]] = {  # names in published data
    "text1": ("sentence1", "premise", "question1"),
    "text2": ("sentence2", "hypothesis", "question2"),
    LABEL: ("is_duplicate",),
}


def assign_columns(
    path: str, header: Sequence[str], objective: str, columns: Sequence[str]
) -> dict[str, str]:
    """Return the name of each role's column in a file with this header.

    `columns` names them in the order of the roles; without it a column has its role's name. Raises
    OptionError for a column that is missing or ambiguous.
    """
    twice = next((name for name in header if list(header).count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"{path} has two columns {twice!r}; rename one")
    if columns:
        return _assign_given(path, header, objective, columns)
    columns_by_role = {
        role: name for role in ROLES[objective] if (name := _find(path, header, role)) is not None
    }
    missing = [
        role
        for role in ROLES[objective]
        if role not in columns_by_role and role not in OPTIONAL.get(objective, ())
    ]
    if missing:
        names = ",".join(ROLES[objective])
        for role in OPTIONAL.get(objective, ()):
            names = names.replace(f",{role}", f"[,{role}]")
        raise OptionError(
            f"{path} has no column {_list_names(missing[0])}; its columns: {', '.join(header)}; say"
            f" {cite('columns')} with those for {names}, in this order"
        )
    return columns_by_role


def _assign_given(
    path: str, header: Sequence[str], objective: str, columns: Sequence[str]
) -> dict[str, str]:
    roles = ROLES[objective]
    fewest = len(roles) - len(OPTIONAL.get(objective, ()))
    if not fewest <= len(columns) <= len(roles):
        need = " or ".join(",".join(roles[:count]) for count in range(fewest, len(roles) + 1))
        raise OptionError(
            f"{cite('columns')} {','.join(columns)}: {cite('objective')} {objective} has the roles"
            f" {need}; name each once"
        )
    for name in columns:
        if name not in header:
            raise OptionError(
                f"{path} has no column {name} ({cite('columns')}); its columns: {', '.join(header)}"
            )
    return dict(zip(roles, columns, strict=False))


def _find(path: str, header: Sequence[str], role: str) -> str | None:
    names = [name for name in (role, *ALSO.get(role, ())) if name in header]
    if len(names) > 1:
        raise OptionError(
            f"{path} has both {names[0]} and {names[1]}; say which with {cite('columns')}"
        )
    return names[0] if names else None


def _list_names(role: str) -> str:
    *names, last = (role, *ALSO.get(role, ()))
    return f"{', '.join(names)} or {last}" if names else last
