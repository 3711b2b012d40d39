"""The server of the page's tests: the default model, tiny models of other kinds, and a stored benchmark.

Run as `python -m tests.page.server PORT DATA`, where DATA has the texts of the benchmark.
"""

import sys
from dataclasses import replace
from pathlib import Path

from tests.tiny import image_model_of, language_subject, question_subject, token_subject
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.web.benchmarks import StoredBenchmark
from whichtoken.web.limits import Access
from whichtoken.web.service import make_service
from whichtoken.web.serving import serve

RUN = Path(__file__).parents[2] / "benchmarks" / "runs" / "imdb"


def main(port: str, data: str) -> None:
    processor = ViTImageProcessorPil(size={"height": 12, "width": 12})
    subjects = [
        wt.load(),
        replace(token_subject(), name="entities"),
        replace(question_subject(), name="answers"),
        replace(language_subject(), name="writer"),
        wt.Subject(image_model_of("vit"), processor, name="pictures"),
    ]
    service = make_service(subjects, benchmark=StoredBenchmark.open(RUN, Path(data)))
    serve(service, Access("127.0.0.1", int(port), None, ()))


if __name__ == "__main__":
    main(*sys.argv[1:])
