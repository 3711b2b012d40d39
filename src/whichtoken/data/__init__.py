"""wt.data: read texts, images and questions from files and data sets. No torch."""

from whichtoken.data.examples import ImageExample, TextExample, read_examples, read_images
from whichtoken.data.squad import Answer, Question, read_squad

__all__ = ["Answer", "ImageExample", "Question", "TextExample", "read_examples", "read_images", "read_squad"]
