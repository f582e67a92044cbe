"""What a party sees: nothing of the labels in the clear, the same in every run, whatever the threads do."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import msgspec.inspect as inspect
import numpy as np
import pytest
import reference
from byte_search import floats_of, occurrences, patterns, windows
from equivalence import GOSS, KINDS, NAMES, rich_setting

from labelward.kernels.binning import EVERYTHING
from labelward.messages.base import Message, RowMask, wire_name
from labelward.messages.codec import decode, schema
from labelward.messages.tree import LevelHistograms, LevelRequest, OwnSplit, TreeStart
from labelward.party.view import View
from wiring import Run, Setting

ROWS = 90


def setting(kind: str = "two classes", seed: int = 11, **changes: object) -> Setting:
    """Three parties, gaps, categories, row weights (but for two classes), samples of rows and columns."""
    targets, params = KINDS[kind]
    given = {"trees": 3, "row_fraction": 0.8, "feature_fraction": 0.7} | params
    made = rich_setting(seed, targets, rows=ROWS, **given)
    return replace(made, **({"weights": None} if kind == "two classes" else {}) | changes)


SEEN = ("two classes", "three classes, one tree", "three classes, a tree each", "quantities", "forest of classes")


@pytest.fixture(scope="module", params=SEEN)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def secret(kind: str) -> Run:
    """A run under encryption with a small key: what is looked at is what is hidden, not how well."""
    return setting(kind, engine="paillier", bits=512).run()


# -- the schema: what the types of all messages to a passive party can hold ----------------------------------------

TO_PASSIVE = (
    "Hello",
    "Begin",
    "KeyOffer",
    "ForestRows",
    "TreeStart",
    "TreeRows",
    "Level",
    "ChosenSplits",
)
TO_PASSIVE += ("TrainingEnd", "PredictRequest")
AGAIN = ("LevelRows",)
"""Of engines that encrypt rows again for a level; ``test_level_rows.py`` is about it."""
REFUSED = ("BlindedRowIds",)
AFTERWARDS = ("PathRequest", "ColumnsRequest", "ExportRequest", "ExportDecision")

READABLE = {
    "Hello.version": "str",
    "Hello.columns": "int",
    "Hello.classes": "int",
    "Hello.party": "str",
    "Hello.job.key": "str",
    "Hello.job.value": "str",
    "Hello.rows": "int",
    "Hello.nonce": "bytes",
    "Hello.checkpoints": "int",
    "Hello.histories": "bytes",
    "Hello.terms.key": "str",
    "Hello.terms.value": "str",
    "Begin.resume": "int",
    "Begin.history": "bytes",
    "Begin.ids": "bytes",
    "BlindedRowIds.points.key": "str",
    "BlindedRowIds.points.value": "bytes",
    "PublicMaterial.engine": "str",
    "PublicMaterial.bits": "int",
    "PublicMaterial.data": "bytes",
    "TreeStart.tree": "int",
    "TreeStart.gradients": "none",
    "TreeStart.together": "int",
    "TreeStart.route": "bool",
    "TreeStart.repeats": "bytes",
    "TreeRows.tree": "int",
    "TreeRows.part": "int",
    "TreeRows.parts": "int",
    "LevelRows.tree": "int",
    "LevelRows.depth": "int",
    "LevelRows.part": "int",
    "LevelRows.parts": "int",
    "ForestRows.part": "int",
    "ForestRows.parts": "int",
    "RowMask.total": "int",
    "RowMask.form": "literal",
    "RowMask.data": "bytes",
    "CipherBlock.engine": "str",
    "CipherBlock.key": "bytes",
    "CipherBlock.kind": "literal",
    "CipherBlock.shape": "int",
    "CipherBlock.count": "int",
    "CipherBlock.data": "bytes",
    "Layout.bounds": "int",
    "Layout.rows": "int",
    "Layout.logical": "int",
    "Layout.spacing": "int",
    "CipherDigest.engine": "str",
    "CipherDigest.kind": "str",
    "CipherDigest.shape": "int",
    "CipherDigest.count": "int",
    "CipherDigest.size": "int",
    "CipherDigest.sha256": "bytes",
    "Level.tree": "int",
    "Level.depth": "int",
    "NodeSplit.node": "int",
    "Level.build": "int",
    "Level.spacing": "int",
    "ChosenSplits.tree": "int",
    "ChosenSplits.depth": "int",
    "WinningSplit.node": "int",
    "WinningSplit.column": "int",
    "WinningSplit.code": "int",
    "WinningSplit.record": "int",
    "WinningSplit.missing_left": "bool",
    "WinningSplit.categories": "int",
    "TrainingEnd.trees": "int",
    "TrainingEnd.records": "int",
    "KeyOffer.model": "str",
    "PredictRequest.model": "str",
    "PredictRequest.start": "int",
    "PredictRequest.stop": "int",
    "PathRequest.model": "str",
    "PathRequest.start": "int",
    "PathRequest.stop": "int",
    "PathRequest.records": "int",
    "ColumnsRequest.model": "str",
    "ExportRequest.model": "str",
    "ExportRequest.purpose": "str",
    "ExportDecision.refused": "str",
}


def leaves(info: inspect.Type, path: str, hint: Any = None) -> dict[str, str]:
    """Return each readable value of a type, by class and field, and its kind; of a released one, what it holds."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            name, hints = cls.__struct_config__.tag or cls.__name__, get_type_hints(cls)
            return {
                k: v for each in fields for k, v in leaves(each.type, f"{name}.{each.name}", hints[each.name]).items()
            }
        case inspect.CustomType():
            return leaves(inspect.type_info(get_args(hint)[0]), path)
        case inspect.Metadata(type=described):
            return leaves(described, path)
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            return {k: v for each in types for k, v in leaves(each, path).items()}
        case inspect.VarTupleType(item_type=item):
            return leaves(item, path)
        case inspect.DictType(key_type=key, value_type=value):
            return leaves(key, f"{path}.key") | leaves(value, f"{path}.value")
    return {path: type(info).__name__.removesuffix("Type").lower()}


