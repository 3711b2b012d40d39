"""How far scores can be trusted, in words: the one-line statement about a record, and intervals of scores. No torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whichtoken.named_units import named_units, names_of, unit_noun
from whichtoken.records import Attribution
from whichtoken.render.numbers import format_remaining, format_share
from whichtoken.trust import Confidence

LOW_ADDITIVITY = 0.5  # below, no list of scores describes the model well
NOTABLE = 0.1  # share of the variation that interactions must predict in addition, to be named
ENOUGH = 2  # trials per word, to say that words interact
MOST_CERTAIN = 0.999  # shown as over 99 %: no statistical model is ever sure
MOST_NAMED = 4  # words in a statement
LONGEST_NAME = 40  # characters of a word there


@dataclass(frozen=True)
class Interval:
    """The bounds of a score, and the same as shares of the strongest score of its row."""

    low: float
    high: float
    low_share: float
    high_share: float
    level: float  # the probability that the effect lies between them

    @property
    def includes_zero(self) -> bool:
        """Whether the sign of the score is uncertain; that of a score that is exactly 0, as of [CLS], is not."""
        return self.low <= 0 <= self.high and self.low < self.high

    @property
    def hint(self) -> str:
        """Return the interval for a tooltip."""
        doubt = ", which includes 0" if self.includes_zero else ""
        return f"{format_share(self.level)} interval {self.low:+.4g} to {self.high:+.4g}{doubt}"

    @property
    def shares(self) -> str:
        return f"[{self.low_share:+z.2f}, {self.high_share:+z.2f}]"


def describe_uncertain(levels: Iterable[float]) -> str:
    """Return why marked words are uncertain. `levels`: of their intervals; if none, an empty string."""
    named = " or ".join(format_share(level) for level in sorted(set(levels)))
    return f"the {named} interval of the score includes 0 (no effect)" if named else ""


def describe_trust(record: Attribution) -> str:
    """Return one line on how far the scores can be trusted; an empty string if the method does not say.

    Words are as they are in the text: pass the line to `visible` before it is shown.
    """
    if record.confidence is None:
        return ""
    clauses = [
        clause(record, record.confidence)
        for clause in (_additivity, _interactions, _first, _check, _unguided, _unresolved)
    ]
    return "; ".join(filter(None, clauses))


def _additivity(record: Attribution, trust: Confidence) -> str:
    """Say how well the scores predict the model; several windows are as additive as the least additive one."""
    if not trust.n_answers:
        return f"these scores were not tested by removing {unit_noun(record)}"
    several = record.n_windows > 1
    trials = f"({trust.n_answers} trial{'s' * (trust.n_answers != 1)}{' in all' * several})"
    units, share, predicted = unit_noun(record), trust.additivity, trust.predicted
    if share is None:
        return f"too few different outputs to test the scores by removing {units} {trials}"
    low = share < LOW_ADDITIVITY
    amount = "none" if share < 0.005 else f"{'only ' * low}{format_share(share)}"
    where = f"in the worst of {record.n_windows} windows, " * several
    scale = _name_output(record, "the predicted value") if record.reading == "value" else "the log-odds"
    found = f"{where}the scores predict {amount} of the variation in {scale} when {units} are removed {trials}"
    if predicted is not None and round(100 * predicted) > round(100 * max(share, 0)):
        found += f", {format_share(predicted)} with interactions"
    if not low:
        return found
    few = trust.n_unresolved or trust.n_answers < ENOUGH * trust.n_units
    if few and (predicted is None or predicted < LOW_ADDITIVITY):
        return f"{found}: the {units} interact, or there were too few trials"
    return f"{found}: the {units} interact, so no list of scores describes this decision well"


def _interactions(record: Attribution, trust: Confidence) -> str:
    """Say what was measured about the strongest interaction: without each of its units, and without all of them."""
    if not trust.interactions or not trust.interactions[0].measured or _adds_little(trust):
        return ""
    strongest, parts, noun = trust.interactions[0], named_units(record), unit_noun(record)
    units = [(_list([_mark(record, name) for name in names_of(parts, unit)], noun), unit) for unit in strongest.units]
    count, output = len(trust.interactions), _name_output(record, f"the {record.reading}")
    several = f" (the strongest of {count} interactions)" if count > 1 else ""
    measured = list[str]()
    for removal in strongest.measured:
        gone = [name for name, unit in units if set(unit) & set(removal.tokens)]
        all_of_them = "both" if len(units) == 2 else "all"
        left = format_remaining(record, removal.output)
        named = all_of_them if len(gone) == len(units) else _list(gone, noun)
        measured.append(f"without {named} {left}" if measured else f"without {named}, {output} is {left}")
    names = [name for name, _ in units]
    return f"{_list(names, noun)} act together{several}: {', '.join(measured)}" if all(names) else ""


def _adds_little(trust: Confidence) -> bool:
    """Return whether the scores alone predict almost as much as the method with its interactions."""
    known = trust.predicted is not None and trust.additivity is not None
    return known and (trust.predicted or 0.0) - (trust.additivity or 0.0) < NOTABLE


def _first(record: Attribution, trust: Confidence) -> str:
    if trust.additivity is not None and trust.additivity < LOW_ADDITIVITY:
        return ""  # the scores that are ranked describe the model badly
    best = max(named_units(record), key=lambda part: part.score, default=None)
    if trust.first is None or best is None or best.score <= 0 or trust.n_units == 1:
        return ""
    doubt = ", but with only" if trust.first < 0.5 else " with"
    return f"{_mark(record, best.name)} ranks first{doubt} {format_share(min(trust.first, MOST_CERTAIN))} certainty"


def _check(record: Attribution, trust: Confidence) -> str:
    if trust.check is None or not (gone := set(trust.check.tokens)):
        return ""
    parts = sorted((part for part in named_units(record) if gone & set(part.tokens)), key=lambda part: -part.score)
    before, after = (format_remaining(record, output) for output in (record.output, trust.check.output))
    change = "falls" if trust.check.output < record.output else "rises"
    result = f"stays at {after}" if before == after else f"{change} from {before} to {after}"
    named = _list([_mark(record, part.name) for part in parts], unit_noun(record))
    return f"without {named}, {_name_output(record, f'the {record.reading}')} {result}" if named else ""


def _name_output(record: Attribution, otherwise: str) -> str:
    """Return what the output of an answer is called; of other records, `otherwise`."""
    if record.generated is None:
        return otherwise
    return "the difference of the logits" if record.generated.foil else "the log-probability"


def _unresolved(record: Attribution, trust: Confidence) -> str:
    if not trust.n_unresolved:
        return ""
    prior = record.settings.get("prior")
    named = f" ({prior})" if isinstance(prior, str) and prior not in ("", "auto") else ""
    follow = "are close to 0" if prior == "none" else f"mostly follow the prior{named}"
    count = f"{trust.n_unresolved} of {trust.n_units} {unit_noun(record)}"
    counted = " (counted in each window)" * (record.n_windows > 1)
    return f"{count}{counted} were not resolved: their scores {follow}"


def _unguided(record: Attribution, trust: Confidence) -> str:
    return "no prior map guided the trials" if trust.n_answers and record.settings.get("prior") == "none" else ""


def _mark(record: Attribution, name: str) -> str:
    """Return the name of a unit as statements have it: in quotation marks, unless it is that of a patch."""
    if record.picture is not None:
        return name
    return f"“{name if len(name) <= LONGEST_NAME else f'{name[: LONGEST_NAME - 1]}…'}”"


def _list(names: Sequence[str], units: str) -> str:
    if len(names) > MOST_NAMED:
        names = [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} more {units}"]
    *others, last = names or [""]
    return f"{', '.join(others)} and {last}" if others else last
