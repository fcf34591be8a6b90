"""Gradient-boosted trees on one thread: the same rows give the same model, to the bit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.errors import InputError, Location

if TYPE_CHECKING:
    import xgboost

    from autoturbo.cost_models.features import Rows

TREES = 80
"""Trees of one model: beyond it the error on held-out settings of one model hardly falls."""

_WHOLE = 1 << 16
"""Rows that are held whole. More are sorted into bins as they are read, which saves memory and
gives the same trees; it passes over them four times, with every thread there is for the labels."""

_COMMON: dict[str, Any] = {
    "tree_method": "hist",
    "nthread": 1,  # several threads add up in another order each time
    "max_depth": 6,
    "eta": 0.15,
    "lambda": 1.0,
    "verbosity": 0,
    "disable_default_eval_metric": True,
}


class Booster:
    """An XGBoost model of one objective.

    Attributes:
        objective: ``"reg:squarederror"`` or ``"binary:logistic"``.
        seed: of what is left to chance.
        columns: share of the columns, drawn anew for each split, that it may ask for.
        bins: of a column at most, between which it may split.
    """

    def __init__(
        self, objective: str, seed: int = 0, *, columns: float = 1.0, bins: int = 128
    ) -> None:
        self.objective = objective
        self.seed = seed
        self.columns = columns
        self.bins = bins
        self._model: xgboost.Booster | None = None

    @property
    def trained(self) -> bool:
        """False until :meth:`fit`."""
        return self._model is not None

    def fit(
        self,
        rows: Rows,
        labels: NDArray[np.float64],
        weights: NDArray[np.float64] | None = None,
        *,
        trees: int = TREES,
        more: bool = False,
    ) -> None:
        """Train.

        Args:
            rows: ``(n, columns)``.
            labels: ``(n,)``.
            weights: ``(n,)``, of any scale.
            trees: how many to grow.
            more: add them to the trees that are there, instead of beginning anew.
        """
        import xgboost

        params = {**_COMMON, "objective": self.objective, "seed": self.seed}
        params |= {"colsample_bynode": self.columns, "max_bin": self.bins}
        if len(rows) <= _WHOLE:
            matrix = xgboost.DMatrix(rows, labels, weight=weights, nthread=1)
        else:
            matrix = xgboost.QuantileDMatrix(
                rows, labels, weight=weights, nthread=1, max_bin=self.bins
            )
        before = self._model if more else None
        self._model = xgboost.train(params, matrix, trees, xgb_model=before)

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Predictions, ``(n,)``.

        Raises:
            ValueError: it has not been trained.
        """
        if self._model is None:
            raise ValueError("predict() before fit()")
        if not len(rows):
            return np.zeros(0)
        return np.asarray(self._model.inplace_predict(rows), np.float64)

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """What each column adds to each prediction, ``(n, columns)``.

        Shapley values of the trees (Lundberg et al., Nature Machine Intelligence 2, 2020), which
        with the mean prediction of the training rows add up to :meth:`predict`.

        Raises:
            ValueError: it has not been trained.
        """
        import xgboost

        if self._model is None:
            raise ValueError("contributions() before fit()")
        matrix = xgboost.DMatrix(rows, nthread=1)
        return np.asarray(self._model.predict(matrix, pred_contribs=True), np.float64)[:, :-1]

    def save(self, path: Path) -> str:
        """Write XGBoost's own format, UBJSON, or JSON where the name ends so; return its checksum.

        Raises:
            ValueError: it has not been trained.
        """
        if self._model is None:
            raise ValueError("save() before fit()")
        self._model.save_model(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    @staticmethod
    def load(path: Path, objective: str, checksum: object) -> Booster:
        """A model of what :meth:`save` wrote.

        Raises:
            InputError: the file is missing or damaged.
        """
        booster = Booster(objective)
        booster.read(path, checksum)
        return booster

    def read(self, path: Path, checksum: object) -> None:
        """Take the trees that :meth:`save` wrote.

        Args:
            path: the file.
            checksum: that :meth:`save` returned. XGBoost crashes at some damaged files.

        Raises:
            InputError: the file is missing or damaged.
        """
        import xgboost

        model = xgboost.Booster({"nthread": 1})
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
                message = "damaged: its checksum is not the one in the card beside it"
                raise InputError(message, Location(path), "copy it again, or train it again")
            model.load_model(path)
        except (xgboost.core.XGBoostError, OSError, ValueError):
            raise InputError("not a cost model that XGBoost can read", Location(path)) from None
        self._model = model
