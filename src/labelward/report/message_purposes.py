"""What each message is for, in the words of a report; by its name in views."""

from __future__ import annotations

from typing import Final

from labelward.report.formatting import NOTHING

EXPLAINED: Final = "docs/explanation-what-each-party-sees.md"
"""Page of the documentation that describes every message."""

_GROUPS: Final = {
    "greeting: who takes part, and do all agree": "Hello Begin Ready PairStart PairHistories NetReady",
    "rows that differ: how many, and why": "BlindedRowIds TwiceBlindedRowIds",
    "ids that all parties have": "AlignmentStart AlignmentPoints AlignmentAnswers",
    "common rows: which, and are they the same": "CommonRows CommonRowsProof CommonRowsAgreed",
    "public key, and the model's name": "KeyOffer PartyKeys LogisticStart LogisticReady ScoreKey",
    "comparison of all that was exchanged, at the end": "ExchangeDigest",
    "beginning and end of trees and epochs": "TreeStart TreeEnd TrainingEnd NetStart EpochStart EpochEnd",
    "encrypted gradients of the rows": "TreeRows ForestRows LevelRows",
    "which nodes to sum, and the rows in them": "Level",
    "encrypted sums by bin": "LevelSums",
    "who has won which split": "ChosenSplits WinningCandidates ChosenCandidates BestGains AllowedCandidates",
    "which rows go left at a split": "SplitRows ChildRows ChosenBuckets",
    "numbers of a bottom model for rows": "BatchEmbeddings ValidationEmbeddings",
    "gradients for a bottom model": "BatchGradients",
    "labels: which rows, and sums of them": "HeldRows LabelTotal RootTotals TotalSums OwnSums MaskedSums ChildTotals",
    "columns in bins": "ColumnCodes NodeBins SplitOffers",
    "scores and residuals of a batch": "PartialScores EncryptedResiduals",
    "gradients of weights, under masks": "MaskedProducts MaskedWeightGradient",
    "random shares from the dealer": "DealerExchange DealtParcel DealRequest DealtCorrections DealEnd",
    "encrypted classes of the rows of a node": "LabelRows ChildCiphertexts",
    "shared sums by bin": "SumMasks MaskedStatistics PartialDecryptions",
    "shared arithmetic": "MaskedShares ResultShares",
    "the tree that all may know": "SplitNodes SplitPlaces LeafClasses",
    "prediction: which rows": "PredictRequest EmbeddingRequest",
    "prediction: answers": "PredictAnswers EmbeddingAnswer SplitSides MaskedMargins ReachedLeaves PredictionScores",
    "explanation: which splits and rows": "ColumnsRequest RecordColumns PathRequest PathAnswers",
    "export: consent, and the splits": "ExportRequest ExportConsent ExportDecision ExportRecords",
}
_PURPOSES: Final = {name: purpose for purpose, names in _GROUPS.items() for name in names.split()}


def message_purpose(name: str) -> str:
    """Return what a message is for; a dash for one of an extension."""
    return _PURPOSES.get(name, NOTHING)
