"""The folders of a training: which may be written, what an unfinished one keeps, and the exchange
of the old folder for the new one.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.training.folders import (
    CHECKPOINTS,
    RECORD,
    check_output,
    is_finished,
    locate_work,
    staging,
    working,
)
from sentence_beam.transforms.training.train_options import TrainOptions

SETTINGS = {"model": "m", "batch": 8}


def options(output: Path | str, **values: bool) -> TrainOptions:
    return TrainOptions(("x",), objective="regression", output=str(output), **values)


def trained(output: Path) -> Path:
    """A folder that a training wrote."""
    output.mkdir()
    (output / RECORD).write_text('{"asked": {"model": "m", "batch": 8}}')
    return output


def test_a_new_or_empty_folder_is_written(tmp_path: Path) -> None:
    assert check_output(options(tmp_path / "new")) == tmp_path / "new"
    (tmp_path / "empty").mkdir()
    assert check_output(options(tmp_path / "empty")) == tmp_path / "empty"


def test_a_folder_that_exists_is_replaced_only_if_a_training_wrote_it(tmp_path: Path) -> None:
    output = trained(tmp_path / "model")
    with pytest.raises(OptionError, match="exists; say overwrite=True"):
        check_output(options(output))
    assert check_output(options(output, overwrite=True)) == output
    assert check_output(options(output, resume=True)) == output
    (output / RECORD).unlink()
    (output / "mine.txt").write_text("x")
    with pytest.raises(OptionError, match="no training wrote it"):
        check_output(options(output, overwrite=True))


def test_a_url_and_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a model is written to a local folder"):
        check_output(options("gs://bucket/model"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match="is a file; name a folder"):
        check_output(options(tmp_path / "file"))


def stopped(output: Path, checkpoint: bool = True) -> None:
    """Stop a training after its first checkpoint, or before it."""
    with suppress(KeyboardInterrupt), working(output, options(output), SETTINGS) as work:
        if checkpoint:
            (work / CHECKPOINTS / "checkpoint-1").mkdir(parents=True)
        raise KeyboardInterrupt


def test_a_stopped_training_is_resumed_with_the_same_settings_alone(tmp_path: Path) -> None:
    output = tmp_path / "model"
    stopped(output)
    with (
        pytest.raises(OptionError, match="holds an unfinished training; say resume=True"),
        working(output, options(output), SETTINGS),
    ):
        pass
    with (
        pytest.raises(OptionError, match="its batch was 8, and is 9 now"),
        working(output, options(output, resume=True), {**SETTINGS, "batch": 9}),
    ):
        pass
    with working(output, options(output, resume=True), SETTINGS) as work:
        assert (work / CHECKPOINTS / "checkpoint-1").is_dir()
    assert not locate_work(output).exists()


def test_overwriting_begins_again(tmp_path: Path) -> None:
    output = tmp_path / "model"
    stopped(output)
    with working(output, options(output, overwrite=True), {**SETTINGS, "batch": 9}) as work:
        assert not (work / CHECKPOINTS).exists()


def test_a_training_without_a_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "model", checkpoint=False)
    assert list(tmp_path.iterdir()) == []


def test_damaged_settings_and_a_folder_of_somebody_else_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "model"
    stopped(output)
    (locate_work(output) / "asked.json").write_text("{")
    with (
        pytest.raises(OptionError, match="is damaged; say overwrite=True"),
        working(output, options(output, resume=True), SETTINGS),
    ):
        pass
    other = tmp_path / "other"
    locate_work(other).mkdir()
    (locate_work(other) / "mine.txt").write_text("x")
    with (
        pytest.raises(OptionError, match="exists and no training wrote it"),
        working(other, options(other, overwrite=True), SETTINGS),
    ):
        pass


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    output = tmp_path / "model"
    with (
        working(output, options(output), SETTINGS),
        pytest.raises(SentenceBeamError, match="is written by another training now"),
        working(output, options(output, resume=True), SETTINGS),
    ):
        pass


def test_a_finished_training_has_nothing_to_resume(tmp_path: Path) -> None:
    output = trained(tmp_path / "model")
    assert is_finished(output, options(output, resume=True), SETTINGS)
    assert not is_finished(output, options(output), SETTINGS)
    with pytest.raises(OptionError, match="its model was m, and is other now"):
        is_finished(output, options(output, resume=True), {**SETTINGS, "model": "other"})
    locate_work(output).mkdir()
    assert not is_finished(output, options(output, resume=True), SETTINGS)


def test_the_new_folder_takes_the_old_ones_place_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    output = trained(tmp_path / "model")
    with suppress(KeyboardInterrupt), staging(output) as new:
        (new / "weights").write_text("half")
        raise KeyboardInterrupt
    assert [path.name for path in output.iterdir()] == [RECORD]
    with staging(output) as new:
        (new / "weights").write_text("whole")
        assert (output / RECORD).exists()
    assert [path.name for path in output.iterdir()] == ["weights"]
    assert list(tmp_path.iterdir()) == [output]
