"""A space's id covers every file of a model's folder that is opened when the model is loaded."""

import contextlib
import ctypes
import json
import os
import shutil
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.families import save_family
from helpers.tiny_models import FAMILIES, HIDDEN, TEXTS, edit_json, save_tiny_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer
from transformers import AutoModel

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import resolve_model, resolve_space

_IN_OPEN = 0x20
_IN_ISDIR = 0x40000000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MODELS = (".json", ".safetensors", ".txt", ".model", ".jinja", ".bin", ".spm")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class OpenedFiles:
    """Files below the folder, and files elsewhere that could be a model's."""

    inside: set[Path] = field(default_factory=set)
    outside: set[Path] = field(default_factory=set)


_recording: list[OpenedFiles] = []
_hooked: list[bool] = []


@contextlib.contextmanager
def opened_files(folder: Path) -> Iterator[OpenedFiles]:
    """Record the files that the body opens; complete once the body has ended."""
    found = OpenedFiles()
    if not _hooked:  # a hook cannot be taken away again
        sys.addaudithook(_note)
        _hooked.append(True)
    queue = _libc.inotify_init1(os.O_NONBLOCK)
    try:
        watches = _watch(queue, folder)
        _recording.append(found)
        try:
            yield found
        finally:
            _recording.remove(found)
        found.inside = set(_events(queue, watches))
        found.outside = {path for path in found.outside if not path.is_relative_to(folder)}
    finally:
        os.close(queue)


def _watch(queue: int, folder: Path) -> dict[int, Path]:
    watches = {}
    for root, _, _ in os.walk(folder):
        number = _libc.inotify_add_watch(queue, os.fsencode(root), _IN_OPEN)
        assert number >= 0, os.strerror(ctypes.get_errno())
        watches[number] = Path(root)
    return watches


def _events(queue: int, watches: dict[int, Path]) -> Iterator[Path]:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(queue, 1 << 16):
            place = 0
            while place < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size
                name = data[place : place + length].rstrip(b"\0")
                place += length
                if name and not mask & _IN_ISDIR:
                    yield watches[number] / os.fsdecode(name)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _recording or not isinstance(arguments[0], str | bytes):
        return
    path = Path(os.path.abspath(os.fsdecode(arguments[0])))
    if path.suffix in _MODELS and not _is_installed(path):
        _recording[-1].outside.add(path)


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to Python's packages: the imports that a load does."""
    return any(path.is_relative_to(sysconfig.get_path(key)) for key in ("stdlib", "purelib"))


WITH_WORDS = [text for text in TEXTS if text]
# Files that people's folders have beside the others: some decide vectors, some are only opened.
BESIDE = {
    "added_tokens.json": '{"[UNK]": 1}',
    "chat_template.jinja": "{{ messages }}",
    "entity_vocab.json": '{"[MASK]": 0}',
    "generation_config.json": '{"max_length": 20}',
    "merges.txt": "#version: 0.2\na b\n",
    "special_tokens_map.json": '{"sep_token": "[SEP]"}',
    "vocab.json": '{"a": 0, "b": 1}',
    "vocab.txt": "[PAD]\n[UNK]\n",
}


def _tiny(family: str) -> Callable[[Path], Path]:
    return lambda folder: save_tiny_model(family, folder)


def _of_transformers(family: str) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        save_family(family, folder)
        return folder

    return save


def _beside(folder: Path) -> Path:
    save_tiny_model("roberta", folder)
    for name, text in BESIDE.items():
        (folder / name).write_text(text.replace("[SEP]", "</s>").replace("[UNK]", "<unk>"))
    return folder


