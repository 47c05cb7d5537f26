"""A view over a join as the runtime sees it: one map side per source, the plan's stages, and a stage for the answer.

A stage runs its triggers in every bucket and sends on each bucket's share of the change of its view: to the stage that
reads the view, or to the answer, which adds up the shares by its own key. So the root is a sum over buckets, and no
task sees all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.factorized.algebra import Algebra, Scope
from headrace.factorized.bucket import Bucket, part_name
from headrace.factorized.maintenance import MaintenancePlan, Stage, View, indicated, passed_on
from headrace.factorized.matches import grouped
from headrace.factorized.mixed_answer import VALUES, MixedAnswer
from headrace.factorized.moments import MomentsAlgebra
from headrace.factorized.products import Part, Product, arrived, input_of, labelled
from headrace.operators.delta import split
from headrace.operators.kernel import (
    Evaluated,
    Incoming,
    Inlet,
    InOnePass,
    Lifted,
    MapSide,
    PartRows,
    Reduced,
    Sent,
    State,
    ViewKernel,
)
from headrace.plan.join import JoinPlan, Source
from headrace.relation import kernels
from headrace.relation.columns import take_column
from headrace.relation.kernels import Words
from headrace.relation.keys import validity
from headrace.relation.residence import Residence, first_word
from headrace.relation.run import Run, merge
from headrace.relation.variables import Variables
from headrace.rings import COUNT, Group


class Answer(Protocol):
    """How changes of the root become changes of the answer."""

    @property
    def arrangements(self) -> Mapping[str, Group]:
        """The arrangements of the answer."""
        ...

    def split(self, changes: Sequence[Any], buckets: int) -> Lifted:
        """Turn changes of the root, as its last join gives them, into changes of the answer, by bucket."""
        ...

    def reduce(self, state: State, incoming: Incoming) -> Reduced:
        """Add changes to one bucket of the answer."""
        ...


@dataclass(frozen=True)
class JoinView(ViewKernel):
    """A maintained view over a join."""

    join: JoinPlan
    plan: MaintenancePlan
    variables: Variables
    algebra: Algebra
    answer: Answer
    buckets: int

    @property
    def features(self) -> tuple[str, ...]:
        """The variables whose moments the answer holds, in order; only for views of moments."""
        assert isinstance(self.algebra, MomentsAlgebra)
        return self.algebra.features(self.plan.root)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categorical variables of the answer, in the order in which they are numbered."""
        return self.answer.categories if isinstance(self.answer, MixedAnswer) else ()

    @property
    def sources(self) -> Sequence[tuple[MapSide, tuple[str, ...]]]:
        """Per source: the expressions evaluated on its rows, and the variables that they give."""
        return [(side, source.variable_names) for side, source in zip(self.sides, self.join.sources, strict=True)]

    def with_shifts(self, shifts: Mapping[str, float]) -> JoinView:
        """The same view, with a shift subtracted from each feature; only for views of moments."""
        assert isinstance(self.algebra, MomentsAlgebra)
        return replace(self, algebra=replace(self.algebra, shifts=shifts))

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        return tuple(
            MapSide(s.table, s.name, s.condition, tuple(e for _, e in s.variables), s.factors)
            for s in self.join.sources
        )

    @cached_property
    def _kept(self) -> dict[str, int]:
        """The arrangements of the kept views, each with the number of its view."""
        return {
            part_name(i, order): i
            for i, view in enumerate(self.plan.views)
            if view.kept and i != self.plan.root
            for order in range(len(view.orders))
        }

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {part: self.algebra.group(i) for part, i in self._kept.items()} | dict(self.answer.arrangements)

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        level = {part: self.plan.stages[self.plan.views[i].stage].level for part, i in self._kept.items()}
        tree = [tuple(part for part in self._kept if level[part] == at) for at in range(self.plan.levels)]
        return *tree, tuple(self.answer.arrangements)

    @cached_property
    def _shared(self) -> frozenset[str]:
        return frozenset(
            part_name(i, order)
            for i, view in enumerate(self.plan.views)
            if view.replicated
            for order in range(len(view.orders))
        )

    def home(self, part: str, bucket: int) -> int:
        return 0 if part in self._shared else bucket

    @cached_property
    def in_one_pass(self) -> InOnePass | None:
        residences = self.residences(self.buckets)
        return None if self._kept.keys() - residences.keys() else InOnePass(replace(self, buckets=1), residences)

    def residences(self, buckets: int) -> dict[str, Residence]:
        found = {part: Residence(buckets, first_word) for part in self.answer.arrangements}
        for part, number in self._kept.items():
            view = self.plan.views[number]
            order = next(i for i in range(len(view.orders)) if part_name(number, i) == part)
            partition = self.plan.stages[view.stage].partition
            if part in self._shared:
                found[part] = Residence(buckets, None, self.home(part, 0))
            elif partition is not None and partition in view.keys:
                at = self.variables.slices(view.orders[order])[partition].start
                by_key = all(partition in bound for bound in self._bound(number, order))
                found[part] = Residence(buckets, partial(_word, at=at), by_key=by_key)
            # Otherwise, each bucket has sums of its own rows, and their keys do not say whose.
        return found

    @cached_property
    def inlets(self) -> Mapping[str, Inlet]:
        out = {}
        for relation, trigger in self.plan.by_relation.items():
            view = self.plan.views[trigger.leaf]
            copied = view.replicated and self.plan.stages[view.stage].partition is not None
            out[relation] = Inlet(self.algebra.group(trigger.leaf), 0, self._leaf_residence(view), copied)
        if VALUES in self.answer.arrangements:
            out[VALUES] = Inlet(COUNT, 0, Residence(self.buckets, first_word))
        return out

    def _leaf_residence(self, view: View) -> Residence | None:
        partition = self.plan.stages[view.stage].partition
        if view.replicated:
            return Residence(self.buckets, None, 0)
        if partition is None or partition not in view.keys:
            return None
        at = self.variables.slices(view.orders[0])[partition].start
        return Residence(self.buckets, partial(_word, at=at))

    def _bound(self, number: int, order: int) -> Iterator[tuple[str, ...]]:
        """The variables whose values are known wherever a view is searched in one of its orders."""
        for trigger in self.plan.triggers:
            for statement in trigger.statements:
                for probe in statement.every_probe:
                    if (statement.factors[probe.slot], probe.order) == (number, order):
                        yield self.plan.views[number].orders[order][: probe.bound]

    def _source(self, name: str) -> Source:
        return next(source for source in self.join.sources if source.name == name)

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        return self.algebra.refused(self.plan.by_relation[source].leaf, rows)

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        leaf = self.plan.by_relation[source].leaf
        rows = self._taking_part(source, leaf, rows)
        if not len(rows.diff):
            return {}
        lifted: Lifted = {}
        for name, view in {source: leaf, **{indicated(i): i for i in self.plan.indicators.get(source, ())}}.items():
            for bucket, run in self._lift_leaf(source, view, rows, buckets).items():
                lifted.setdefault(bucket, {})[name] = run
        for bucket, run in self._values(source, rows, buckets).items():
            lifted.setdefault(bucket, {})[VALUES] = run
        return lifted

    def _lift_leaf(self, source: str, leaf: int, rows: Evaluated, buckets: int) -> dict[int, Run]:
        names, view = self._source(source).variable_names, self.plan.views[leaf]
        partition = self.plan.stages[view.stage].partition
        keys, scope = view.orders[0], self.algebra.scope(leaf)
        if view.replicated:
            run = self._leaf_run(leaf, keys, scope, names, rows, np.zeros(len(rows.diff), np.int32), 1)[0]
            # Without a variable to spread the work by, one bucket does all of it.
            return dict.fromkeys(range(1 if partition is None else buckets), run)
        codes = self._codes(partition, names, rows, buckets)
        found = self._leaf_run(leaf, keys, scope, names, rows, codes, buckets)
        return {b: run for b, run in found.items() if run.rows}

    def _values(self, source: str, rows: Evaluated, buckets: int) -> dict[int, Run]:
        """The values of categories that this source is the first to have, on their way to the answer."""
        if VALUES not in self.answer.arrangements:
            return {}
        assert isinstance(self.answer, MixedAnswer)
        first = {name: s.name for s in reversed(self.join.sources) for name in s.variable_names}
        columns = zip(self._source(source).variable_names, rows.keys, strict=True)
        run = self.answer.values({name: column for name, column in columns if first[name] == source}, rows.diff)
        return {} if run is None else split(run, buckets)

    def _codes(self, partition: str | None, names: tuple[str, ...], rows: Evaluated, buckets: int) -> NDArray[np.int32]:
        codes = np.empty(len(rows.diff), np.int32)
        if partition is None:
            # A single relation without keys: nothing of it is kept per bucket, so any split will do.
            codes[:] = np.arange(len(codes)) * buckets // max(len(codes), 1)
        else:
            column = rows.keys[names.index(partition)]
            kernels.buckets_of(self.variables.encode(partition, column)[0], buckets, codes)
        return codes

    def _taking_part(self, source: str, leaf: int, rows: Evaluated) -> Evaluated:
        there = self.algebra.complete(leaf, rows)
        required = self._source(source).required
        for name, column in zip(self._source(source).variable_names, rows.keys, strict=True):
            if name in required and column.null_count:
                there = validity(column) if there is None else there & validity(column)
        return rows if there is None or there.all() else rows.take(np.flatnonzero(there))

    def _leaf_run(
        self,
        leaf: int,
        keys: tuple[str, ...],
        scope: Scope,
        names: tuple[str, ...],
        rows: Evaluated,
        codes: NDArray[np.int32],
        buckets: int,
    ) -> dict[int, Run]:
        """Lift and sum rows of a leaf, or the parts of its rows that have some of its keys and of what it covers."""
        encoded = {name: self.variables.encode(name, rows.keys[names.index(name)]) for name in keys}
        words = self.variables.key(encoded, keys, len(rows.diff))
        texts = {
            name: rows.keys[names.index(name)]
            for name in keys
            if name in self.plan.shown and self.variables.kinds[name].type.kind == "string"
        }
        lifting = self.algebra.lifting_part(leaf, scope, rows)
        order, starts = np.empty(len(codes), np.int64), np.empty(buckets + 1, np.int64)
        kernels.split_by(codes, buckets, order, starts)
        out = {}
        for bucket in range(buckets):
            at = order[starts[bucket] : starts[bucket + 1]]
            if len(at):
                heads, group_of, first = grouped(np.take(words, at, axis=1), False)
                payload = lifting(at, group_of, heads.shape[1])
                stored = {name: take_column(text, at[first]) for name, text in texts.items()}
                out[bucket] = Run(heads, payload, stored)
        return out

    # -- products -----------------------------------------------------------------------------------------------------

    @property
    def product_refusal(self) -> str:
        return "it has categories, whose levels and pairs of levels are told by rows" if self.categories else ""

    def lift_product(self, source: str, parts: Sequence[PartRows], term: str, buckets: int) -> Lifted:
        leaf = self.plan.by_relation[source].leaf
        there = [replace(part, rows=self._taking_part(source, leaf, part.rows)) for part in parts]
        if not all(len(part.rows.diff) for part in there):
            return {}
        lifted: Lifted = {}
        for name, view in {source: leaf, **{indicated(i): i for i in self.plan.indicators.get(source, ())}}.items():
            for bucket, product in self._lift_parts(source, view, there, buckets).items():
                lifted.setdefault(bucket, {}).update(labelled(name, {term: product}))
        return lifted

    def _lift_parts(self, source: str, leaf: int, parts: Sequence[PartRows], buckets: int) -> dict[int, Product]:
        """A product by bucket: the part that has the variable of the buckets is split, and all get the others."""
        names, view = self._source(source).variable_names, self.plan.views[leaf]
        partition = self.plan.stages[view.stage].partition
        targets = range(1 if partition is None else buckets)
        found: list[dict[int, Part]] = []
        for part in parts:
            own = [names[number] for number in part.keys]
            keys = tuple(name for name in view.orders[0] if name in own)
            # An indicator projection counts rows, so its payload covers nothing.
            scope = self.algebra.scope_of_part(leaf, part.keys, part.arguments if not view.indicator else ())
            count = len(part.rows.diff)
            if not view.replicated and partition in own:
                codes = self._codes(partition, names, part.rows, buckets)
                runs = self._leaf_run(leaf, keys, scope, names, part.rows, codes, buckets)
            else:
                run = self._leaf_run(leaf, keys, scope, names, part.rows, np.zeros(count, np.int32), 1)[0]
                runs = dict.fromkeys(targets, run)
            found.append({b: Part(run.words, run.payload, run.values, keys, scope) for b, run in runs.items()})
        return {b: tuple(part[b] for part in found) for b in targets if all(b in part for part in found)}

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        if stage == self.plan.levels:
            return self.answer.reduce(state, incoming)
        done = Reduced()
        here: set[str] = set()
        for part in (part for part in self.plan.stages if part.level == stage):
            here |= {trigger.relation for trigger in part.triggers}
            self._run(part, bucket, state, incoming, done)
        for label in sorted(label for label in incoming if input_of(label) not in here):
            # These are changes for a later stage in the same bucket.
            if label != input_of(label):
                done.sent.extend(Sent(stage + 1, bucket, label, part) for part in incoming[label])
                continue
            group = COUNT if label == VALUES else self.algebra.group(self._view_of(label))
            done.sent.append(Sent(stage + 1, bucket, label, merge(group, list(incoming[label]))))
        return done

    def _view_of(self, name: str) -> int:
        return next(t.leaf for stage in self.plan.stages for t in stage.triggers if t.relation == name)

    def _run(self, stage: Stage, bucket: int, state: State, incoming: Incoming, done: Reduced) -> None:
        work = Bucket(self.plan, stage, self.algebra, self.variables, state)
        work.run(*arrived(incoming))
        runs, live = work.kept()
        for part, run in runs.items():
            if bucket == 0 or part not in self._shared:  # one bucket stores what all share
                done.runs[part], done.live[part] = run, live[part]
        for view, entries in work.multiplied.items():
            if bucket == 0 or part_name(view, 0) not in self._shared:
                name = self.plan.views[view].name
                done.multiplied[name] = done.multiplied.get(name, 0) + entries
        changes = work.root()
        if not changes and not work.mixed and not work.products:
            return
        outgoing: Lifted = {}
        if stage.root == self.plan.root:
            outgoing = self.answer.split(work.mixed or changes, self.buckets)
        else:
            if changes:
                outgoing = self._pass_on(stage, merge(self.algebra.group(stage.root), changes))
            for number, product in enumerate(work.products):
                # Buckets have their own products, and all of them may meet in one.
                for target, parts in self._pass_on_parts(stage, product, f"{bucket}.{number}").items():
                    outgoing.setdefault(target, {}).update(parts)
        for target, parts in outgoing.items():
            done.sent.extend(Sent(stage.level + 1, target, part, run) for part, run in parts.items())

    def _pass_on(self, stage: Stage, change: Run) -> Lifted:
        """Send the change of a stage's view to the buckets of the stage that reads it."""
        view, name = self.plan.views[stage.root], passed_on(stage.root)
        partition = self.plan.stages[view.stage].partition
        if view.replicated or partition is None:
            targets = range(self.buckets) if partition is not None else range(1)
            return {bucket: {name: change} for bucket in targets}
        lead = change.words[self.variables.slices(view.orders[0])[partition]][0]
        return {bucket: {name: piece} for bucket, piece in split(change, self.buckets, lead).items()}

    def _pass_on_parts(self, stage: Stage, product: Product, term: str) -> Lifted:
        """Send a product in the change of a stage's view to the buckets of the stage that reads it."""
        view, name = self.plan.views[stage.root], passed_on(stage.root)
        partition = self.plan.stages[view.stage].partition
        targets = range(self.buckets) if partition is not None else range(1)
        found: list[dict[int, Part]] = []
        for part in product:
            if view.replicated or partition not in part.keys:
                found.append(dict.fromkeys(targets, part))
                continue
            lead = part.words[self.variables.slices(part.keys)[partition]][0]
            pieces = split(part, self.buckets, lead)
            found.append(
                {b: replace(part, words=p.words, payload=p.payload, values=p.values) for b, p in pieces.items()}
            )
        every = {b: tuple(part[b] for part in found) for b in targets if all(b in part for part in found)}
        return {b: labelled(name, {term: parts}) for b, parts in every.items()}


def _word(words: Words, at: int) -> NDArray[np.uint64]:
    """One word of each key."""
    return np.ascontiguousarray(words[at])
