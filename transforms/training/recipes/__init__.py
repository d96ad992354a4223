"""Published trainings as TOML files of `train`'s options."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def list_recipes() -> list[str]:
    """Return the names of the recipes."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Path:
    """Return the file of a recipe."""
    return _FOLDER / f"{name}.toml"