def test_messages_to_a_passive_party_can_hold_no_real_number() -> None:
    """Every readable value is on a list: names, counts, node and row numbers, keys and ciphertexts.

    A new field must be added here, by someone who has thought about it.
    """
    found: dict[str, str] = {}
    for name in TO_PASSIVE + AGAIN + REFUSED + AFTERWARDS:
        found |= leaves(inspect.type_info(schema(name)), name)
    assert found == READABLE


def test_only_these_types_reach_a_passive_party(secret: Run, kind: str) -> None:
    for party in NAMES[1:]:
        names = {wire_name(type(decode(frame)[0])) for frame in secret.frames_to(party)}
        assert names == set(TO_PASSIVE) - {"TreeRows" if "forest" in kind else "ForestRows"}
        assert {name for each, name in secret.views[party].counts() if each == "received"} == names
        assert {name for kind, name in secret.views[party].counts() if kind == "observed"} == {"OwnSplit"}


def test_passive_parties_do_not_talk_to_each_other(secret: Run) -> None:
    for party in NAMES[1:]:
        assert {peer for peer, _ in secret.wires[party].sent} == {"active"}


def test_view_and_frames_tell_the_same(secret: Run) -> None:
    """The view keeps every frame that arrived, in full but for ciphertexts."""
    for party in NAMES[1:]:
        frames = [decode(frame) for frame in secret.frames_to(party)]
        for name in TO_PASSIVE:
            sent = [(step, message) for message, step in frames if wire_name(type(message)) == name]
            kept = [(each.step, each.message) for each in secret.views[party].received(schema(name))]  # type: ignore[type-var]
            assert len(kept) == len(sent)
            if name not in ("ForestRows", "TreeRows", "KeyOffer"):
                assert kept == sent


# -- the values: what the masks say ------------------------------------------------------------------------------------


def splits_of(run: Run, parts: Mapping[str, np.ndarray]) -> Iterator[dict[int, np.ndarray]]:
    """Yield for each tree, for each split, whether its owner's column sends each training row left: from the shares."""
    share = run.active.share
    own = {party: each.own for party, each in run.shares.items()}
    for tree in share.trees:
        yield {
            node: own[share.parties[owner]].answers(parts[share.parties[owner]])[record]
            for node, owner, record in zip(tree.nodes, tree.owners, tree.records, strict=True)
        }


def test_row_masks_say_how_columns_split_and_nothing_else(secret: Run, kind: str) -> None:
    """Each mask that a party was told is a split of its owner's column, over the rows of a node that it knew."""
    parts = setting(kind).parts
    told = 0
    for party in NAMES[1:]:
        view = secret.views[party]
        samples = {each.message.tree: each.message.rows.value.unpack(ROWS) for each in view.received(TreeStart)}
        for tree, by_column in enumerate(splits_of(secret, parts)):
            rows_of = {0: samples[tree]}
            for node, left in by_column.items():
                rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node] & left, rows_of[node] & ~left
            for each in view.received(LevelRequest):
                if each.message.tree == tree:
                    for split in each.message.splits.value:
                        rows = rows_of[split.node]
                        assert split.left.unpack(int(rows.sum())).tolist() == by_column[split.node][rows].tolist()
                        told += 1
    assert told > 4


