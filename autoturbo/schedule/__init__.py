"""GraphTurbo's scheduler with its heuristics as knobs: from a graph to a schedule.

Start reading at :mod:`autoturbo.schedule.pipeline`, which runs the passes in order.
"""
