"""What a party sees: nothing of the labels in the clear, the same in every run, whatever the threads do."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import msgspec.inspect as inspect
import numpy as np
import pytest

from labelward.kernels.fixed_point import encode as fixed_point
from labelward.kernels.loss import logistic_gradients
from labelward.messages.base import Message, RowMask
from labelward.messages.codec import decode, schema
from labelward.messages.tree import Level, TreeStart
from labelward.party.view import View
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.share import Records
from wiring import Run, Setting, make_labels, make_parts

NAMES = ("active", "left", "right")


def setting(seed: int = 11, **changes: object) -> Setting:
    parts = make_parts(seed, 90, dict.fromkeys(NAMES, 2))
    params = SecureBoost(trees=3, depth=3, bins=8, row_fraction=0.8, feature_fraction=0.5)
    return Setting(parts, make_labels(seed, parts), params, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def secret() -> Run:
    """A run under encryption with a small key: what is looked at is what is hidden, not how well."""
    return setting(engine="paillier", bits=512).run()


# -- the schema: what the types of all messages to a passive party can hold ----------------------------------------

TO_PASSIVE = ("Hello", "KeyOffer", "TreeStart", "Level", "ChosenSplits", "TrainingEnd", "PredictRequest")

READABLE = {
    "Hello.version": "str",
    "Hello.party": "str",
    "Hello.job.key": "str",
    "Hello.job.value": "str",
    "Hello.rows": "int",
    "Hello.nonce": "bytes",
    "PublicMaterial.engine": "str",
    "PublicMaterial.bits": "int",
    "PublicMaterial.data": "bytes",
    "TreeStart.tree": "int",
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
    "ChosenSplits.tree": "int",
    "ChosenSplits.depth": "int",
    "ChosenSplit.node": "int",
    "ChosenSplit.column": "int",
    "ChosenSplit.code": "int",
    "ChosenSplit.record": "int",
    "TrainingEnd.trees": "int",
    "KeyOffer.model": "str",
    "PredictRequest.model": "str",
    "PredictRequest.start": "int",
    "PredictRequest.stop": "int",
}


def leaves(info: inspect.Type, path: str) -> dict[str, str]:
    """Return each readable value of a type, by class and field, and its kind."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            return {k: v for field in fields for k, v in leaves(field.type, f"{cls.__name__}.{field.name}").items()}
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
    for name in TO_PASSIVE:
        found |= leaves(inspect.type_info(schema(name)), name)
    assert found == READABLE


def test_only_these_types_reach_a_passive_party(secret: Run) -> None:
    for party in NAMES[1:]:
        names = {type(decode(frame)[0]).__name__ for frame in secret.frames_to(party)}
        assert names == set(TO_PASSIVE)
        assert {name for kind, name in secret.views[party].counts() if kind == "received"} == set(TO_PASSIVE)
        assert {name for kind, name in secret.views[party].counts() if kind == "observed"} == {"OwnSplit"}


def test_passive_parties_do_not_talk_to_each_other(secret: Run) -> None:
    for party in NAMES[1:]:
        assert {peer for peer, _ in secret.wires[party].sent} == {"active"}


def test_view_and_frames_tell_the_same(secret: Run) -> None:
    """The view keeps every frame that arrived, in full but for ciphertexts."""
    for party in NAMES[1:]:
        frames = [decode(frame) for frame in secret.frames_to(party)]
        for name in TO_PASSIVE:
            sent = [(step, message) for message, step in frames if type(message).__name__ == name]
            kept = [(each.step, each.message) for each in secret.views[party].received(schema(name))]  # type: ignore[type-var]
            assert len(kept) == len(sent)
            if name not in ("TreeStart", "KeyOffer"):
                assert kept == sent


# -- the values: what the masks say ------------------------------------------------------------------------------------


def splits_of(run: Run, parts: dict[str, np.ndarray]) -> Iterator[dict[int, np.ndarray]]:
    """Yield for each tree, for each split, whether its owner's column sends each training row left: from the shares."""
    share = run.active.share
    own: dict[str, Records] = {"active": share.own} | {party: out.share.own for party, out in run.passive.items()}
    for tree in share.trees:
        yield {
            node: own[share.parties[owner]].answers(parts[share.parties[owner]])[record]
            for node, owner, record in zip(tree.nodes, tree.owners, tree.records, strict=True)
        }