def test_of_two_siblings_the_smaller_is_summed(secret: Run, kind: str) -> None:
    """The other follows by subtraction after decryption."""
    parts, built = setting(kind).parts, 0
    for party in NAMES[1:]:
        view = secret.views[party]
        samples = {each.message.tree: each.message.rows.value.unpack(ROWS) for each in view.received(TreeStart)}
        for tree, by_column in enumerate(splits_of(secret, parts)):
            size = {}
            rows_of = {0: samples[tree]}
            for node, left in by_column.items():
                rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node] & left, rows_of[node] & ~left
                size |= {child: int(rows_of[child].sum()) for child in (2 * node + 1, 2 * node + 2)}
            for each in view.received(LevelRequest):
                if each.message.tree == tree and each.message.depth:
                    for node in each.message.build:
                        sibling = node + 1 if node % 2 else node - 1
                        assert size[node] <= size[sibling]
                        assert sibling not in each.message.build
                        built += 1
    assert built > 4


@pytest.mark.parametrize("kind", SEEN, indirect=True)
def test_row_samples_do_not_depend_on_the_labels(kind: str) -> None:
    """The rows of a tree are the same for other labels."""
    base = setting(kind)
    assert samples(base) == samples(replace(base, labels=np.roll(base.labels, 7)))


def test_goss_samples_do() -> None:
    """From the second tree on rows are chosen by their gradients, and a passive party is told which: a leak of its own
    that uniform sampling does not have."""
    given = setting("two classes", seed=12)
    given = replace(given, params=replace(given.params, row_fraction=1.0, **GOSS))
    one, other = samples(given), samples(replace(given, labels=np.roll(given.labels, 7)))
    assert one[0] == other[0]  # all gradients are equal in size at first
    assert one[1:] != other[1:]


def samples(given: Setting) -> list[RowMask]:
    return [received.message.rows for received in given.run().views["left"].received(TreeStart)]


def test_what_tells_of_columns_to_the_active_party(secret: Run, kind: str) -> None:
    """Sizes and kinds of a party's columns, which the sums need; never a name, a threshold or a category's name."""
    for party in NAMES[1:]:
        texts = {each.column for each in secret.views[party].observed(OwnSplit)}
        texts |= set(secret.shares[party].columns) | {"abcdefg"}
        frames = [frame for _, frame in secret.wires[party].sent]
        assert not any(text.encode() in frame for text in texts for frame in frames)
        numbers = np.array([t for t in secret.shares[party].own.thresholds if t != EVERYTHING])
        assert occurrences(floats_of(numbers), windows(frames)) == 0
    for each in secret.views["active"].received(LevelHistograms):
        assert set(each.message.kinds) <= {0, 1}
        assert max(each.message.sizes) <= 8


# -- the bytes: no number that the active party must hide --------------------------------------------------------------


def secrets(run: Run, given: Setting) -> dict[str, np.ndarray]:
    """Return what must not be read: labels, weights, gradients, hessians, margins, leaf weights; as 64-bit patterns."""
    share, rows = run.active.share, len(given.labels)
    values: dict[str, list[np.ndarray]] = {"leaf weights": [], "margins": [run.active.margins]}
    if share.kind != "forest":
        values["margins"] += margins_after_each_tree(run, given)
        made = reference.make_objective(given)
        for margins in [np.tile(share.base, (rows, 1)), *values["margins"][1:]]:
            g, h = made.gradients(margins, np.asarray(given.labels, dtype=np.float64))
            for name, each in (("gradients", g), ("hessians", h)):
                values.setdefault(name, []).extend(
                    [each, *([] if given.weights is None else [each * given.weights[:, None]])]
                )
    if not given.classes:
        values["labels"] = [np.asarray(given.labels)]
    values["leaf weights"] += [np.array(tree.weights) for tree in share.trees]
    together = {name: np.concatenate([each.ravel() for each in arrays]) for name, arrays in values.items()}
    return {name: each for name, each in together.items() if len(each)}


def margins_after_each_tree(run: Run, given: Setting) -> list[np.ndarray]:
    share, margins, found = run.active.share, np.tile(run.active.share.base, (len(given.labels), 1)), []
    for tree, by_column in zip(share.trees, splits_of(run, given.parts), strict=True):
        leaf = np.zeros(len(margins), dtype=np.int64)
        for node in tree.nodes:
            here = leaf == node
            leaf[here] = np.where(by_column[node][here], 2 * node + 1, 2 * node + 2)
        weights = np.array(tree.weights).reshape(len(tree.leaves), -1)
        into = slice(None) if tree.output < 0 else slice(tree.output, tree.output + 1)
        margins[:, into] += weights[[tree.leaves.index(each) for each in leaf]]
        found.append(margins.copy())
    return found


def test_no_gradient_margin_or_leaf_weight_in_the_bytes(secret: Run, kind: str) -> None:
    """Neither in the frames nor in the stored records.

    A chance hit has a probability below 1e-8: some 10,000 patterns of 64 bits, some 1,000,000 positions.
    """
    seen = [windows(secret.frames_to(party)) for party in NAMES[1:]]
    seen += [windows(entry.payload for entry in secret.views[party]._entries) for party in NAMES[1:]]
    everything = np.unique(np.concatenate(seen))
    for name, values in secrets(secret, setting(kind)).items():
        wanted = patterns(values)
        assert len(wanted) > 20, name
        assert occurrences(wanted, everything) == 0, name


