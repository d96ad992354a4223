"""A fitted calibration: apply it, write it as files, read it back."""

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from sentence_beam.transforms.base.cores import Cores
from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError, refuse_damage
from sentence_beam.transforms.calibration.calibration_spec import CalibrationSpec, parse_calibration
from sentence_beam.transforms.calibration.methods import APPLY
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.space import Space, canonical_json, sha256_text
from sentence_beam.transforms.space.identity import OUTPUT_FIELDS

FORMAT = "sentence-beam calibration 1"
INFO = "calibration.json"
TENSORS = "calibration.safetensors"
# checksum over the rest of the file, in `fitted_on`
CHECKSUM = "sha256"
BLOCK_ROWS = 64
_CORES = Cores()
_DECIDING = ("method", "parameters", "input_dim", "dim", "tensors")
_KEYS = {"format", *_DECIDING, "digest", "fitted_on", "summary"}


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibration that can be applied.

    `info` is the content of `calibration.json`: `format`, `method` (canonical SPEC), `parameters`,
    `input_dim`, `dim`, `tensors` (sha256 over names, types, shapes and bytes), `digest`,
    `fitted_on` {store, run, manifest, space, n, moments, date}, `summary` (spectrum and figures of
    the fit).
    """

    info: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]

    @cached_property
    def spec(self) -> CalibrationSpec:
        """The method with its parameters."""
        return parse_calibration(self.info["method"])

    @classmethod
    def make(
        cls,
        spec: CalibrationSpec,
        tensors: Mapping[str, np.ndarray],
        widths: tuple[int, int],
        fitted_on: Mapping[str, Any],
        summary: Mapping[str, Any],
    ) -> "Calibration":
        """Make a calibration that was just fitted; `widths` are those of its input and output."""
        info: dict[str, Any] = {
            "format": FORMAT,
            "method": str(spec),
            "parameters": spec.to_json(),
            "input_dim": widths[0],
            "dim": widths[1],
            "tensors": hash_tensors(tensors),
        }
        info |= {"digest": _digest(info), "fitted_on": dict(fitted_on), "summary": dict(summary)}
        return cls(info, tensors)

    @property
    def dim(self) -> int:
        """Width of the calibrated vectors."""
        return self.info["dim"]

    @property
    def digest(self) -> str:
        """sha256 in hex over all that decides vectors: method, parameters, widths and tensors."""
        return self.info["digest"]

    @property
    def pooled_id(self) -> str:
        """Id of the pooled vectors on which it was fitted."""
        return self.info["fitted_on"]["space"]["pooled_id"]

    def fitted_on(self, space: Space) -> "Calibration":
        """Return the calibration as if it had been fitted on vectors of this space."""
        if self.pooled_id == space.pooled_id:
            return self
        fitted_on = {**self.info["fitted_on"], "space": space.to_json()}
        return Calibration({**self.info, "fitted_on": fitted_on}, self.tensors)

    def apply(self, pooled: np.ndarray) -> np.ndarray:
        """Calibrate pooled vectors float32 [n, p] to float32 [n, dim].

        A row's result does not depend on the other rows. Raises `SpaceMismatchError` for vectors
        of another width.
        """
        if pooled.ndim != 2 or pooled.shape[1] != self.info["input_dim"]:
            shape = "x".join(map(str, pooled.shape))
            width = self.info["input_dim"]
            raise SpaceMismatchError(
                f"calibration {self.info['method']} takes vectors of width {width}, not {shape}"
            )
        method = APPLY[self.spec.name]
        out = np.empty((len(pooled), self.dim), np.float32)

        def calibrate(start: int) -> None:
            # The rounding of matrix products depends on their shape: in blocks of one size a row
            # gets the same bits beside any others.
            rows = pooled[start : start + BLOCK_ROWS]
            block = np.zeros((BLOCK_ROWS, pooled.shape[1]), np.float32)
            block[: len(rows)] = rows
            calibrated = method(self.tensors, self.info["parameters"], block)
            out[start : start + len(rows)] = calibrated[: len(rows)]

        deque(_CORES.map(calibrate, range(0, len(pooled), BLOCK_ROWS)), maxlen=0)
        return out

    def to_files(self) -> dict[str, bytes]:
        """Return the names and contents of a folder's files.

        Write them in this order: the last one makes the folder complete.
        """
        data = save({name: np.ascontiguousarray(tensor) for name, tensor in self.tensors.items()})
        fitted_on = {**self.info["fitted_on"], CHECKSUM: _hash_all(self.info)}
        info = {**self.info, "fitted_on": fitted_on}
        text = json.dumps(info, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        return {TENSORS: data, INFO: f"{text}\n".encode()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], where: str = "") -> "Calibration":
        """Read a calibration from the files of a folder (`where`, for messages).

        Raises `OptionError` naming the file that is missing, damaged or changed.
        """
        prefix = f"{where.rstrip('/')}/" if where else ""
        for name in (INFO, TENSORS):
            if name not in files:
                raise OptionError(
                    f"{prefix}{name} is missing; make a calibration with: sentence-beam fit"
                )
        info = parse_info(files[INFO], f"{prefix}{INFO}")
        problem = f"{prefix}{TENSORS} is not the file that {INFO} describes"
        with refuse_damage(problem, "fit the calibration again", OptionError):
            tensors = load(files[TENSORS])
            if hash_tensors(tensors) != info["tensors"]:
                raise ValueError("its digest is another")
        return cls(info, tensors)


def load_calibration(folder: str) -> Calibration:
    """Read the calibration in a local folder.

    Raises `OptionError` naming the file that is missing, damaged or changed.
    """
    paths = [Path(folder).expanduser() / name for name in (INFO, TENSORS)]
    files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    return Calibration.from_files(files, str(folder))


def parse_info(data: bytes, name: str) -> dict[str, Any]:
    """Parse the bytes of a file of this name into `Calibration.info`.

    Raises `OptionError` if they do not describe a calibration, or were changed.
    """
    mend = "fit the calibration again"
    with refuse_damage(f"{name} is not valid JSON", mend, OptionError):
        info = json.loads(data)
    if not isinstance(info, dict) or info.get("format") != FORMAT or set(info) != _KEYS:
        raise OptionError(f"{name} is of another format; {mend}")
    with refuse_damage(f"{name} was changed by hand", mend, OptionError):
        fitted_on = dict(info["fitted_on"])
        checksum = fitted_on.pop(CHECKSUM)
        info = {**info, "fitted_on": fitted_on}
        if info["digest"] != _digest(info) or checksum != _hash_all(info):
            raise ValueError("its digest is another")
        FittedMoments.from_info(info)
    return info


def check_space(info: Mapping[str, Any], space: Space, where: str) -> None:
    """Raise `SpaceMismatchError` if `space` pools otherwise than the space of the fit.

    The message names the fields that differ.
    """
    problem = f"calibration {where} does not say on which space it was fitted"
    with refuse_damage(problem, kind=OptionError):
        fitted = Space.from_json(info["fitted_on"]["space"])
    what = f"calibration {where} was fitted on another space"
    fitted.check(space, what, "fit one on a store of this space", ignoring=OUTPUT_FIELDS)


def hash_tensors(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the sha256 in hex over the tensors' names, types, shapes and bytes.

    It does not depend on the layout of the file.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(canonical_json([name, tensor.dtype.str, list(tensor.shape)]).encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _hash_all(info: Mapping[str, Any]) -> str:
    """Return the sha256 in hex over everything in `info`."""
    return sha256_text(canonical_json(dict(info)))


def _digest(info: Mapping[str, Any]) -> str:
    return sha256_text(canonical_json({key: info[key] for key in _DECIDING}))