def test_row_masks_say_how_columns_split_and_nothing_else(secret: Run) -> None:
    """Each mask that a party was told is a threshold on its owner's column, over the rows of a node that it knew."""
    parts = dict(setting().parts)
    told = 0
    for party in NAMES[1:]:
        view = secret.views[party]
        samples = {each.message.tree: each.message.rows.unpack(90) for each in view.received(TreeStart)}
        for tree, by_column in enumerate(splits_of(secret, parts)):
            rows_of = {0: samples[tree]}
            for node, left in by_column.items():
                rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node] & left, rows_of[node] & ~left
            for each in view.received(Level):
                if each.message.tree == tree:
                    for split in each.message.splits:
                        rows = rows_of[split.node]
                        assert split.left.unpack(int(rows.sum())).tolist() == by_column[split.node][rows].tolist()
                        told += 1
    assert told > 10


def test_of_two_siblings_the_smaller_is_summed(secret: Run) -> None:
    """The other follows by subtraction after decryption."""
    parts, built = dict(setting().parts), 0
    for party in NAMES[1:]:
        view = secret.views[party]
        samples = {each.message.tree: each.message.rows.unpack(90) for each in view.received(TreeStart)}
        for tree, by_column in enumerate(splits_of(secret, parts)):
            size = {}
            rows_of = {0: samples[tree]}
            for node, left in by_column.items():
                rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node] & left, rows_of[node] & ~left
                size |= {child: int(rows_of[child].sum()) for child in (2 * node + 1, 2 * node + 2)}
            for each in view.received(Level):
                if each.message.tree == tree and each.message.depth:
                    for node in each.message.build:
                        sibling = node + 1 if node % 2 else node - 1
                        assert size[node] <= size[sibling]
                        assert sibling not in each.message.build
                        built += 1
    assert built > 10


def test_row_samples_do_not_depend_on_the_labels() -> None:
    """The rows of a tree are the same for other labels."""
    base = setting()
    other = setting()
    other.labels = np.roll(base.labels, 7)
    masks = []
    for each in (base, other):
        view = each.run().views["left"]
        masks.append([received.message.rows for received in view.received(TreeStart)])
    assert masks[0] == masks[1]


# -- the bytes: no number that the active party must hide --------------------------------------------------------------


def secrets(run: Run, given: Setting) -> dict[str, np.ndarray]:
    """Return gradients and hessians of every round, margins and leaf weights, as floats and in fixed point."""
    share, n = run.active.share, len(given.labels)
    margins = np.zeros(n)
    values: dict[str, list[np.ndarray]] = {"gradients": [], "hessians": [], "margins": [], "leaf weights": []}
    for tree, by_column in zip(share.trees, splits_of(run, dict(given.parts)), strict=True):
        g, h = logistic_gradients(margins, given.labels.astype(np.float64))
        values["gradients"].append(g)
        values["hessians"].append(h)
        leaf = np.zeros(n, dtype=np.int64)
        for node in tree.nodes:
            here = leaf == node
            leaf[here] = np.where(by_column[node][here], 2 * node + 1, 2 * node + 2)
        margins = margins + np.array([tree.weights[tree.leaves.index(each)] for each in leaf])
        values["margins"].append(margins)
        values["leaf weights"].append(np.array(tree.weights))
    values["margins"].append(run.active.margins)
    return {name: np.concatenate(arrays) for name, arrays in values.items()}


def patterns(values: np.ndarray) -> np.ndarray:
    """Return the eight bytes of each number in four encodings: float64 and fixed-point int64, in both byte orders."""
    values = values[values != 0.0]  # eight zero bytes are no secret
    found = [values.astype("<f8"), values.astype(">f8")]
    numbers = fixed_point(values, 30)
    found += [numbers.astype("<i8"), numbers.astype(">i8")]
    return np.unique(np.concatenate([each.view("<u8") for each in found]))


