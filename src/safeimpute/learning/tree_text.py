"""The text of boosted trees, checked line by line before LightGBM reads it: its own reader trusts what it is given.

LightGBM follows child and feature numbers without looking, so a forged text ends the process. Only what training
writes passes: the header's known lines, trees whose numbers are finite and whose nodes form one tree, and nothing else.
"""

import hashlib
import re
import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import ModelFolderError

MOST_FEATURES = 100_000
OBJECTIVES = ("regression", "huber", "binary sigmoid:1", "cross_entropy")
HEADER = {
    "version": "v4",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "0",
}  # lines that can only say one thing
TOLD = ("max_feature_idx", "objective", "feature_names", "feature_infos", "tree_sizes")
SPLIT_LINES = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
INTERNAL_LINES = ("internal_value", "internal_weight", "internal_count")
LEAF_LINES = ("leaf_value", "leaf_weight", "leaf_count")
CATEGORY_LINES = ("cat_boundaries", "cat_threshold")
LINES = (*("num_leaves", "num_cat", *SPLIT_LINES, *LEAF_LINES, *INTERNAL_LINES), *("is_linear", "shrinkage"))
END = "end of trees"
CATEGORICAL = 1  # bit of a split's decision_type
LARGEST_DECISION = 11
_WHOLE = re.compile(r"[0-9]{1,9}")
# How columns were used and how training was told; no value of it holds a path.
_TAIL = re.compile(
    rf"{END}\n\nfeature_importances:\n(Column_\d+=\d+\n)*\nparameters:\n(\[[a-z0-9_]+: [\w.,:+-]*\]\n)*"
    r"\nend of parameters\n\npandas_categorical:(null|\[\])\n"
)
Numbers = NDArray[np.float64]
_seen: set[bytes] = set()  # digests of texts found sound in this process: a model loaded again is not read again


def valid_trees(text: str) -> str:
    """The text, after every line of it was checked.

    Raises ModelFolderError, which names the rule and quotes nothing.
    """
    if not isinstance(text, str) or not text.isascii() or not text.startswith("tree\n"):
        raise _unsound("they do not begin as trees do")
    digest = hashlib.sha256(text.encode()).digest()
    if digest not in _seen:
        _look_through(text)
        _seen.add(digest)
    return text


def _look_through(text: str) -> None:
    head, gap, body = text.partition("\n\n")
    if not gap:
        raise _unsound("they have a header only")
    told = _header(head)
    features = _whole(told["max_feature_idx"], "max_feature_idx") + 1
    listed = [told[name].split(" ") for name in ("feature_names", "feature_infos")]
    if features > MOST_FEATURES or any(len(each) != features or "" in each for each in listed):
        raise _unsound("their header names another number of columns than it counts")
    sizes = [_whole(each, "tree_sizes") for each in told["tree_sizes"].split()]
    trees = _cut(body, sizes)
    _check(trees, features)
    if not _TAIL.fullmatch(body[sum(sizes) :]):
        raise _unsound("something follows that training does not write")


def _header(head: str) -> dict[str, str]:
    told: dict[str, str] = {}
    for line in head.split("\n")[1:]:
        name, equals, value = line.partition("=")
        if not equals or name in told or name not in (*HEADER, *TOLD):
            raise _unsound("their header has an unknown line")
        told[name] = value
    if set(told) != {*HEADER, *TOLD} or any(told[name] != value for name, value in HEADER.items()):
        raise _unsound("their header says something else than ours")
    if told["objective"] not in OBJECTIVES:
        raise _unsound("they were trained for another objective")
    return told


def _cut(body: str, sizes: list[int]) -> list[dict[str, str]]:
    """The lines of every tree, by name; LightGBM finds trees by these sizes alone."""
    trees, place = [], 0
    for number, size in enumerate(sizes):
        block = body[place : place + size]
        place += size
        first, *lines = block.rstrip("\n").split("\n")
        if len(block) != size or first != f"Tree={number}" or not block.endswith("\n"):
            raise _unsound("a tree does not stand where its size says")
        named = [line.partition("=") for line in lines]
        tree = {name: value for name, _, value in named}
        if len(tree) != len(lines) or set(tree) - {*LINES, *CATEGORY_LINES} or set(LINES) - set(tree):
            raise _unsound("a tree has other lines than ours")
        trees.append(tree)
    if not trees or not body[place:].startswith(END):
        raise _unsound("they do not end where their sizes say")
    return trees


def _check(trees: list[dict[str, str]], features: int) -> None:
    """Every number of every tree, all trees at once."""
    leaves = np.array([_whole(tree["num_leaves"], "num_leaves") for tree in trees])
    if (leaves < 1).any() or any((tree["is_linear"], _finite_one(tree["shrinkage"])) != ("0", True) for tree in trees):
        raise _unsound("a tree has no leaf, or a kind we do not train")
    splits = leaves - 1
    found = {name: _numbers(trees, name, splits) for name in (*SPLIT_LINES, *INTERNAL_LINES)}
    found |= {name: _numbers(trees, name, leaves) for name in LEAF_LINES}
    _check_structure(found["left_child"], found["right_child"], leaves)
    feature, kind = found["split_feature"], found["decision_type"]
    if not _within(feature, 0, features - 1) or not _within(kind, 0, LARGEST_DECISION):
        raise _unsound("a split asks for a column or a kind of question there is not")
    _check_categories(trees, found["threshold"], kind.astype(np.int64) & CATEGORICAL == 1, splits)


