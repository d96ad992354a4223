"""The root logger while Beam works, and afterwards."""

import subprocess
import sys

CODE = """
import logging
from sentence_beam.transforms.base.logs import keep_root_logger
beam = compile('import logging; logging.basicConfig(); logging.warning("a part"); logging.error("broken")',
    '/x/apache_beam/y.py', 'exec')
own = logging.getLogger("own")
with keep_root_logger():
    exec(beam)
    with keep_root_logger():
        own.warning("inside")
        own.info("unseen")
    exec(beam)
print(logging.root.handlers, logging.root.filters)
"""


def test_nothing_stays_and_warnings_of_others_are_seen() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stdout == "[] []\n"
    assert done.stderr.splitlines() == ["broken", "inside", "broken"]


def test_handlers_of_the_program_stay() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import logging; logging.basicConfig(){CODE}"], capture_output=True
    )
    assert done.stdout.count(b"StreamHandler") == 1
