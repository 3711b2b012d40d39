"""Tasks, one file each. No file outside this folder branches on the kind of input."""

from whichtoken.tasks.answer import QuestionAnswering
from whichtoken.tasks.classify import Classification
from whichtoken.tasks.generate import TextGeneration
from whichtoken.tasks.image import ImageClassification
from whichtoken.tasks.task import (
    BenchInput,
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
from whichtoken.tasks.tokens import TokenClassification

for _task in (Classification, QuestionAnswering, TokenClassification, ImageClassification, TextGeneration):
    register(_task)

__all__ = [
    "BenchInput",
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
