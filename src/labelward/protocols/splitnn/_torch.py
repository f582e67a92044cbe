"""Single import point of torch, with a clear error if it is not installed."""

from __future__ import annotations

from labelward.errors import DependencyError

try:
    import torch as torch
    from torch import nn as nn
except ImportError as error:
    raise DependencyError(
        "split networks need torch, which is not installed; pip install 'labelward[nets]' brings it",
        code="dependency",
        value="torch",
    ) from error
