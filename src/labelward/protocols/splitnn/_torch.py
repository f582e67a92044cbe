"""Single import point of torch, with a clear error if it is not installed."""

from __future__ import annotations

from labelward.installation import missing_library

try:
    import torch as torch
    from torch import nn as nn
except ImportError as error:
    raise missing_library("training of split networks", "torch", "nets") from error