def _vocabulary_alone(folder: Path) -> Path:
    """A BERT with vocab.txt, from which transformers makes the tokenizer."""
    save_tiny_model("bert", folder)
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(["[MASK]", *sorted(words, key=words.get)]))
    model = AutoModel.from_pretrained(folder)
    model.resize_token_embeddings(len(words) + 1)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    edit_json(folder / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    return folder


def _sharded(folder: Path) -> Path:
    save_tiny_model("roberta", folder)
    model = AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").is_file()
    return folder


def _modules(folder: Path) -> Path:
    """Modules before the pooling, the pooling, and one after it."""
    base = save_tiny_model("roberta", folder.with_name("base"), output_hidden_states=True)
    torch.manual_seed(3)
    stack = [
        st.Transformer(str(base)),
        st.WeightedLayerPooling(HIDDEN, num_hidden_layers=3, layer_start=1),
        st.CNN(HIDDEN, out_channels=8, kernel_sizes=[1, 3]),
        st.Pooling(16, "cls"),
        st.Normalize(),
    ]
    prompts = {"query": "a red ", "document": "the "}
    SentenceTransformer(
        modules=stack, device="cpu", prompts=prompts, default_prompt_name="document"
    ).save(str(folder))
    shutil.rmtree(base)
    return folder


def _static(folder: Path) -> Path:
    base = save_tiny_model("bert", folder.with_name("base"))
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    SentenceTransformer(
        modules=[st.StaticEmbedding(tokenizer, embedding_dim=8)],
        device="cpu",
        prompts={"document": "the "},
        default_prompt_name="document",
    ).save(str(folder))
    shutil.rmtree(base)
    return folder


KINDS: dict[str, Callable[[Path], Path]] = {
    **{family: _tiny(family) for family in FAMILIES},
    **{family: _of_transformers(family) for family in ("gpt2", "qwen3", "mamba", "luke", "bart")},
    "files beside": _beside,
    "vocabulary alone": _vocabulary_alone,
    "sharded": _sharded,
    "modules": _modules,
    "static": _static,
}
# of these each change that is not noticed is tried on vectors
TRIED = ("bert", "t5", "gpt2", "files beside", "vocabulary alone", "sharded", "modules", "static")


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_another_space_or_decides_no_vector(tmp_path: Path, kind: str) -> None:
    """Each opened file has a change that is noticed, and no change of a vector goes unnoticed."""
    folder = KINDS[kind](tmp_path / "model")
    with opened_files(tmp_path) as opened:
        encoder = _load(folder)
        expected = encoder.encode(WITH_WORDS)
    assert opened.outside == set()
    assert {path.suffix for path in opened.inside} >= {".safetensors", ".json"}
    for path in opened.inside:
        assert path.is_relative_to(folder)
        before = path.read_bytes()
        noticed = []
        for data in _changes_of(path):
            path.write_bytes(data)
            noticed.append(_is_noticed(folder, encoder.space.id))
            if not noticed[-1] and kind in TRIED:
                _check_same_vectors(folder, expected)
        path.write_bytes(before)
        assert any(noticed), path


def _is_noticed(folder: Path, known: str) -> bool:
    """Whether a changed model is refused, or has another space."""
    try:
        return resolve_space(resolve_model(str(folder))).id != known
    except OptionError:
        return True


def _check_same_vectors(folder: Path, expected: np.ndarray) -> None:
    """Check the vectors of a changed model, unless it is refused when it is loaded."""
    with contextlib.suppress(OptionError):
        assert np.array_equal(_load(folder).encode(WITH_WORDS), expected)


def _changes_of(path: Path) -> Iterator[bytes]:
    """The file's bytes after one change each: of its last byte, or of each value of JSON."""
    data = path.read_bytes()
    if path.suffix == ".json" and path.name != "tokenizer.json":
        for changed in _changes(json.loads(data)):
            yield json.dumps(changed).encode()
    else:
        yield data[:-1] + bytes([data[-1] ^ 1])


def _changes(value: Any) -> Iterator[Any]:
    """A JSON value with one of its leaves changed, for each leaf."""
    if isinstance(value, dict):
        for key, item in value.items():
            for changed in _changes(item):
                yield {**value, key: changed}
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for changed in _changes(item):
                yield [*value[:place], changed, *value[place + 1 :]]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield value + "x"


def _load(folder: Path) -> Encoder:
    return Encoder.load(str(folder), dtype="float32", device="cpu")
