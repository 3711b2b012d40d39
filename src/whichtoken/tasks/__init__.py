"""Tasks: what models are for. Each task is one file, and no file outside this folder branches on the kind of input."""

from whichtoken.tasks.answer import Answer
from whichtoken.tasks.classify import Classify
from whichtoken.tasks.image import ClassifyImage
from whichtoken.tasks.task import (
    Example,
    Gold,
    Opened,
    Piece,
    Reason,
    Scored,
    ScoredPiece,
    Task,
    Unit,
    register,
    task_for,
)

for _task in (Classify, Answer, ClassifyImage):
    register(_task)

__all__ = [
    "Example",
    "Gold",
    "Opened",
    "Piece",
    "Reason",
    "Scored",
    "ScoredPiece",
    "Task",
    "Unit",
    "register",
    "task_for",
]
