"""Task: what kind of input a model reads and what it says about it."""

from enum import StrEnum
from typing import Any

from whichtoken.models.architectures import Architecture

QUESTION_HEAD = "ForQuestionAnswering"  # how the names of such classes end


class Task(StrEnum):
    """What a subject is asked about."""

    TEXTS = "texts"  # a text or a pair of texts is classified
    QUESTIONS = "questions"  # a stretch of a context is chosen that answers a question
    IMAGES = "images"  # an image is classified


def task_of(model: Any, architecture: Architecture) -> Task:
    if architecture.images:
        return Task.IMAGES
    return Task.QUESTIONS if type(model).__name__.endswith(QUESTION_HEAD) else Task.TEXTS
