"""A BERT encoder as a bottom model: token numbers in, the pooled first token out; no weights are downloaded.

Reference: Devlin et al., BERT (2019): post-norm layers, GELU, learned positions, a tanh pooler. Differences: one
segment (a party holds one piece of text), and no dropout, since torch draws it from the generator of the whole process.
"""

from __future__ import annotations

from collections.abc import Iterable

from labelward.protocols.splitnn._torch import nn, torch

_META = torch.device("meta")
_EPSILON = 1e-12


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(width, 3 * width, device=_META)
        self.output = nn.Linear(width, width, device=_META)
        self.norm = nn.LayerNorm(width, _EPSILON, device=_META)
        wide = nn.Linear(width, 4 * width, device=_META)
        self.feed = nn.Sequential(wide, nn.GELU(), nn.Linear(4 * width, width, device=_META))
        self.feed_norm = nn.LayerNorm(width, _EPSILON, device=_META)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        parts = self.projections(x).view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=seen)
        x = self.norm(x + self.output(found.transpose(1, 2).reshape(rows, tokens, width)))
        done: torch.Tensor = self.feed_norm(x + self.feed(x))
        return done


class _Bert(nn.Module):
    def __init__(self, vocabulary: int, tokens: int, outputs: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, device=_META)
        self.positions = nn.Embedding(tokens, width, device=_META)
        self.norm = nn.LayerNorm(width, _EPSILON, device=_META)
        self.layers = nn.ModuleList([_Layer(width, heads) for _ in range(layers)])
        self.pooler = nn.Linear(width, width, device=_META)
        self.output = nn.Linear(width, outputs, device=_META)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = x.long()
        seen = (numbers != 0)[:, None, None, :]
        return self.pooled(self.through(self.norm(self.tokens(numbers) + self.positions.weight), seen, self.layers))

    def through(self, x: torch.Tensor, seen: torch.Tensor, layers: Iterable[nn.Module]) -> torch.Tensor:
        """Return hidden states [rows, tokens, width] after some layers; ``seen`` [rows, 1, 1, tokens]: no padding."""
        seen = seen | ~seen.any(-1, keepdim=True)  # a row of padding only attends to itself, so that nothing is 0 / 0
        for layer in layers:
            x = layer(x, seen)
        return x

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of hidden states."""
        found: torch.Tensor = self.output(torch.tanh(self.pooler(x[:, 0])))
        return found

    def cut(self) -> tuple[nn.Module, nn.Module]:
        """Return the model up to a hidden layer, and what follows; their weights are the model's.

        Between them travel hidden states with a last number for each token, 1 where it is no padding. Of two rows that
        were mixed, tokens are seen that either has. The layer is 7 of 12, or of fewer the nearest.
        """
        at = max(1, round(7 / 12 * len(self.layers)))
        return _Lower(self, at), _Upper(self, at)


class _Lower(nn.Module):
    def __init__(self, whole: _Bert, at: int) -> None:
        super().__init__()
        self.whole, self.at = whole, at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole, numbers = self.whole, x.long()
        seen = numbers != 0
        hidden = whole.norm(whole.tokens(numbers) + whole.positions.weight)
        hidden = whole.through(hidden, seen[:, None, None, :], whole.layers[: self.at])
        return torch.cat([hidden, seen[:, :, None].to(hidden.dtype)], dim=2)


class _Upper(nn.Module):
    def __init__(self, whole: _Bert, at: int) -> None:
        super().__init__()
        self.whole, self.at = whole, at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, seen = x[:, :, :-1], x[:, :, -1] > 0
        return self.whole.pooled(self.whole.through(hidden, seen[:, None, None, :], self.whole.layers[self.at :]))


def bert(vocabulary: int, tokens: int, outputs: int, *, layers: int, width: int, heads: int) -> nn.Module:
    """Return an encoder over rows of token numbers (int or float, [rows, tokens]); 0 is padding.

    Two layers of width 128 (BERT-tiny) or twelve of 768 (BERT-base) are the presets.
    """
    return _Bert(vocabulary, tokens, outputs, layers, width, heads)
