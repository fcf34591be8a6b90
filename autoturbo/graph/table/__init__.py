"""The operator table: one row per operator type.

``describe(node)`` answers with the iteration domain and the access maps of a node; a node that the
table cannot describe gets an opaque answer that says why. Families of operators are one module
each; :mod:`autoturbo.graph.table.rows` joins them.
"""

from autoturbo.graph.table.rows import describe, supported
from autoturbo.graph.table.spec import NodeView, NoRowError, OperatorSpec, ValueView

__all__ = ["NoRowError", "NodeView", "OperatorSpec", "ValueView", "describe", "supported"]
