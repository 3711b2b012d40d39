"""Reading Hugging Face models: the only folder that imports transformers."""

from whichtoken.models.capture import capture
from whichtoken.models.encoding import Batch, Document, LongTexts, Row, as_inputs, batches, window_row
from whichtoken.models.loading import load
from whichtoken.models.logit_cache import Answers, Tally
from whichtoken.models.probe import ModelProbe
from whichtoken.models.subject import CONTEXT, Subject
from whichtoken.models.tasks import Task

__all__ = [
    "CONTEXT",
    "Answers",
    "Batch",
    "Document",
    "LongTexts",
    "ModelProbe",
    "Row",
    "Subject",
    "Tally",
    "Task",
    "as_inputs",
    "batches",
    "capture",
    "load",
    "window_row",
]
