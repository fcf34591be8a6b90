"""Collect the measurements that the pretrained cost model is trained on.

::

    python datasets/collect.py FOLDER            # about 25 minutes of one processor
    python datasets/collect.py FOLDER --jobs 8   # the same files, sooner

Interrupted, it goes on where it was. Needs pyarrow: ``pip install ".[parquet]"``.
"""

from __future__ import annotations

import sys

from autoturbo.cli import main

MODELS = (
    *("resnet18", "squeezenet1_1", "mobilenet_v2", "resnet50", "bert_base_s128", "dlrm"),
    *("vit_b16", "googlenet", "densenet121", "conformer"),
)
"""The paper's ten without the three BERTs that differ in length only, and three small ones."""

TARGETS = ("stcp920", "ascend-910", "goya", "tpu-v4i", "ipu-mk2", "mlu100")
"""All that the package knows."""

BATCHES = ("1", "16")
SETTINGS = "96"


def command(arguments: list[str]) -> list[str]:
    """Return the command line, given the folder and what else is wanted."""
    folder, *more = arguments
    targets = [text for name in TARGETS for text in ("--target", name)]
    batches = [text for number in BATCHES for text in ("--batch", number)]
    size = ["--settings", SETTINGS]
    return ["dataset", "collect", *MODELS, *targets, *batches, *size, "-o", folder, *more]


if __name__ == "__main__":
    if len(sys.argv) < 2:  # noqa: PLR2004  the folder
        sys.exit("usage: python datasets/collect.py FOLDER [--jobs N]")
    sys.exit(main(command(sys.argv[1:])))
