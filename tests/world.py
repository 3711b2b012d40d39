"""What users have on disk: folders of models as `save_pretrained` leaves them, a library, a head mask, an image."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image
from tests.tiny import CORPUS, image_model_of, language_subject, model_of, question_subject, token_subject, wordpiece
from transformers import ViTImageProcessorPil

import whichtoken as wt

SIZE = {"height": 12, "width": 12}
SUBJECTS: dict[str, Callable[[], wt.Subject]] = {
    "texts": lambda: wt.Subject(model_of("bert"), wordpiece()),
    "questions": question_subject,
    "entities": token_subject,
    "images": lambda: wt.Subject(image_model_of("vit"), ViTImageProcessorPil(size=SIZE)),
    "prompts": lambda: language_subject("llama"),
}


@dataclass(frozen=True)
class World:
    """A folder in which things are made when they are first needed."""

    root: Path

    def model(self, kind: str) -> Path:
        """Return the folder of a tiny model in float32, of one of SUBJECTS."""
        folder = self.root / kind
        if not folder.exists():
            subject = SUBJECTS[kind]()
            subject.model.float().save_pretrained(folder)
            subject.processor.save_pretrained(folder)
        return folder

    def library(self, kind: str) -> Path:
        """Return the reference library of a model of texts or questions."""
        folder = self.root / f"references of {kind}"
        if not folder.exists():
            texts = [("Is it rare?", text) for text in CORPUS] if kind == "questions" else CORPUS
            wt.references.build(wt.load(self.model(kind)), texts, out=folder, rule="random", min_tokens=1, layers="all")
        return folder

    @cached_property
    def image(self) -> Path:
        path = self.root / "picture.png"
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)).save(path)
        return path
