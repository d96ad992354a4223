#!/usr/bin/env bash
# bake.sh MODEL [REVISION]: put a model into the image, and embed one text with it, so that a model that cannot be
# loaded without the hub fails the build and not the night.
set -euo pipefail

model=$1 revision=${2:-}

if [ "$model" != minilm ]; then
    # safetensors and JSON are all that is ever loaded
    hf download "$model" ${revision:+--revision "$revision"} \
        --exclude '*.bin' --exclude '*.h5' --exclude '*.msgpack' --exclude '*.ot' --exclude 'onnx/*' --exclude 'openvino/*'
fi
HF_HUB_OFFLINE=1 python - "$model" "$revision" <<'PYTHON'
import sys

from sentence_beam import Encoder

encoder = Encoder.load(sys.argv[1], revision=sys.argv[2] or None, device="cpu", dtype="float32")
print(f"{sys.argv[1]}: {encoder.encode(['a text']).shape[1]} dimensions, space {encoder.space.id}")
PYTHON
