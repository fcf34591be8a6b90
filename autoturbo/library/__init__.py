"""The functions of the library: models and targets as users have them, options as one says them.

A model is a path, the name of a workload, an ONNX model (:class:`onnx.ModelProto`, its bytes, an
open file), a ``torch.nn.Module`` with example inputs, or what :func:`autoturbo.load_model` gives. A
target is a name, a path, or what :func:`autoturbo.load_target` gives. Durations and shares may be
texts as on the command line. What is given is brought into the form of the functions of the same
names inside, which do the work.
"""

from autoturbo.library.analysis import compare, explain, inspect, simulate, verify
from autoturbo.library.runs import resume, sweep, tune

__all__ = ["compare", "explain", "inspect", "resume", "simulate", "sweep", "tune", "verify"]
