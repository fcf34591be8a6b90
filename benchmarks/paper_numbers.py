"""Numbers of GraphTurbo's evaluation (Zhao et al., OSDI '23) that ours stand beside.

Tables 1 to 4 as printed; speed-ups of Figures 14 to 16 measured from the vector drawings. Nothing
here is used by the package: no constant of the simulator or scheduler depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One network of the evaluation.

    Attributes:
        letter: Its name in the figures.
        workload: Ours that it is.
        tvm_batches: Samples that a cluster processes at once, with TVM (Table 2).
        batches: The same with GraphTurbo.
        tvm: Samples per second with TVM (Table 2).
        astitch: Speed-up over TVM of AStitch (Fig. 14), None where there is no bar.
        ablation: Speed-ups over TVM with outputs in LLB, outputs in L1, instance ordering, and
            instruction scheduling, which is GraphTurbo (Fig. 14, 15).
        tvm_scopes: Tensors in DDR, LLB and L1 with TVM (Table 3).
        scopes: The same with GraphTurbo.
        seconds: To compile, with TVM, AStitch and GraphTurbo (Table 4).
    """

    letter: str
    workload: str
    tvm_batches: int
    batches: int
    tvm: float
    astitch: float | None
    ablation: tuple[float, float, float, float]
    tvm_scopes: tuple[int, int, int]
    scopes: tuple[int, int, int]
    seconds: tuple[int, int, int]

    @property
    def graphturbo(self) -> float:
        """Return samples per second with GraphTurbo: Table 2 times Fig. 14."""
        return self.tvm * self.ablation[-1]


ROWS = (
    PaperRow("A", "resnet50", 2, 16, 1064, 0.67, (0.73, 1.12, 4.29, 7.97),
             (58, 0, 0), (1, 11, 284), (102, 66, 139)),
    PaperRow("B", "bert_base_s128", 4, 8, 512, 2.32, (1.63, 3.46, 3.46, 7.91),
             (242, 0, 0), (1, 0, 305), (159, 128, 199)),
    PaperRow("C", "bert_base_s256", 2, 4, 412, 1.29, (1.01, 2.23, 3.33, 6.50),
             (242, 0, 0), (1, 110, 240), (170, 136, 224)),
    PaperRow("D", "bert_large_s384", 1, 2, 36, 3.11, (2.56, 3.78, 3.89, 7.78),
             (515, 0, 0), (1, 75, 967), (312, 290, 699)),
    PaperRow("E", "bert_base_s512", 1, 2, 324, 1.04, (1.11, 1.54, 3.95, 7.25),
             (242, 0, 0), (1, 76, 337), (171, 143, 282)),
    PaperRow("F", "dlrm", 64, 256, 131_000, 1.82, (0.85, 3.00, 3.00, 3.67),
             (76, 0, 0), (0, 0, 76), (25, 22, 23)),
    PaperRow("G", "mobilenet_v2", 2, 32, 1416, 0.62, (1.06, 1.10, 5.28, 8.28),
             (56, 0, 0), (0, 3, 608), (74, 57, 248)),
    PaperRow("H", "vit_b16", 4, 8, 40, None, (0.70, 16.90, 16.90, 25.00),
             (214, 0, 0), (24, 60, 340), (189, 146, 340)),
    PaperRow("I", "densenet121", 4, 8, 456, 2.17, (1.82, 2.53, 10.68, 18.22),
             (247, 0, 0), (0, 3, 389), (173, 129, 189)),
    PaperRow("J", "conformer", 1, 3, 184, 2.37, (2.56, 2.76, 2.98, 3.96),
             (1054, 0, 0), (4, 813, 250), (382, 238, 296)),
)  # fmt: skip

BERT_BATCHES = (
    ("tvm", 8, 1, 2, 138), ("tvm", 16, 1, 4, 512), ("tvm", 32, 2, 4, 512), ("tvm", 64, 4, 4, 512),
    ("graphturbo", 8, 1, 2, 138), ("graphturbo", 16, 1, 4, 512), ("graphturbo", 32, 1, 8, 4052),
    ("graphturbo", 64, 1, 16, 2716), ("graphturbo", 64, 2, 8, 4052),
)  # fmt: skip
"""Table 1, BERT-128: system, batch, iterations, batches per cluster, sentences per second. Its
latencies contradict its throughputs (batch over latency is 1688 for TVM at 32, not 512); only the
throughputs agree with the other tables."""

USE = {
    "resnet50": {1: (25, 19), 2: (27, 29), 4: (45, 52), 8: (59, 78), 16: (58, 79)},
    "bert_base_s128": {4: (62, 91), 8: (76, 90), 16: (51, 82)},
}
"""Fig. 16, FP16: per cent of the time that GraphTurbo keeps the vector and the matrix engine busy,
by batches per cluster."""
