# SPDX-License-Identifier: Apache-2.0
"""What a policy predicts: a class, a value or a rank. No other module names a kind; they ask these three objects.

A program knows two kinds of answers: the class with the best score, and one score as a value. A rank is answered as a
value, by which the rows of a group are ordered.
"""

from __future__ import annotations

from ..base.record import record


@record(frozen=True, slots=True)
class Kind:
    """One kind.

    Parameters
    ----------
    name : as ``[data] task`` and manifests have it
    answer : as an Answer of a program has it; its place in ``ANSWERS`` is the word of the format
    output : of an ONNX model and of a record, what is answered
    has_classes : answers are indices of classes; otherwise numbers
    has_unit : answers have a unit, are learned in standard units and have a scale
    needs_groups : it is measured within groups of rows
    estimator : what f0 is, in words
    predict : f0's method that learning asks
    default_f0 : of scikit-learn
    default_measure : of ``batch.quality``, by its kind
    shown : behind the target's name on a page
    caption : of a page's table of rows by part
    note : in a new hardcase.toml, what the target is
    """

    name: str
    answer: str
    output: str
    has_classes: bool
    has_unit: bool
    needs_groups: bool
    estimator: str
    predict: str
    default_f0: str
    default_measure: str
    shown: str
    caption: str
    note: str


CLASS = Kind(
    name="class", answer="class", output="label", has_classes=True, has_unit=False, needs_groups=False,
    estimator="classifier", predict="predict_proba", default_f0="HistGradientBoostingClassifier",
    default_measure="accuracy", shown="", caption="rows by class and part",
    note='which of its classes; "value" for a number, "rank" for relevances within a group',
)  # fmt: skip
VALUE = Kind(
    name="value", answer="value", output="value", has_classes=False, has_unit=True, needs_groups=False,
    estimator="regressor", predict="predict", default_f0="HistGradientBoostingRegressor",
    default_measure="r2", shown=", a number", caption="values by part",
    note='a number; "class" for one of few, "rank" for relevances within a group',
)  # fmt: skip
RANK = Kind(
    name="rank", answer="value", output="value", has_classes=False, has_unit=False, needs_groups=True,
    estimator="regressor", predict="predict", default_f0="HistGradientBoostingRegressor",
    default_measure="ndcg", shown=", a relevance within its group", caption="values by part",
    note='relevances within a group; "class" for one of few, "value" for a number',
)  # fmt: skip
NAMES = (CLASS.name, VALUE.name, RANK.name)
ANSWERS = (CLASS.answer, VALUE.answer)


def kind_of(n_classes: int, is_rank: bool = False) -> Kind:
    """The kind of a program or problem with so many classes, 0 where numbers are answered.

    >>> kind_of(3).name, kind_of(0).name, kind_of(0, is_rank=True).name
    ('class', 'value', 'rank')
    """
    return CLASS if n_classes else RANK if is_rank else VALUE


def answers_number(answer: str) -> bool:
    """Whether an Answer with this of ``ANSWERS`` answers a number, by its score, and not a class."""
    return answer == VALUE.answer


def kind_named(name: str) -> Kind:
    """The kind of one of ``NAMES``.

    >>> kind_named("rank").default_measure
    'ndcg'
    """
    return (CLASS, VALUE, RANK)[NAMES.index(name)]
