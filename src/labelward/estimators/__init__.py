"""The scikit-learn face: federated boosted trees and random forests, every party in one process."""

from labelward.estimators.boosting import SecureBoostClassifier, SecureBoostRegressor
from labelward.estimators.forest import FederatedForestClassifier, FederatedForestRegressor

__all__ = [
    "FederatedForestClassifier",
    "FederatedForestRegressor",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
]
