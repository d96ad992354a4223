"""Documents cut into pieces that can be embedded, found and quoted."""

from transforms.corpus.chunks.cut import Cutter, Pieces, chunk
from transforms.space.chunks import Chunks

__all__ = ["Chunks", "Cutter", "Pieces", "chunk"]
