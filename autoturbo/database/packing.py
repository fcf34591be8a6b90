"""Records as the database keeps them: their canonical text, compressed.

Every record is compressed for itself (zlib, RFC 1950), so that one that is damaged takes no other
with it, but with a dictionary of what records have in common, which stands here: a trial takes
about a third of its text. Rows that were written before version 3 hold the text as it is.
"""

from __future__ import annotations

import zlib

MOST_BYTES = 1 << 28
"""What a record's text may have: a file from elsewhere may not fill the memory."""

# Each names the next: the more often a piece is used, the nearer to the end it should stand.
_COMMON = (
    # of best schedules: texts within texts
    '"decisions":{"knobs":{},"layers":[{"boundary":"merge","contexts":["'
    '{"boundary":"cut","contexts":["","own":{"boundary":"cut","layer":"*"}},'
    '\\"scheduler_version\\": \\"3\\",\\n\\"scheduler\\": \\"graphturbo\\",\\n\\"dtype\\": '
    '{\\"name\\": \\"\\", \\"operators\\": []},\\n {\\"layers\\": [], \\"axis\\": 0, \\"depth\\": '
    '0, \\"instances\\": 1, \\"inner_axis\\": , \\"inner_factor\\": },\\n {\\"subgraph\\": 0, '
    '\\"part\\": 0, \\"cores\\": [1, 1, 8, 1], \\"scope\\": \\"LB\\"},\\n {\\"kind\\": \\"tensor\\"'
    ', \\"tensor\\": \\"weights\\", \\"subgraph\\": 1, \\"part\\": 0, \\"scope\\": \\"DDR\\", '
    '\\"address\\": 0, \\"bytes\\": 65536, \\"first_step\\": , \\"last_step\\": },\\n '
    '"verified":{"checks":["regions","memory","numbers"],"created":"","verifier":"'
    '"versions":{"autoturbo":"0.1.0","numpy":"2.","optuna":"4.","xgboost-cpu":"3.'
    # of runs
    '"model_file":".onnx","settings":{"baselines":["tvm","graphturbo"],"bound_gap":null,"effort":'
    '"quick","folder":"/","model_batch":null,"objective":"latency","patience":null,"runs_folder":'
    '"runs","sampler":"cost-model","seed":0,"starts":[{],"storage":null,"subgraphs":8,'
    '"target_description":{"clock_mhz":1000.0,"clusters":4,"cores_per_cluster":8,"ddr":{'
    '"bandwidth_gb_s":100.0,"capacity_gib":4,"efficiency":0.9,"latency_ns":200.0},"description":"'
    '"time_budget":null,"trials":64,"transfer":true,"verify":false},"state":"running"'
    '"key":{"dtype":"float16","graph_hash":"","scheduler_version":"3.2.2","target_hash":"'
    # of trials that failed
    '"failure":{"capacity":,"demand":,"levers":["fewer batches per cluster","a smaller data type",'
    '"a target with a larger LB"],"message":" need  bytes of LB,  are set aside","reason":"LB",'
    '"tensors":[]},'
    # of measured trials, in their order
    '{"created":"2026-01-01T00:00:00.000Z","kind":"trial","knobs":{"batches_per_cluster":1,'
    '"binding":"always","cluster_split":"spatial","factor_policy":"ragged","factor_scale":2,'
    '"instance_order":"footprint","instruction_scheduling":"layer","lb_fill":0.75,"max_layers":8,'
    '"merge_order":"sbd","merged_factor_ratio":8,"output_scope":"GB","overrides":[{"boundary":'
    '"cut","core_dim":0,"cores":4,"dim":0,"factor":2,"inner_dim":1,"inner_factor":2,"layer":"'
    '","prefetch_depth":2,"priority":7,"scope":"GB","tile_divisor":2,"weights":"GB"},{"boundary":'
    '"merge","layer":"node_Conv_"},{"boundary":"cut","dim":0,"factor":1,"layer":"node_"}],'
    '"prefetch_depth":4,"producer_factor_ratio":0,"recompute_limit":4,"spill_victim":"largest",'
    '"split_dims":"all","split_key":"odf","weight_residency":"GB","weight_share":0.5},'
    '"measurement":{"batch":1,"bound":{"ddr_s":0.000,"matrix_s":0.00,"vector_s":0.000},"busy":{'
    '"dma_in":0.00,"dma_out":6.0e-05,"matrix":0.00,"transfer":0.00,"vector":0.000},"bytes":{'
    '"core_to_core":0,"ddr_read":1,"ddr_written":6,"gb_read":3,"gb_written":1,"lb":6},'
    '"ddr_bytes":1,"energy":0.1,"gb_bytes":5,"kernel_counts":{"0":1,":1,"":2,"":4,"":8,"},'
    '"kernel_times":{"":1.0e-05,"":0.0001,"":0.000},"kernels":25,"latency":0.00,'
    '"matrix_utilization":0.4,"overlap":{"dma_in+dma_out":0.0,"dma_in+matrix":0.000,'
    '"dma_in+transfer":0.000,"dma_in+vector":0.000,"matrix+dma_out":0.0,"matrix+vector":0.000,'
    '"transfer+dma_out":0.0,"transfer+matrix":0.000,"transfer+matrix+vector":0.000,'
    '"transfer+vector":0.000,"vector+dma_out":0.0},"peak_gb_bytes":0,"peak_lb_bytes":1048576,'
    '"subgraph_times":[0.000,1.0e-05,2.0e-05],"tensors":{"DDR":3,"GB":4,"LB":10},'
    '"vector_utilization":0.2,"waits":{"dma_in":0.000,"dma_out":9.0e-05,"matrix":0.000,'
    '"transfer":0.00,"vector":0.00}},"number":1,"run":"","schema":1}'
)

DICTIONARIES: dict[int, bytes] = {zlib.adler32(text): text for text in (_COMMON.encode("ascii"),)}
"""Dictionaries by the checksum that a compressed record names; one is added, none ever edited."""

_NEWEST = next(reversed(DICTIONARIES.values()))
_LEVEL = 6  # 9 saves a fifth of a percent and takes a tenth more time
_SMALL = 1 << 14  # a trial's text: a small window costs half a percent and saves half the time
_DICTIONARY_FOLLOWS = 0x20


def pack(text: str) -> bytes:
    """The text as a row holds it.

    Args:
        text: ASCII.
    """
    data = text.encode("ascii")
    bits, memory = (13, 7) if len(data) < _SMALL else (15, 8)
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, bits, memory, zdict=_NEWEST)
    return packer.compress(data) + packer.flush()


def unpack(kept: str | bytes) -> str:
    """The text of a row, of any version.

    Raises:
        ValueError: what is kept is damaged, or larger than :data:`MOST_BYTES`.
    """
    if isinstance(kept, str):
        return kept
    try:
        unpacker = zlib.decompressobj(zdict=_dictionary(kept))
        text = unpacker.decompress(kept, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("cannot be unpacked: cut short, or too long")
    return text.decode("ascii")


def _dictionary(kept: bytes) -> bytes:
    """The dictionary that a stream asks for by its checksum; empty where it asks for none."""
    if len(kept) < 6 or not kept[1] & _DICTIONARY_FOLLOWS:  # noqa: PLR2004  header, checksum
        return b""
    try:
        return DICTIONARIES[int.from_bytes(kept[2:6], "big")]
    except KeyError:
        raise ValueError("packed by a newer version") from None
