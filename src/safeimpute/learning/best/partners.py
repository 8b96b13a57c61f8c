"""Which labs the joint course is told of: all where they are few, else those that tell most about the target.

What a joint course costs grows with the square of its labs and more; with at most so many partners it is bounded.
"""

import numpy as np

from safeimpute.learning.best.course import Course, information
from safeimpute.visits.arrays import FloatArray, IntArray

PARTNERS = 10
FIRST = 1  # place of the other labs among the regressors of the course; the constant stands before them


def choose_partners(
    course: Course, design: FloatArray, target: FloatArray, time: FloatArray, own: IntArray, labs: int
) -> IntArray:
    """Places of the partners among the `labs` other labs, in order, chosen from the visits the course was learnt from.

    Beyond a few, one after the other: the lab that leaves least open of what attributes, the partners before it and
    the patient's own targets do not say (forward selection in the regression of the course).
    """
    if labs <= PARTNERS:
        return np.arange(labs)
    among, towards = information(course, design, target, time, own)
    constant_and_attributes = [0, *range(FIRST + 2 * labs, len(towards))]
    for column in constant_and_attributes:
        among, towards = _swept(among, towards, column)
    chosen: list[int] = []
    for _ in range(PARTNERS):
        there = slice(FIRST, FIRST + labs)
        gain = towards[there] ** 2 / np.diag(among)[there]
        gain[chosen] = -1.0
        chosen.append(int(np.argmax(gain)))
        among, towards = _swept(among, towards, FIRST + chosen[-1])
    return np.sort(np.array(chosen, dtype=np.int64))


def _swept(among: FloatArray, towards: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
    """Normal equations of what one regressor leaves of the others and of the target."""
    said = among[column] / among[column, column]
    left, toward = among - np.outer(said, among[column]), towards - said * towards[column]
    left[column, column] = among[column, column]  # never asked for again
    return left, toward
