"""scikit-learn estimators: federated boosted trees, random forests and split networks, every party in one process."""

from labelward.estimators.boosting import SecureBoostClassifier, SecureBoostRegressor
from labelward.estimators.forest import FederatedForestClassifier, FederatedForestRegressor
from labelward.estimators.nets import SplitNetClassifier, SplitNetRegressor

__all__ = [
    "FederatedForestClassifier",
    "FederatedForestRegressor",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
    "SplitNetClassifier",
    "SplitNetRegressor",
]
