"""Small networks as current libraries export them, the batch written into every constant.

BERT's mask is looked up by tuples of a batch index and a position, the poolings of ConvNeXt and
Swin are strided views of flattened tensors; Swin's shifted windows merge samples with windows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier import verify_schedule
from tests.schedule.schedule_samples import STCP920

FILES = sorted((Path(__file__).parents[1] / "graph" / "exports").glob("*.onnx"))


EACH = [
    pytest.param(path, id=path.stem, marks=pytest.mark.full if n else ())
    for n, path in enumerate(FILES)
]


@pytest.mark.parametrize("path", EACH)
def test_every_cluster_has_samples_of_its_own(path: Path) -> None:
    """Four clusters, and as many passes where a cluster takes one sample at a time."""
    graph = import_model(path)
    model_scheduler = ModelScheduler(graph, STCP920, "float16")
    for at_once in ("auto", 1):
        schedule = build_schedule(model_scheduler, Knobs(batches_per_cluster=at_once))
        assert schedule.share.copies == STCP920.clusters
        found = verify_schedule(schedule, path=path, whole=True)
        assert [finding.message for finding in found.findings] == []
        assert found.numbers is not None
        assert found.numbers.skipped is None


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("path", EACH)
def test_the_file_at_another_batch_is_the_traced_graph_at_it(path: Path, batch: int) -> None:
    graph = import_model(path)
    ours, files = rebatch(graph, batch, trace_batch(graph)), import_model(path, batch=batch)
    assert [t.shape for t in ours.tensors] == [t.shape for t in files.tensors]
    assert ours.hash == files.hash or batch == 1
    if batch > 1:
        assert trace_batch(files).obstacle is None
