"""Bar 5: building ResNet-50 untuned takes at most 20 s cold and 3 s with the object cache, and at most 1.5 GB of memory
over the weights. Each build is a process of its own; importing the model is not part of the time.

    python benchmarks/compile.py [--model resnet50]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import common

_CHILD = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import relaxish
from relaxish.frontend.onnx import from_onnx
from relaxish.tools.light_models import light_model
proto = light_model(sys.argv[1])
weights = sum(len(i.raw_data) for i in proto.graph.initializer)
mod = from_onnx(proto)
begin = time.perf_counter()
relaxish.build(mod, "llvm")
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "peak over weights GB": (peak - weights) / 2**30}))
"""


def build(model: str, cache: str) -> dict[str, Any]:
    """What one build took, in a new process with its own cache directory."""
    environment = {**os.environ, "RELAXISH_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, model], env=environment, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet50")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = build(options.model, cache), build(options.model, cache)
    rows = [
        {
            "build": "cold",
            **cold,
            "bar s": 20.0,
            "holds": cold["seconds"] <= 20.0 and cold["peak over weights GB"] <= 1.5,
        },
        {"build": "cached", **warm, "bar s": 3.0, "holds": warm["seconds"] <= 3.0},
    ]
    common.save("compile", rows)
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
