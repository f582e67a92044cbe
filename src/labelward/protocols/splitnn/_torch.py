"""torch, where it is installed: every module of this package that needs it takes it from here."""

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