def occurrences(wanted: np.ndarray, data: bytes) -> int:
    if len(data) < 8:
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
    return int(np.isin(np.ascontiguousarray(windows).view("<u8").ravel(), wanted).sum())


def test_no_gradient_margin_or_leaf_weight_in_the_bytes(secret: Run) -> None:
    """Neither in the frames nor in the stored records.

    A chance hit has a probability below 1e-10: some thousand patterns of 64 bits, some 100,000 positions.
    """
    for name, values in secrets(secret, setting()).items():
        wanted = patterns(values)
        assert len(wanted) > 20, name
        for party in NAMES[1:]:
            assert sum(occurrences(wanted, frame) for frame in secret.frames_to(party)) == 0, name
            stored = (entry.payload for entry in secret.views[party]._entries)
            assert sum(occurrences(wanted, payload) for payload in stored) == 0, name


def test_the_search_finds_what_is_not_hidden() -> None:
    """Under the engine that hides nothing the gradients are there."""
    plain = setting().run()
    wanted = patterns(secrets(plain, setting())["gradients"])
    assert sum(occurrences(wanted, frame) for frame in plain.frames_to("left")) > 90
    weights = struct.pack("<3d", *plain.active.share.trees[0].weights[:3])
    assert occurrences(patterns(np.array(plain.active.share.trees[0].weights)), b"x" + weights) == 3


def test_no_mask_of_the_whole_table_is_the_label(secret: Run) -> None:
    """Masks over a tree's rows: neither the class nor its complement, in any packing."""
    labels = setting().labels.astype(np.bool_)
    packed = {RowMask.pack(mask).data for mask in (labels, ~labels)}
    packed |= {np.packbits(mask, bitorder="big").tobytes() for mask in (labels, ~labels)}
    packed |= {mask.astype(np.uint8).tobytes() for mask in (labels, ~labels)}
    for frame in secret.frames_to("left") + secret.frames_to("right"):
        assert not any(pattern in frame for pattern in packed)


# -- equal views -----------------------------------------------------------------------------------------------------


def digests(run: Run) -> dict[str, str]:
    return {party: view.digest() for party, view in run.views.items()}


def test_equal_seeds_give_equal_views_and_other_ciphertexts(secret: Run) -> None:
    again = setting(engine="paillier", bits=512).run()
    assert digests(again) == digests(secret)
    assert again.active.share == secret.active.share
    for party in NAMES[1:]:
        for name in ("TreeStart", "KeyOffer"):
            for one, two in zip(of_type(secret, party, name), of_type(again, party, name), strict=True):
                assert one != two
    assert of_type(secret, "active", "LevelSums") != of_type(again, "active", "LevelSums")


def of_type(run: Run, party: str, name: str) -> list[Message]:
    return [message for frame in run.frames_to(party) if type(message := decode(frame)[0]).__name__ == name]


def test_fresh_rows_are_encrypted_anew_for_each_tree(secret: Run) -> None:
    blocks = [message.gradients for message in of_type(secret, "left", "TreeStart")]  # type: ignore[attr-defined]
    assert len(blocks) == 3
    assert len({block.data for block in blocks}) == 3
    assert len({block.key for block in blocks}) == 1


def test_timing_does_not_change_a_view() -> None:
    """Every send and receive sleeps for a while of its own."""
    calm = setting().run()
    for number in range(3):
        clock = random.Random(number)
        hasty = setting(nap=lambda clock=clock: clock.random() * 0.004).run()  # type: ignore[misc]
        assert digests(hasty) == digests(calm)
        assert hasty.active.share == calm.active.share


def test_other_seeds_give_other_views() -> None:
    seen = [digests(setting(seed=11).run(seed=seed)) for seed in range(3)]
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
    """Messages and bytes by type: as metered, as recorded, as travelled."""
    for party, view in secret.views.items():
        meter, frames = secret.meters[party], secret.wires[party].sent
        counts = view.counts()
        for name, number in meter.messages.items():
            assert counts["sent", name] == (number, meter.bytes[name])
        assert sum(meter.messages.values()) == len(frames)
        assert sum(meter.bytes.values()) == sum(len(frame) for _, frame in frames)
