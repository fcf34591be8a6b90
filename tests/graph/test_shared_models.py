"""Plain exports that lie beside the checkout: small ones of the repository are elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.onnx_import import import_model

FOLDER = Path(__file__).parents[3] / "shared" / "models"

KINDS = ("bert_base_s128_b1", "efficientnet_b0_b32", "shufflenet_v2_b64", "whisper_base_enc_b8")
"""One of a kind; of one sample and of several."""

FILES = [path for path in sorted(FOLDER.glob("*.onnx")) if path.stem in KINDS]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not FILES, reason="no models beside the checkout"),
]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_samples_of_a_file_are_told_apart(path: Path) -> None:
    """A cluster's share of the samples is the graph of the file at that batch.

    A file of one sample is looked at with more.
    """
    graph = import_model(path)
    assert trace_batch(graph).obstacle is None
    if graph.batch == 1:
        graph = import_model(path, batch=4)
        assert graph.batch == 4
    trace = trace_batch(graph)
    assert trace.obstacle is None
    share = max(graph.batch // 4, 1)
    ours, files = rebatch(graph, share, trace), import_model(path, batch=share)
    assert [t.shape for t in ours.tensors] == [t.shape for t in files.tensors]
    assert ours.macs == files.macs
    assert ours.hash == files.hash or share == 1
