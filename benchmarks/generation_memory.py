"""Measure the peak memory of explaining a long prompt with a language model, one method per run.

    python benchmarks/generation_memory.py FOLDER [--tokens 4096] [--method attn-lrp]

Prints the largest resident size of this process, model included. Each run is a new process: the peak never falls.
"""

import argparse
from resource import RUSAGE_SELF, getrusage

import torch

import whichtoken as wt

STORY = "Ada was born in Lyon and likes music very much. Tom was born in Oslo and likes chess. "
ANSWER = " Tom was"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a language model")
    parser.add_argument("--tokens", type=int, default=4096, help="of the prompt, about")
    parser.add_argument("--method", default="attn-lrp")
    options = parser.parse_args()
    subject = wt.load(options.model)
    ids = subject.tokenizer(STORY * (options.tokens // 16))["input_ids"][: options.tokens - 8]
    prompt = subject.tokenizer.decode(ids, skip_special_tokens=True)
    (result,) = wt.explain(subject, prompt=prompt, continuation=ANSWER, methods=options.method)
    record = result[options.method]
    peak = getrusage(RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{options.method}: {len(record.tokens):,} tokens, peak {peak:.2f} GB, torch {torch.__version__}")


if __name__ == "__main__":
    main()
