"""How many examples a property is tried on."""

import os

SIZE = "SENTENCE_BEAM_FAULTS"


def examples(number: int, few: int = 6) -> int:
    """Give a quarter of the examples in an ordinary run, and at least `few` of them; where the size
    of the long form is set, all of them times that size.
    """
    size = os.environ.get(SIZE)
    if size is None:
        return max(min(number, few), number // 4)
    return max(1, int(number * float(size)))
