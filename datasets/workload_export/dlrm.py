"""DLRM, where the paper is silent: 26 tables of 1000 rows by 128, pairwise dot interaction.

Bottom network 13-512-256-128, top network 1024-1024-512-256-1 over the dense vector and the 351
distinct dot products of 27 vectors (Naumov et al., arXiv 1906.00091).
"""

from __future__ import annotations

import itertools

from workload_export.compose import Net, Tensor, compose, stack

TABLES = 26
ROWS = 1000
WIDTH = 128
DENSE = 13
_PAIRS = (TABLES + 1) * TABLES // 2


def dlrm() -> Net:
    """Build the network; forward takes (batch, 13) numbers and (batch, 26) indices."""
    import torch

    tables = [torch.nn.Embedding(ROWS, WIDTH) for _ in range(TABLES)]
    net = compose(
        _forward,
        bottom=_perceptron([DENSE, 512, 256, WIDTH]),
        tables=stack(tables),
        top=_perceptron([WIDTH + _PAIRS, 1024, 1024, 512, 256, 1], last=torch.nn.Sigmoid()),
    )
    net.register_buffer("pairs", _below_diagonal(), persistent=False)
    return net


def _below_diagonal() -> Tensor:
    """Return flat indices of the dot products of distinct vectors, each pair once."""
    import torch

    vectors = TABLES + 1
    row, column = torch.tril_indices(vectors, vectors, offset=-1)
    return row * vectors + column


def _perceptron(widths: list[int], last: Net | None = None) -> Net:
    from torch import nn

    layers: list[Net] = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last or nn.ReLU())


def _forward(net: Net, dense: Tensor, sparse: Tensor) -> Tensor:
    import torch

    x = net.bottom(dense)
    rows = [table(sparse[:, i]) for i, table in enumerate(net.tables)]
    vectors = torch.stack([x, *rows], dim=1)
    products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
    return net.top(torch.cat([x, products.index_select(1, net.pairs)], dim=1))