def _check_structure(left: Numbers, right: Numbers, leaves: NDArray[np.int64]) -> None:
    """Each node's children come after it, and every node and leaf but the first has one parent: one tree, no circle."""
    splits = leaves - 1
    tree = np.repeat(np.arange(len(leaves)), splits)
    first_split = np.repeat(np.cumsum(splits) - splits, splits)
    own = np.arange(len(tree)) - first_split
    if not _within(np.concatenate([left, right]), -(2**31), 2**31):
        raise _unsound("a child is no whole number")
    children = np.concatenate([left, right]).astype(np.int64)
    parent, trees = np.tile(own, 2), np.tile(tree, 2)
    inner = children >= 0
    leaf = -children - 1
    if (children[inner] <= parent[inner]).any() or (children[inner] >= splits[trees[inner]]).any():
        raise _unsound("a node leads to no node of its tree")
    if (leaf[~inner] >= leaves[trees[~inner]]).any():
        raise _unsound("a node leads to no leaf of its tree")
    nodes = np.bincount((np.cumsum(splits) - splits)[trees[inner]] + children[inner], minlength=int(splits.sum()))
    ends = np.bincount((np.cumsum(leaves) - leaves)[trees[~inner]] + leaf[~inner], minlength=int(leaves.sum()))
    roots = np.unique((np.cumsum(splits) - splits)[splits > 0])
    nodes[roots] += 1
    alone = (np.cumsum(leaves) - leaves)[splits == 0]
    ends[alone] += 1
    if (nodes != 1).any() or (ends != 1).any():
        raise _unsound("a node or a leaf is reached twice, or never")


def _check_categories(
    trees: list[dict[str, str]], threshold: Numbers, categorical: NDArray[np.bool_], splits: NDArray[np.int64]
) -> None:
    """A split by category names one of its tree's sets, and the sets lie inside their line."""
    counts = np.array([_whole(tree["num_cat"], "num_cat") for tree in trees])
    for tree, sets in zip(trees, counts, strict=True):
        if [name in tree for name in CATEGORY_LINES] != [bool(sets)] * len(CATEGORY_LINES):
            raise _unsound("a tree's categories are not all there")
        if sets:
            edges, bits = _one_line(tree, "cat_boundaries"), _one_line(tree, "cat_threshold")
            rising = (np.diff(edges) > 0).all() and len(edges) == sets + 1 and edges[0] == 0
            if not rising or edges[-1] != len(bits) or not _within(bits, 0, 2**32 - 1):
                raise _unsound("a set of categories does not lie inside its line")
    allowed = np.repeat(counts, splits)[categorical]
    named = threshold[categorical]
    if (named % 1 != 0).any() or (named < 0).any() or (named >= allowed).any():
        raise _unsound("a split asks for a set of categories there is not")


def _numbers(trees: list[dict[str, str]], name: str, lengths: NDArray[np.int64]) -> Numbers:
    """One line of all trees as numbers: as many as the tree has splits or leaves, each finite.

    A threshold may be infinite (absent or not, whatever the amount), and a tree of one leaf has no weight of it.
    """
    lines = [tree[name] for tree in trees]
    counts = np.array([line.count(" ") + 1 if line else 0 for line in lines])
    lone = (lengths == 1) & (counts == 0) & (name in LEAF_LINES[1:])
    if ((counts != lengths) & ~lone).any():
        raise _unsound("a line of a tree has too few or too many numbers")
    return _finite(" ".join(filter(None, lines)), infinite=name == "threshold")


def _one_line(tree: Mapping[str, str], name: str) -> Numbers:
    return _finite(tree[name])


def _finite(line: str, *, infinite: bool = False) -> Numbers:
    """Numbers with one blank between them; NumPy's reader stops at what is none, so they are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = np.fromstring(line, dtype=np.float64, sep=" ") if line else np.empty(0)
        except (ValueError, DeprecationWarning):
            raise _unsound("a number is none") from None
    if len(found) != (line.count(" ") + 1 if line else 0):
        raise _unsound("a number is none")
    if np.isnan(found).any() or not (infinite or np.isfinite(found).all()):
        raise _unsound("a number is not finite")
    return found


def _finite_one(text: str) -> bool:
    return len(_finite(text)) == 1


def _within(numbers: Numbers, low: float, high: float) -> bool:
    return bool(((numbers >= low) & (numbers <= high) & (numbers % 1 == 0)).all())


def _whole(text: str, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise _unsound(f"{name} is no whole number")
    return int(text)


def _unsound(why: str) -> ModelFolderError:
    return ModelFolderError(f"the model's trees are not what safeimpute writes: {why}. Fit again.")
