"""Gradient-boosted trees on one thread: the same rows give the same model, to the bit."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoturbo.errors import InputError, Location

if TYPE_CHECKING:
    import xgboost

    from autoturbo.cost_models.features import Rows
    from autoturbo.graph.arrays import Ints
    from autoturbo.schedule.work import Floats

TREES: Final = 80
"""Trees of one model: beyond it the error on held-out candidates of one model hardly falls."""

WHOLE = 1 << 16
"""Rows that are held whole. More are sorted into bins as they are read, which saves memory and
gives the same trees; it passes over them four times, with every thread there is for the labels."""

_COMMON: Final[dict[str, Any]] = {
    "tree_method": "hist",
    "nthread": 1,  # several threads add up in another order each time
    "max_depth": 6,
    "eta": 0.15,
    "lambda": 1.0,
    "max_bin": 128,
    "seed": 0,
    "verbosity": 0,
    "disable_default_eval_metric": True,
}


@dataclass(frozen=True, eq=False)
class Booster:
    """Trained trees.

    Attributes:
        trees: The trees as XGBoost has them.
    """

    trees: xgboost.Booster

    @staticmethod
    def of(
        rows: Rows,
        labels: Floats,
        weights: Floats | None = None,
        *,
        objective: str = "reg:squarederror",
        trees: int = TREES,
        groups: Ints | None = None,
        start: Booster | None = None,
        **parameters: Any,
    ) -> Booster:
        """Return trees trained on labelled rows.

        Args:
            rows: Features, ``(n, columns)``.
            labels: Values that the trees learn to predict, ``(n,)``.
            weights: Weights of the rows, ``(n,)``, of any scale; all alike if None.
            objective: The loss, in XGBoost's words.
            trees: Number of trees to grow.
            groups: Groups of rows that are ranked together, ascending numbers, ``(n,)``.
            start: Trees that stay, and whose errors the new ones correct; none if None.
            parameters: More of XGBoost's.
        """
        import xgboost

        params = {**_COMMON, "objective": objective, **parameters}
        given: dict[str, Any] = {"weight": weights, "qid": groups, "nthread": 1}
        if len(rows) <= WHOLE:
            matrix = xgboost.DMatrix(rows, labels, **given)
        else:
            matrix = xgboost.QuantileDMatrix(rows, labels, max_bin=params["max_bin"], **given)
        before = None if start is None else start.trees
        return Booster(xgboost.train(params, matrix, trees, xgb_model=before))

    def predict(self, rows: Rows) -> Floats:
        """Return predictions, ``(n,)``."""
        if not len(rows):
            return np.zeros(0)
        return np.asarray(self.trees.inplace_predict(rows), np.float64)

    def contributions(self, rows: Rows) -> Floats:
        """Return each column's contribution to each prediction, ``(n, columns)``.

        Shapley values of the trees (Lundberg et al., Nature Machine Intelligence 2, 2020), which
        with the mean prediction of the training rows add up to :meth:`predict`.
        """
        import xgboost

        matrix = xgboost.DMatrix(rows, nthread=1)
        return np.asarray(self.trees.predict(matrix, pred_contribs=True), np.float64)[:, :-1]

    def leaves(self, rows: Rows) -> Any:
        """Return the leaf of each tree that rows end in, sparse, ``(n, nodes of all trees)``.

        The product of two rows is the share of the trees in which they end in the same leaf.

        Args:
            rows: Features; more columns than the trees know are left out.
        """
        import xgboost
        from scipy.sparse import csr_array

        count, trees = len(rows), self.trees.num_boosted_rounds()
        ends = np.zeros((0, trees), np.int64)
        if count:
            matrix = xgboost.DMatrix(rows[:, : self.trees.num_features()], nthread=1)
            ends = self.trees.predict(matrix, pred_leaf=True).astype(np.int64).reshape(count, trees)
        # Each tree has columns of its own; the root of their number makes rows of length 1.
        columns = ends + self._first_nodes[:-1]
        values = np.full(columns.size, trees**-0.5)
        where = (values, columns.ravel(), np.arange(0, columns.size + 1, trees))
        return csr_array(where, shape=(count, int(self._first_nodes[-1])))

    @functools.cached_property
    def _first_nodes(self) -> Ints:
        """Return the first node of each tree among those of all trees, and their number."""
        document = json.loads(bytes(self.trees.save_raw("json")))
        grown = document["learner"]["gradient_booster"]["model"]["trees"]
        nodes = [int(tree["tree_param"]["num_nodes"]) for tree in grown]
        return np.cumsum([0, *nodes])

    def save(self, path: Path) -> str:
        """Write XGBoost's own format, UBJSON, or JSON where the name ends so; return a checksum."""
        self.trees.save_model(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    @staticmethod
    def load(path: Path, checksum: object) -> Booster:
        """Return the trees that :meth:`save` wrote.

        Args:
            path: The file.
            checksum: Checksum that :meth:`save` returned. XGBoost crashes at some damaged files.

        Raises:
            InputError: The file is missing or damaged.
        """
        import xgboost

        trees = xgboost.Booster({"nthread": 1})
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
                message = "damaged: its checksum is not the one in the card beside it"
                raise InputError(message, Location(path), "copy it again, or train it again")
            trees.load_model(path)
        except (xgboost.core.XGBoostError, OSError, ValueError):
            raise InputError("not a cost model that XGBoost can read", Location(path)) from None
        return Booster(trees)
