"""Infinity's engine on a CPU, for an interpreter that has it; it asks for older packages than ours.

    PYTHON benchmarks/infinity_alone.py MODEL TEXTS.json VECTORS.npy BATCH...

TEXTS holds a list of texts. Prints as JSON, by dtype and batch size, the (wall, processor) seconds
of encoding them, the better of two; VECTORS gets the float32 vectors of the last dtype.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from infinity_emb import EngineArgs
from infinity_emb.sync_engine import SyncEngineArray

DTYPES = ("float32", "bfloat16")
WARM_UP = 100  # texts


def encode(engine: SyncEngineArray, model: str, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts, float32 [n, d]."""
    vectors, _ = engine.embed(model=model, sentences=texts).result()
    return np.asarray(vectors, np.float32)


def measure(model: str, texts: list[str], dtype: str, batch: int) -> tuple[list[float], np.ndarray]:
    """Return the least (wall, processor) seconds of two encodings, and the vectors."""
    arguments = EngineArgs(
        model_name_or_path=model,
        batch_size=batch,
        dtype=dtype,
        device="cpu",
        bettertransformer=False,
        model_warmup=False,
        trust_remote_code=False,
    )
    engine = SyncEngineArray([arguments])
    encode(engine, model, texts[:WARM_UP])
    took = []
    for _ in range(2):
        wall, processor = time.perf_counter(), time.process_time()
        vectors = encode(engine, model, texts)
        took.append([time.perf_counter() - wall, time.process_time() - processor])
    engine.stop()
    return min(took), vectors


def main() -> None:
    """Measure what the head of this file says, and print it."""
    warnings.filterwarnings("ignore")
    model, file, output, *batches = sys.argv[1:]
    texts = json.loads(Path(file).read_text())
    found = {}
    for dtype in DTYPES:
        for batch in batches:
            name = f"Infinity {dtype}, batches of {batch}"
            found[name], vectors = measure(model, texts, dtype, int(batch))
    np.save(output, vectors)
    print(json.dumps({"took": found, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