@pytest.mark.parametrize("kind", SEEN[:4], indirect=True)
def test_the_search_finds_what_is_not_hidden(kind: str) -> None:
    """Under the engine that hides nothing the gradients are there."""
    plain = setting(kind).run()
    wanted = patterns(secrets(plain, setting(kind))["gradients"])
    assert occurrences(wanted, windows(plain.frames_to("left"))) > 90
    weights = np.array(plain.active.share.trees[0].weights[:3])
    assert occurrences(patterns(weights), windows([b"x" + struct.pack("<3d", *weights)])) == 3


def test_no_mask_of_the_whole_table_is_the_label(secret: Run, kind: str) -> None:
    """Masks over a tree's rows: no class nor its complement, in any packing."""
    given = setting(kind)
    packed = set()
    for number in range(len(given.classes)):
        labels = np.asarray(given.labels) == number
        packed |= {RowMask.pack(mask).data for mask in (labels, ~labels)}
        packed |= {np.packbits(mask, bitorder="big").tobytes() for mask in (labels, ~labels)}
        packed |= {mask.astype(np.uint8).tobytes() for mask in (labels, ~labels)}
    packed |= {np.asarray(given.labels).astype(dtype).tobytes() for dtype in (np.uint8, np.float64)}
    for frame in secret.frames_to("left") + secret.frames_to("right"):
        assert not any(pattern in frame for pattern in packed)


# -- equal views -----------------------------------------------------------------------------------------------------


def digests(run: Run) -> dict[str, str]:
    return {party: view.digest() for party, view in run.views.items()}


def test_equal_seeds_give_equal_views_and_other_ciphertexts(secret: Run, kind: str) -> None:
    again = setting(kind, engine="paillier", bits=512).run()
    assert digests(again) == digests(secret)
    assert again.active.share == secret.active.share
    for party in NAMES[1:]:
        for name in ("ForestRows", "TreeRows", "KeyOffer"):
            for one, two in zip(of_type(secret, party, name), of_type(again, party, name), strict=True):
                assert one != two
    assert of_type(secret, "active", "LevelSums") != of_type(again, "active", "LevelSums")


def of_type(run: Run, party: str, name: str) -> list[Message]:
    return [message for frame in run.frames_to(party) if wire_name(type(message := decode(frame)[0])) == name]


def test_fresh_rows_are_encrypted_anew_for_each_tree(secret: Run, kind: str) -> None:
    """But for a forest, which fits the same labels in all trees: its rows travel once."""
    blocks = [message.gradients for message in of_type(secret, "left", "TreeRows")]  # type: ignore[attr-defined]
    assert len(blocks) == (0 if "forest" in kind else 9 if kind == "three classes, a tree each" else 3)
    assert len(of_type(secret, "left", "ForestRows")) == ("forest" in kind)
    assert len({block.data for block in blocks}) == len(blocks)
    assert len({block.key for block in blocks}) == (0 if "forest" in kind else 1)
    assert all(message.gradients is None for message in of_type(secret, "left", "TreeStart"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["two classes", "forest of classes"], indirect=True)
def test_timing_does_not_change_a_view(kind: str) -> None:
    """Every send and receive sleeps for a while of its own."""
    calm = setting(kind).run()
    for number in range(3):
        clock = random.Random(number)
        hasty = setting(kind, nap=lambda clock=clock: clock.random() * 0.004).run()  # type: ignore[misc]
        assert digests(hasty) == digests(calm)
        assert hasty.active.share == calm.active.share


def test_other_seeds_give_other_views() -> None:
    seen = [digests(setting().run(seed=seed)) for seed in range(3)]
    for party in NAMES:
        assert len({each[party] for each in seen}) == 3


def test_stored_views_equal_those_in_memory(tmp_path: object) -> None:
    memory = setting().run()
    stored = setting(folder=tmp_path).run()
    assert digests(stored) == digests(memory)
    for party in NAMES:
        again = View.load(tmp_path / party)  # type: ignore[operator]
        assert again.digest() == memory.views[party].digest()


def test_meters_and_transcripts_count_the_same(secret: Run) -> None:
    """Messages and bytes by type: as metered, as recorded, as traveled."""
    for party, view in secret.views.items():
        meter, frames = secret.meters[party], secret.wires[party].sent
        counts = view.counts()
        for name, number in meter.messages.items():
            assert counts["sent", name] == (number, meter.bytes[name])
        assert sum(meter.messages.values()) == len(frames)
        assert sum(meter.bytes.values()) == sum(len(frame) for _, frame in frames)
