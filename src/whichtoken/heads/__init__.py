"""Head statistics for Mask-LRP: parsed corpora, counting, and head masks. `build` reads models."""

from whichtoken.heads.conllu import read_conllu
from whichtoken.heads.count import Tally, align, kept
from whichtoken.heads.mask import HeadMask, HeadStatistics, Relation, all_heads, corrupt_heads, random_heads
from whichtoken.heads.rule import HeadRule
from whichtoken.heads.sentence import Parsed, Sentence
from whichtoken.heads.spacy import parse_texts
from whichtoken.heads.store import read_heads, save_heads

__all__ = [
    "HeadMask",
    "HeadRule",
    "HeadStatistics",
    "Parsed",
    "Relation",
    "Sentence",
    "Tally",
    "align",
    "all_heads",
    "corrupt_heads",
    "kept",
    "parse_texts",
    "random_heads",
    "read_conllu",
    "read_heads",
    "save_heads",
]
