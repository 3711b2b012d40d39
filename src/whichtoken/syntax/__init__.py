"""Head statistics for Mask-LRP: parsed corpora, counting, and head masks. Models are read in models/heads.py."""

from whichtoken.syntax.conllu import read_conllu
from whichtoken.syntax.counting import Tally, align, kept
from whichtoken.syntax.files import read_heads, save_heads
from whichtoken.syntax.heads import HeadMask, HeadStatistics, Relation, all_heads, corrupt_heads, random_heads
from whichtoken.syntax.parser import parse_texts
from whichtoken.syntax.rule import HeadRule
from whichtoken.syntax.sentence import Parsed, Sentence

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
