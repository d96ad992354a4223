"""A fitted calibration: what it does, what it was fitted on, as files and back."""

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from transforms.base.cores import Cores
from transforms.base.errors import OptionError, SpaceMismatchError, refuse_damage
from transforms.calibration.methods import APPLY
from transforms.calibration.moved import FittedMoments
from transforms.calibration.spec import CalibrationSpec, parse_calibration
from transforms.space import Space, canonical_json, sha256_text
from transforms.space.identity import OUTPUT_FIELDS

FORMAT = "sentence-beam calibration 1"
INFO = "calibration.json"
TENSORS = "calibration.safetensors"
# in `fitted_on`, where earlier versions pass over it: over all of the file but itself
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
    the fit). `tensors` are what it computes with.
    """

    info: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]

    @classmethod
    def make(
        cls,
        spec: CalibrationSpec,
        tensors: Mapping[str, np.ndarray],
        widths: tuple[int, int],
        fitted_on: Mapping[str, Any],
        summary: Mapping[str, Any],
    ) -> "Calibration":
        """A calibration that was just fitted; `widths` are those of its input and of its output."""
        info: dict[str, Any] = {
            "format": FORMAT,
            "method": str(spec),
            "parameters": spec.to_json(),
            "input_dim": widths[0],
            "dim": widths[1],
            "tensors": tensors_digest(tensors),
        }
        info |= {"digest": _digest(info), "fitted_on": dict(fitted_on), "summary": dict(summary)}
        return cls(info, tensors)

    @property
    def dim(self) -> int:
        """The width of the calibrated vectors."""
        return self.info["dim"]

    @property
    def digest(self) -> str:
        """The sha256 in hex over what decides vectors: method, parameters, widths and tensors."""
        return self.info["digest"]

    @property
    def pooled_id(self) -> str:
        """The id of the pooled vectors on which it was fitted."""
        return self.info["fitted_on"]["space"]["pooled_id"]

    def fitted_on(self, space: Space) -> "Calibration":
        """The same calibration as it would be if it had been fitted on vectors that pool as in this
        space.
        """
        if self.pooled_id == space.pooled_id:
            return self
        fitted_on = {**self.info["fitted_on"], "space": space.to_json()}
        return Calibration({**self.info, "fitted_on": fitted_on}, self.tensors)

    def apply(self, pooled: np.ndarray) -> np.ndarray:
        """Calibrated vectors float32 [n, dim] of pooled vectors float32 [n, p], the same in
        whatever company.

        Raises `SpaceMismatchError` for vectors of another width.
        """
        if pooled.ndim != 2 or pooled.shape[1] != self.info["input_dim"]:
            found, wanted = "x".join(map(str, pooled.shape)), self.info["input_dim"]
            raise SpaceMismatchError(
                f"calibration {self.info['method']} takes vectors of width {wanted}, not {found}"
            )
        method = APPLY[parse_calibration(self.info["method"]).name]
        out = np.empty((len(pooled), self.dim), np.float32)

        def calibrate(start: int) -> None:
            # Matrix products round by their shape: blocks of one size give a row the same bits
            # among any others.
            rows, block = (
                pooled[start : start + BLOCK_ROWS],
                np.zeros((BLOCK_ROWS, pooled.shape[1]), np.float32),
            )
            block[: len(rows)] = rows
            out[start : start + len(rows)] = method(self.tensors, self.info["parameters"], block)[
                : len(rows)
            ]

        deque(_CORES.map(calibrate, range(0, len(pooled), BLOCK_ROWS)), maxlen=0)
        return out

    def to_files(self) -> dict[str, bytes]:
        """The names and contents of a folder's files; write them in this order, the last one makes
        it whole.
        """
        data = save({name: np.ascontiguousarray(tensor) for name, tensor in self.tensors.items()})
        said = {
            **self.info,
            "fitted_on": {**self.info["fitted_on"], CHECKSUM: _checksum(self.info)},
        }
        info = (
            json.dumps(said, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        )
        return {TENSORS: data, INFO: info.encode()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], where: str = "") -> "Calibration":
        """The inverse of `to_files`; `where` is the folder, for messages. Raises `OptionError`
        naming the file.
        """
        prefix = f"{where.rstrip('/')}/" if where else ""
        missing = next((name for name in (INFO, TENSORS) if name not in files), None)
        if missing:
            raise OptionError(
                f"{prefix}{missing} is missing; make a calibration with: sentence-beam fit"
            )
        info = parse_info(files[INFO], f"{prefix}{INFO}")
        said = f"{prefix}{TENSORS} is not the file that {INFO} describes"
        with refuse_damage(said, "fit the calibration again", OptionError):
            tensors = load(files[TENSORS])
            if tensors_digest(tensors) != info["tensors"]:
                raise ValueError("its digest is another")
        return cls(info, tensors)


def load_calibration(folder: str) -> Calibration:
    """The calibration in a local folder; `OptionError` naming the file that is missing, damaged or
    changed.
    """
    place = Path(folder).expanduser()
    found = {
        name: (place / name).read_bytes() for name in (INFO, TENSORS) if (place / name).is_file()
    }
    return Calibration.from_files(found, str(folder))


def parse_info(data: bytes, name: str) -> dict[str, Any]:
    """`Calibration.info` from the bytes of a file of this name; `OptionError` where they are no
    calibration's.
    """
    mend = "fit the calibration again"
    with refuse_damage(f"{name} is not valid JSON", mend, OptionError):
        info = json.loads(data)
    if not isinstance(info, dict) or info.get("format") != FORMAT or set(info) != _KEYS:
        raise OptionError(f"{name} is of another format; {mend}")
    with refuse_damage(f"{name} was changed by hand", mend, OptionError):
        fitted_on = dict(info["fitted_on"])
        checksum = fitted_on.pop(CHECKSUM, None)  # earlier versions wrote none
        info = {**info, "fitted_on": fitted_on}
        if info["digest"] != _digest(info) or checksum not in (None, _checksum(info)):
            raise ValueError("its digest is another")
        FittedMoments.from_info(info)
    return info


def check_space(info: Mapping[str, Any], space: Space, where: str) -> None:
    """Raise `SpaceMismatchError` naming the fields in which `space` pools otherwise than the space
    it was fitted on.
    """
    with refuse_damage(
        f"calibration {where} does not say on which space it was fitted", kind=OptionError
    ):
        fitted = Space.from_json(info["fitted_on"]["space"])
    what = f"calibration {where} was fitted on another space"
    fitted.check(space, what, "fit one on a store of this space", ignoring=OUTPUT_FIELDS)


def tensors_digest(tensors: Mapping[str, np.ndarray]) -> str:
    """sha256 in hex over the tensors' names, types, shapes and bytes; how the file lays them out
    does not matter.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(canonical_json([name, tensor.dtype.str, list(tensor.shape)]).encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _checksum(info: Mapping[str, Any]) -> str:
    """sha256 in hex over everything in `info`."""
    return sha256_text(canonical_json(dict(info)))


def _digest(info: Mapping[str, Any]) -> str:
    return sha256_text(canonical_json({key: info[key] for key in _DECIDING}))
