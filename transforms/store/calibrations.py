"""Calibrations as files, and the copy that a store keeps, so that queries get what its rows got."""

import contextlib

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.calibration.calibration import INFO, TENSORS, Calibration
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import CalibrationEntry


def read_calibration(folder: str) -> Calibration:
    """Return the calibration in a folder of any storage.

    Raises OptionError that names the file that is missing or damaged.
    """
    root = storage.absolute(folder)
    store = storage.storage_of(root)
    files = {name: store.read_versioned(storage.join(root, name)) for name in (INFO, TENSORS)}
    return Calibration.from_files(
        {name: file[0] for name, file in files.items() if file is not None}, folder
    )


def keep_calibration(root: str, calibration: Calibration) -> None:
    """Write a calibration into a store, if its copy is missing or damaged."""
    folder = storage.join(root, layout.calibration(calibration.digest))
    with contextlib.suppress(OptionError):
        read_calibration(folder)
        return
    for name, data in calibration.to_files().items():
        storage.replace(storage.join(folder, name), data)


def read_kept_calibration(root: str, space: Space) -> Calibration | None:
    """The store's copy of a space's calibration, None for a space without one.

    Fits on two spaces that come to the same tensors share a copy: it is returned as fitted on this
    space. Raises SentenceBeamError naming the file if it is missing or damaged.
    """
    if space.calibration is None:
        return None
    folder = storage.join(root, layout.calibration(space.calibration))
    try:
        calibration = read_calibration(folder)
        with refuse_damage(
            f"calibration {folder} does not say on which space it was fitted", kind=OptionError
        ):
            return calibration.fitted_on(space)
    except OptionError as error:
        reason = error.message.partition(";")[0]
        raise SentenceBeamError(
            f"{reason}; name the calibration again with embed {cite('calibration')}"
        ) from error


def entry(digest: str | None) -> CalibrationEntry | None:
    """The manifest's entry of a calibration, None for a store without one."""
    return CalibrationEntry(digest, layout.calibration(digest)) if digest else None
