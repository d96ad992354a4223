"""On the path of workers under test: Python imports it by itself. Watches and disturbs the encoder
there.

The folder SENTENCE_BEAM_TEST_HOOKS holds what was seen (`workers`, `loads`, `forwards`: the process
id of each) and what is wanted (`pace`: seconds that every forward pass takes longer; `drift`:
vectors that point elsewhere). A text with the word CRASH ends its process as a fault in a native
library would. SENTENCE_BEAM_TEST_HIDE hides the package, SENTENCE_BEAM_TEST_BEAM is what Beam's
version shall be.
"""

import dataclasses
import importlib.abc
import importlib.util
import os
import signal
import sys
import time

FOLDER = os.environ.get("SENTENCE_BEAM_TEST_HOOKS", "")


def seen(what):
    with open(os.path.join(FOLDER, what), "a") as f:
        f.write(f"{os.getpid()}\n")


def pace():
    try:
        with open(os.path.join(FOLDER, "pace")) as f:
            return float(f.read() or 0)
    except FileNotFoundError:
        return 0.0


def watch(module):
    encoder = module.Encoder
    load, tokenize, finish = encoder.from_recipe, encoder.tokenize, encoder.finish

    def watched_load(*args, **kwargs):
        seen("loads")
        return load(*args, **kwargs)

    def watched_tokenize(self, texts, *args, **kwargs):
        if any("CRASH" in text for text in texts):
            os.kill(os.getpid(), signal.SIGSEGV)
        return tokenize(self, texts, *args, **kwargs)

    def watched_finish(self, *args, **kwargs):
        time.sleep(pace())
        seen("forwards")
        made = finish(self, *args, **kwargs)
        drifted = os.path.exists(os.path.join(FOLDER, "drift"))
        return dataclasses.replace(made, vectors=-made.vectors) if drifted else made

    encoder.from_recipe, encoder.tokenize, encoder.finish = (
        staticmethod(watched_load),
        watched_tokenize,
        watched_finish,
    )


def other_version(module):
    module.__version__ = os.environ["SENTENCE_BEAM_TEST_BEAM"]


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, **patches):
        self.patches = patches

    def find_spec(self, name, path, target=None):
        if os.environ.get("SENTENCE_BEAM_TEST_HIDE") and name.split(".")[0] == "sentence_beam":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        patch = self.patches.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_patch(module):
            run(module)
            patch(module)

        spec.loader.exec_module = run_and_patch
        return spec


if FOLDER:
    patches = {
        "sentence_beam.transforms.encoder.encoder": watch,
        "sentence_beam.pipelines.worker": lambda _: seen("workers"),
    }
    if "SENTENCE_BEAM_TEST_BEAM" in os.environ:
        patches["apache_beam.version"] = other_version
    sys.meta_path.insert(0, Finder(**patches))
