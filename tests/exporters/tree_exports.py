"""Models of scikit-learn, XGBoost and LightGBM by their converters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from toolchain.zoo.exporters import SKL2ONNX
from toolchain.zoo.record import Network

_FEATURES = 10
_OPSETS = {"": 17, "ai.onnx.ml": 3}


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(8, max_depth=5, random_state=0), True


def _boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=8, random_state=0), False


def _extra_trees() -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(6, max_depth=5, random_state=0), False


def _adaboost() -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(n_estimators=4, random_state=0), True


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    return make_pipeline(StandardScaler(), Normalizer(), LogisticRegression()), True


def _perceptron() -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    return make_pipeline(MinMaxScaler(), MLPClassifier((16,), max_iter=60, random_state=0)), True


def _clusters() -> Any:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline

    return make_pipeline(PCA(4, random_state=0), KMeans(5, random_state=0)), False


def _voting() -> Any:
    from sklearn.ensemble import VotingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    members = [
        ("tree", DecisionTreeClassifier(max_depth=4)),
        ("bayes", GaussianNB()),
        ("line", LogisticRegression()),
    ]
    return VotingClassifier(members, voting="soft", flatten_transform=False), True


def _xgboost() -> Any:
    from xgboost import XGBRegressor

    return XGBRegressor(n_estimators=8, max_depth=4, random_state=0), False


def _xgboost_classes() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=4, max_depth=3, random_state=0), True


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_estimators=8, num_leaves=12, random_state=0, verbose=-1), False


def _lightgbm_classes() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=4, num_leaves=6, random_state=0, verbose=-1), True


_ESTIMATORS: dict[str, Callable[[], Any]] = {
    "forest": _forest,
    "boosting": _boosting,
    "extra-trees": _extra_trees,
    "adaboost": _adaboost,
    "logistic": _logistic,
    "perceptron": _perceptron,
    "clusters": _clusters,
    "voting": _voting,
    "xgboost": _xgboost,
    "xgboost-classes": _xgboost_classes,
    "lightgbm": _lightgbm,
    "lightgbm-classes": _lightgbm_classes,
}


def make(record: Network) -> onnx.ModelProto:
    """The estimator of a record, trained on seeded numbers, converted with scores as one tensor."""
    from sklearn.base import is_classifier

    estimator, classifies = _ESTIMATORS[record.name.removeprefix("tiny-")]()
    random = np.random.default_rng(0)
    features = random.standard_normal((300, _FEATURES)).astype(np.float32)
    hidden = features @ random.standard_normal(_FEATURES) + features[:, 0] * features[:, 1]
    classes = np.digitize(hidden, np.quantile(hidden, [0.33, 0.67]))
    estimator.fit(features, classes if classifies else hidden.astype(np.float32))
    if record.exporter == SKL2ONNX:
        from skl2onnx import to_onnx

        options = {id(estimator): {"zipmap": False}} if is_classifier(estimator) else None
        return to_onnx(estimator, features[:1], options=options, target_opset=_OPSETS)
    return _by_onnxmltools(estimator, record.name)


def _by_onnxmltools(estimator: Any, name: str) -> onnx.ModelProto:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    kinds = [("X", FloatTensorType([None, _FEATURES]))]
    if "xgboost" in name:
        return onnxmltools.convert_xgboost(estimator, initial_types=kinds, target_opset=15)
    return onnxmltools.convert_lightgbm(estimator, initial_types=kinds, target_opset=15, zipmap=False)
