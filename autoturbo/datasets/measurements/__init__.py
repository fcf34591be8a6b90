"""Measurements in bulk, for the training and evaluation of cost models.

A data set is a folder of Parquet tables::

    collection.json          what it is made of: pairs of model and target, seed, versions
    settings/SHARD.parquet   a row per setting: what was chosen, what came of it
    kernels/SHARD.parquet    a row per sub-graph of each setting
    shards/SHARD.json        counts and checksums, written last: a shard is there when this is
    card.json, README.md     what is in it, for programs and for people

A shard is one model at one batch size on one target in one data type. It follows from these, the
seed and the versions alone, so that neither interruptions nor the number of processes change a
byte of it.
"""

from autoturbo.datasets.measurements.card import make_card, write_card
from autoturbo.datasets.measurements.collect import Collection, Progress, collect, parts_of
from autoturbo.datasets.measurements.load import Measurements, forged, load_measurements
from autoturbo.datasets.measurements.varied_targets import varied_targets

__all__ = [
    "Collection",
    "Measurements",
    "Progress",
    "collect",
    "forged",
    "load_measurements",
    "make_card",
    "parts_of",
    "varied_targets",
    "write_card",
]
