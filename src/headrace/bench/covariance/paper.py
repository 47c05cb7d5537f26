"""How fast a plan would be on more cores than this machine has, by arithmetic over its exchange and its tasks.

The unit of work is one number read or written: a row that is lifted writes its payload, a lookup reads a key, a match
writes the payload of the view that it changes. That is coarse, but what bounds a speed-up is not the unit: it is the
heaviest bucket, the lookups that replicated changes repeat in every bucket, and sums that get weaker as more tasks sum
fewer rows each. Nothing here needs Spark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.factorized.maintenance import MaintenancePlan, Statement, Trigger
from headrace.rings.covariance import width

NUMBER = 8  # bytes


@dataclass(frozen=True)
class Input:
    """What comes into a stage in one batch: changes of a relation, or of a view that a stage before has computed.

    Parameters
    ----------
    rows : changed rows.
    keys : distinct keys among them.
    key_columns : columns of a key.
    degree : features of the payload that a key is sent with.
    replicated : it goes to every bucket.
    matches : numbers that its matches write in all buckets together.
    largest : the share of the rows that have the most frequent value of the variable that decides the bucket.
    values : how many values of that variable there are; 0 if any share of the rows will do.
    lifted : it starts from rows, so each of them writes a payload before the exchange.
    """

    name: str
    rows: float
    keys: float
    key_columns: int
    degree: int
    replicated: bool
    matches: float
    largest: float
    values: int = 0
    lifted: bool = True

    @property
    def key_bytes(self) -> int:
        """The bytes of one key with its payload."""
        return NUMBER * (self.key_columns + width(self.degree))

    def sent(self, tasks: int) -> float:
        """Return how many keys all tasks send together; each sums its share of the rows per key first.

        Of K keys, r rows drawn at random meet K (1 - (1 - 1/K)^r).
        """
        if self.keys <= 1:
            return min(self.rows, tasks * self.keys)
        missed = math.exp(self.rows / tasks * math.log1p(-1 / self.keys))
        return min(self.rows, max(self.keys, tasks * self.keys * (1 - missed)))

    def share(self, buckets: int) -> float:
        """Return the share of the rows in the fullest of so many buckets.

        Hashing V values into n buckets leaves the fullest with about V/n + sqrt(2 ln(n) V/n) of them; a value that
        many rows have cannot be split at all.
        """
        even = 1 / buckets
        chance = math.sqrt(2 * math.log(buckets) * even / self.values) if self.values else 0.0
        return min(1.0, max(even + chance, self.largest))

    def work(self, tasks: int) -> float:
        """Return how many numbers the busiest of so many tasks reads and writes."""
        lookups, share = self.keys * self.key_columns, self.share(tasks)
        lifting = self.rows * width(self.degree) / tasks if self.lifted else 0.0
        if self.replicated:  # every bucket looks all of it up; what it finds there is its share
            return lifting + lookups + self.matches / tasks
        return lifting + (lookups + self.matches) * share


def on_paper(inputs: Sequence[Input], root_degree: int, cores: int) -> dict[str, float]:
    """Estimate one batch on so many cores, with one bucket per core.

    The speed-up is what the spread of the work allows: an exchange and the start of a job cost time on top.

    >>> stars = Input("stars", rows=1e6, keys=1e4, key_columns=1, degree=2, replicated=False, matches=1e6, largest=0.0)
    >>> on_paper([stars], root_degree=2, cores=64)["speed_up_at_most"]
    64.0
    """
    apart = [one for one in inputs if not one.replicated]
    to_all = [one for one in inputs if one.replicated]
    shared = sum(one.keys for one in to_all)
    return {
        "cores": cores,
        "exchanged_bytes": sum(one.sent(cores) * one.key_bytes for one in apart),
        "replicated_bytes": sum(one.sent(cores) * one.key_bytes for one in to_all) * cores,
        "partial_answers_bytes": cores * NUMBER * width(root_degree),
        "rows_a_bucket": sum(one.rows for one in apart) / cores + shared,
        "rows_of_the_largest_bucket": sum(one.rows * one.share(cores) for one in apart) + shared,
        "work": sum(one.work(1) for one in inputs),
        "work_of_the_largest_bucket": sum(one.work(cores) for one in inputs),
        "speed_up_at_most": sum(one.work(1) for one in inputs) / sum(one.work(cores) for one in inputs),
    }


def inputs_of(
    plan: MaintenancePlan, degrees: Sequence[int], entries: Mapping[int, int], batch: Mapping[str, pa.Table]
) -> list[Input]:
    """Describe what a batch brings to each stage of a plan.

    Parameters
    ----------
    degrees : features of each view's payload.
    entries : how many keys each view has now; 0 for those that are not kept.
    batch : changed rows, by relation, whose columns are named as the variables.
    """
    made = []
    for stage in plan.stages:
        for trigger in stage.triggers:
            view = plan.views[trigger.leaf]
            rows, keys = _changed(plan, trigger.leaf, entries, batch)
            if not rows:
                continue
            largest, values = (0.0, 0) if view.replicated else _skew(view.relations, stage.partition, batch)
            made.append(
                Input(
                    name=view.relation or view.name,
                    rows=rows,
                    keys=keys,
                    key_columns=len(view.keys),
                    degree=degrees[trigger.leaf],
                    replicated=view.replicated,
                    matches=_matches(plan, trigger, keys, degrees, entries, batch),
                    largest=largest,
                    values=values,
                    lifted=view.relation is not None,
                )
            )
    return made


def _changed(
    plan: MaintenancePlan, number: int, entries: Mapping[int, int], batch: Mapping[str, pa.Table]
) -> tuple[float, float]:
    """Return how many rows and distinct keys change in a view: exact for a relation, an upper bound for other views."""
    view = plan.views[number]
    changes = [batch[name] for name in sorted(view.relations) if name in batch]
    if view.relation is not None:
        return (changes[0].num_rows, _distinct(changes[0], view.keys)) if changes else (0, 0)
    most = entries.get(number, 0) or math.inf
    keys = 0.0
    for rows in changes:
        keys += _distinct(rows, view.keys) if set(view.keys) <= set(rows.column_names) else most
    keys = min(keys, most)
    if math.isinf(keys):
        keys = max((rows.num_rows for rows in changes), default=0)
    return keys, keys


def _matches(
    plan: MaintenancePlan,
    trigger: Trigger,
    keys: float,
    degrees: Sequence[int],
    entries: Mapping[int, int],
    batch: Mapping[str, pa.Table],
) -> float:
    """Return how many numbers the statements of one input write, over all buckets."""
    total, changed = 0.0, keys
    for statement in trigger.statements:
        pairs = changed * _fan_out(plan, statement, entries)
        total += pairs * width(degrees[statement.target])
        # From here on the change is one of the target, of whose keys no more than there are can change.
        target = plan.views[statement.target]
        most = entries.get(statement.target, 0) or math.inf
        rows = batch.get(trigger.relation)
        if rows is not None and set(target.keys) <= set(rows.column_names):
            most = min(most, _distinct(rows, target.keys))
        changed = min(pairs, most)
    return total


def _fan_out(plan: MaintenancePlan, statement: Statement, entries: Mapping[int, int]) -> float:
    """Return how many keys match a changed key, on average; 1 where the other views are probed by their whole key."""
    found = 1.0
    there = max(entries.get(statement.source, 0), 1)
    for probe in statement.probes:
        other = statement.factors[probe.slot]
        if probe.bound < len(plan.views[other].keys):
            found *= max(1.0, entries.get(other, 0) / there)
    return found


def _skew(relations: frozenset[str], variable: str | None, batch: Mapping[str, pa.Table]) -> tuple[float, int]:
    """Return the share of the most frequent value, and the number of values, in the most skewed relation."""
    found = [(0.0, 0)]
    for name in relations & batch.keys():
        rows = batch[name]
        if variable in rows.column_names and rows.num_rows:
            counts = pc.value_counts(rows.column(variable)).field("counts")
            found.append((pc.max(counts).as_py() / rows.num_rows, len(counts)))
    return max(found)


def _distinct(rows: pa.Table, keys: Sequence[str]) -> int:
    if not keys:
        return min(1, rows.num_rows)
    return int(rows.group_by(list(keys)).aggregate([]).num_rows)
