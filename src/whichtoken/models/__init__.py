"""Access to Hugging Face models; the only folder that imports transformers."""

from whichtoken.models.capture import capture, capture_each
from whichtoken.models.encoding import Batch, Document, LongTexts, batches, even_batches, share_among_cores, window_row
from whichtoken.models.loading import load
from whichtoken.models.logit_cache import EvaluationCount, LogitCache
from whichtoken.models.memory import bound_freed_memory, halve_if_needed, return_freed_memory, return_memory_after_call
from whichtoken.models.opening import AnySubject, as_subject
from whichtoken.models.probe import ModelProbe
from whichtoken.models.subject import Subject
from whichtoken.models.workers import copy_twin, count_workers, map_on_cores

__all__ = [
    "AnySubject",
    "Batch",
    "Document",
    "EvaluationCount",
    "LogitCache",
    "LongTexts",
    "ModelProbe",
    "Subject",
    "as_subject",
    "batches",
    "bound_freed_memory",
    "capture",
    "capture_each",
    "copy_twin",
    "count_workers",
    "even_batches",
    "halve_if_needed",
    "load",
    "map_on_cores",
    "return_freed_memory",
    "return_memory_after_call",
    "share_among_cores",
    "window_row",
]
