"""The job behind `/api/explain`: fast methods together, then slow ones one by one, each sent as soon as it is ready."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from whichtoken._explain import plan, run
from whichtoken.bench.selection import is_slow
from whichtoken.core.trace import Method
from whichtoken.errors import WhichTokenError
from whichtoken.models import LogitCache
from whichtoken.records import Attribution
from whichtoken.references.used import used_references
from whichtoken.render.rows import visible
from whichtoken.tasks import Task
from whichtoken.web.asked import read_input, read_methods, read_target
from whichtoken.web.failures import describe_error
from whichtoken.web.lanes import Report
from whichtoken.web.limits import Limits
from whichtoken.web.replies import MethodReply, ReferenceView, ResultView
from whichtoken.web.schema import ExplainRequest
from whichtoken.web.served import Served
from whichtoken.web.switching import removable_tokens
from whichtoken.web.views import result_view

Results = list[dict[str, Attribution]]
Explain = Callable[[Sequence[str]], Results]  # by methods that share a pass


def plan_explaining(model: Served, asked: ExplainRequest, limits: Limits) -> Callable[[Report], None]:
    """Return the work of a job; whatever can be refused is refused here."""
    item, target = read_input(model, asked.input, limits), read_target(model, asked)
    methods, subject = read_methods(model, asked.methods, limits), model.for_jobs.subject

    def work(report: Report) -> None:
        cache = LogitCache(subject)  # what methods evaluate is shared

        def explain(names: Sequence[str]) -> Results:
            return list(run(replace(plan(subject, names, target, None, asked.layers), cache=cache), [item]))

        _explain(model.for_jobs, explain, methods, report)

    return work


def _explain(task: Task, explain: Explain, methods: Mapping[str, Method], report: Report) -> None:
    slow = [name for name, method in methods.items() if is_slow(method)]
    fast = [name for name in methods if name not in slow]
    done, found = 0, False
    for group in filter(None, (fast, *([name] for name in slow))):
        report.progress(done, len(methods), ", ".join(group))
        for name, results in _explain_apart(explain, group, report):
            found = found or bool(results)
            for part, result in enumerate(results):
                view = view_of(task, name, result[name])
                report.event("result", MethodReply(name, part, len(results), view))
        done += len(group)
    if not found:
        report.event("nothing", {"note": task.no_result})


def _explain_apart(explain: Explain, group: Sequence[str], report: Report) -> list[tuple[str, Results]]:
    """Explain by methods that share a pass; if one of them fails, each on its own, so that the others are shown."""
    try:
        results = explain(group)
        return [(name, results) for name in group]
    except WhichTokenError as error:
        if error.index is not None and len(group) == 1:
            raise  # the input is wrong, for every method
        if len(group) == 1:
            report.event("failed", {"method": group[0], **asdict(describe_error(error))})
            return []
    return [made for name in group for made in _explain_apart(explain, [name], report)]


def view_of(task: Task | None, name: str, record: Attribution) -> ResultView:
    """Return what is shown about a record that this task made; None if its model is not served."""
    used = [] if task is None else used_references(task.subject.references, record)
    references = [
        ReferenceView(
            None if one.reference.text is None else tuple(map(visible, one.reference.text)),
            visible(one.reference.source),
            one.reference.probability,
            one.reference.n_tokens,
            one.survived,
            one.drop,
        )
        for one in used
    ]
    return result_view(
        name, record, lambda record, level: set() if task is None else removable_tokens(task, record, level), references
    )
