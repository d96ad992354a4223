"""A folder of the hub's cache, as people give it to `--model`."""

from pathlib import Path

import pytest
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space import resolve_model, resolve_space


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model's folder in the cache: two snapshots, whose files are links, and a file for main."""
    folder = tmp_path / "models--org--name"
    for number, commit in enumerate(("0a1b", "9f8e")):
        own = save_tiny_model("bert", tmp_path / commit, num_hidden_layers=2 + number)
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for path in own.iterdir():
            (snapshot / path.name).symlink_to(path)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0a1b")
    return folder


def test_the_snapshot_of_main_is_the_model(cached: Path) -> None:
    for commit in ("0a1b", "9f8e"):
        (cached / "refs" / "main").write_text(commit)
        files = resolve_model(str(cached))
        assert files.root == cached / "snapshots" / commit
        given = resolve_space(resolve_model(str(cached / "snapshots" / commit)))
        assert resolve_space(files).id == given.id


def test_without_main_the_snapshots_are_named(cached: Path) -> None:
    main = cached / "refs" / "main"
    main.write_text("77aa\n")
    with pytest.raises(OptionError, match="refs/main names the snapshot '77aa', which is missing"):
        resolve_model(str(cached))
    main.unlink()
    with pytest.raises(
        OptionError, match=f"^{main} is missing, .*; fetch .* or give one of .*: 0a1b, 9f8e$"
    ):
        resolve_model(str(cached))


def test_a_folder_that_is_a_model_may_hold_snapshots(tmp_path: Path) -> None:
    """Of a training, for example."""
    folder = save_tiny_model("bert", tmp_path / "model")
    (folder / "snapshots").mkdir()
    assert resolve_model(str(folder)).root == folder
