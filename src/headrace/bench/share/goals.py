"""Many views with goals over TPC-H: shared or not, with one pace or with many, and what each way costs.

Every query wants that at most a share of its work is left at the trigger: the shares are drawn from 1, 0.5, 0.2 and
0.1, are the same for all, or are given one by one (`--goals random 0.2 1.0,0.1`). The approaches are those of iShare's
evaluation ("Thrifty Query Processing", 4.4): views that share nothing, with one pace per view or a pace per path; views
that share subplans, with one pace for all that hangs together; and ours, a pace per subplan and per path, with all
subplans shared, or taken apart where that is less work. All choose by the same cost model, which is learnt in a pass of
its own, and once more after subplans are taken apart. Rows are those that operators took; with `--assumed` the model
has fixed costs, and rows do not depend on the machine. Missed latency is the CPU time of a view and of its subplans at
the trigger beyond its share of what the view takes alone if all is done then. How long the choice takes with paces up
to 100 is measured beside it, and once per set of views for goals of 0.01; with `--planning-only` nothing else is. The
answers of all approaches are compared with Spark's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.peak_memory import release_memory
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import judged, target_lines
from headrace.bench.share.model import Model
from headrace.bench.share.planning import planning, planning_line
from headrace.bench.share.playing import Played, play
from headrace.bench.share.plot import save_plot
from headrace.bench.share.queries import CASES
from headrace.bench.share.targets import OURS, targets
from headrace.bench.share.wanted import RANDOM, goals_of, kind_of, problem_of
from headrace.bench.tpch.spark_peer import SparkPeer, write_parquet
from headrace.datasets.tpch import tpch_tables
from headrace.engine.opening import AUTO, OFF
from headrace.runtime.session import local_session
from headrace.thrifty.schedule import LEARNING
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.paces import Chosen, chosen, uniform

__all__ = ["run", "table"]

Tell = Callable[[str], None]
_TRIGGERS = 4  # after which what is taken apart is looked at again
APPROACHES: dict[str, tuple[str, Callable[..., Chosen]]] = {
    "noshare-uniform": (OFF, uniform),
    "noshare-nonuniform": (OFF, chosen),
    "share-uniform": (AUTO, uniform),
    "ours, all shared": (AUTO, chosen),
    OURS: (AUTO, chosen),
}
"""By name: whether views share, and how paces are chosen."""


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _options(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    for goals in options.goals:
        if problem := problem_of(goals, {case: list(CASES[case]) for case in options.cases}):
            parser.error(problem)
    return options


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench share-goals", description=__doc__)
    made.add_argument("--scale", type=float, default=0.02, help="TPC-H's scale factor (default 0.02)")
    made.add_argument("--parts", type=int, default=50, help="steps until the trigger, and the highest pace")
    # More than a tenth: when tables have grown tenfold, the engine compares views again, and plays would differ.
    made.add_argument("--there", type=float, default=0.125, help="share of the rows that is there before")
    made.add_argument("--cases", nargs="+", choices=list(CASES), default=["board", "board with filters", "ten"])
    made.add_argument(
        "--goals", nargs="+", default=["random"], help="'random', a share for all, or one per view: 1.0,0.1"
    )
    made.add_argument("--planning-only", action="store_true", help="measure how long the choice of paces takes alone")
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of random goals")
    made.add_argument("--repeat", type=int, default=1, help="measure so often; CPU times are medians (default 1)")
    made.add_argument("--assumed", action="store_true", help="choose by fixed costs instead of measured ones")
    made.add_argument("--plots", type=Path, default=None, help="folder for a picture of the CPU seconds")
    made.add_argument("--location", type=Path, default=None, help="folder for files and state")
    return made


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    tell(f"making TPC-H at scale {options.scale:g}")
    tables, files = tpch_tables(options.scale), spark.sparkContext.defaultParallelism
    folder = root / "parquet"
    peer = SparkPeer(spark, {name: write_parquet(folder / name, rows, files) for name, rows in tables.items()})
    results: list[dict[str, Any]] = []
    planned: dict[str, dict[str, Any]] = {}
    for case in options.cases:
        queries = CASES[case]

        def playing(
            sharing: str, paces: Any, apart: Sequence[Apart] = (), queries: Mapping[str, str] = queries
        ) -> Played:
            how = {"parts": options.parts, "there": options.there, "apart": apart}
            return play(spark, root, tables, queries, sharing=sharing, paces=paces, **how)

        def repeated(*given: Any, play: Callable[..., Played] = playing) -> list[Played]:
            return [play(*given) for _ in range(options.repeat)]

        models = {}
        for sharing in (OFF, AUTO):
            tell(f"{case}: learning, sharing {sharing}")
            models[sharing] = Model.of(playing(sharing, LEARNING), options.parts, assumed=options.assumed)
        tell(f"{case}: choosing paces")
        planned[case] = planning(models[AUTO], models[OFF], queries)
        if options.planning_only:
            continue
        tell(f"{case}: everything at the trigger")
        batch = repeated(OFF, 1)
        again: dict[Any, Model] = {}

        def learnt(apart: Sequence[Apart], known: dict[Any, Model] = again, play: Any = playing) -> Model:
            """What is known of the plan after subplans were taken apart."""
            key = tuple((one.parts, one.own) for one in apart)
            if key not in known:
                known[key] = Model.of(play(AUTO, LEARNING, apart), options.parts, assumed=options.assumed)
            return known[key]

        wrong = {name: peer.difference(sql, batch[0].answers[name]) for name, sql in queries.items()}
        for goals in options.goals:
            for seed in options.seeds if goals == RANDOM else [0]:
                wanted = goals_of(queries, goals, seed)
                what = f"{goals} {seed}" if goals == RANDOM else goals
                results += _compared(case, what, wanted, models, learnt, batch, repeated, wrong, tell)
                release_memory()
    if options.plots is not None and results:
        save_plot(options.plots, results, f"TPC-H at scale {options.scale:g} in {options.parts} parts")
    config = {key: value for key, value in vars(options).items() if key not in ("location", "plots")}
    config |= {"cores": files, "rows": sum(rows.num_rows for rows in tables.values())}
    return {
        "bench": "share-goals",
        "config": config,
        "results": results,
        "planning": planned,
        "ratios": _ratios(results),
        "targets": judged(targets(results, planned), results),
    }


def _compared(
    case: str,
    goals: str,
    wanted: Mapping[str, float],
    models: Mapping[str, Model],
    learnt: Callable[[Sequence[Apart]], Model],
    batch: Sequence[Played],
    repeated: Callable[..., list[Played]],
    wrong: Mapping[str, str | None],
    tell: Tell,
) -> list[dict[str, Any]]:
    """Play all approaches for some goals."""
    out = []
    work = models[OFF].work(wanted)
    for approach, (sharing, choose) in APPROACHES.items():
        tell(f"{case}, goals {goals}: {approach}")
        model, apart = models[sharing], tuple[Apart, ...]()
        start = time.perf_counter()
        found = choose(model.plan(work))
        more = model.taken_apart(work, found, models[OFF]) if approach == OURS else ()
        planning = time.perf_counter() - start
        for _ in range(_TRIGGERS):  # the engine looks again after each trigger
            if not more:
                break
            tell(f"{case}, goals {goals}: learning what was taken apart")
            apart = (*apart, *more)
            model = learnt(apart)
            found = choose(model.plan(work))
            more = model.taken_apart(work, found, models[OFF])
        plays = repeated(sharing, model.paces(found), apart)
        played, cpu = plays[0], statistics.median(sum(part.cpu for part in one.parts) for one in plays)
        goal = {view: share * statistics.median(one.views[view].cpu for one in batch) for view, share in wanted.items()}
        latency = {view: statistics.median(one.latency(view) for one in plays) for view in wanted}
        beyond = {view: max(0.0, latency[view] - goal[view]) for view in wanted}
        missed = [beyond[view] / goal[view] for view in wanted]
        different = [f"{v}: {text}" for v, text in wrong.items() if text is not None]
        different += [f"{v}: not the answer of the batch" for v in wanted if not _same(played, batch[0], v)]
        row: dict[str, Any] = {
            "system": "headrace",
            "case": f"{case}, goals {goals}, {approach}",
            "views": case,
            "goals": goals,
            "kind_of_goals": kind_of(goals),
            "approach": approach,
            "cpu_seconds": cpu,
            "seconds": cpu,
            "operator_rows": sum(part.rows for part in played.parts),
            "final_rows": sum(part.final_rows for part in played.parts),
            "flushes": sum(len(part.flushes) for part in played.parts),
            "missed": {view: round(beyond[view] / goal[view], 3) for view in wanted if beyond[view]},
            "missed_mean": statistics.mean(missed),
            "missed_most": max(missed),
            "missed_seconds_mean": statistics.mean(beyond.values()),
            "missed_seconds_most": max(beyond.values()),
            "planning_seconds": planning,
            "planning_seconds_at_pace_100": _planning(models[sharing], choose, work, approach, models[OFF]),
            "taken_apart": [list(one.views) for one in apart],
            "out_of_reach": list(found.missed),  # views whose goals no paces are estimated to reach
            "subplans": dict(found.subplans),
            "paces": {view: max(paces.values()) for view, paces in found.views.items()},
            "batch_cpu_seconds": statistics.median(sum(part.cpu for part in one.parts) for one in batch),
            "batch_rows": sum(part.rows for part in batch[0].parts),
        }
        out.append(row | ({"wrong": different[0]} if different else {}))
    return out


def _planning(
    model: Model, choose: Callable[..., Chosen], work: Mapping[str, float], approach: str, off: Model
) -> float:
    """How long the choice takes, taking apart included, if paces may be as high as 100."""
    finer, start = replace(model, most=100), time.perf_counter()
    found = choose(finer.plan(work))
    if approach == OURS:
        finer.taken_apart(work, found, off)
    return time.perf_counter() - start


def _same(one: Played, other: Played, view: str) -> bool:
    def rows(played: Played) -> list[str]:
        return sorted(map(repr, played.answers[view].to_pylist()))

    return rows(one) == rows(other)


def _ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for case in dict.fromkeys(row["views"] for row in results):
        rows = [row for row in results if row["views"] == case]
        for what in ("cpu_seconds", "operator_rows"):
            sums = {a: sum(row[what] for row in rows if row["approach"] == a) for a in APPROACHES}
            for approach in APPROACHES:
                if approach != OURS and sums[approach]:
                    out[f"{case}: {what}, ours / {approach}"] = sums[OURS] / sums[approach]
        ours = [row["missed_mean"] for row in rows if row["approach"] == OURS]
        out[f"{case}: mean missed latency of ours"] = statistics.mean(ours)
    return out


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"TPC-H at scale {config['scale']:g} in {config['parts']} parts, {config['cores']} cores"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("views", "goals", "approach", "CPU\ns", "rows", "flushes", "missed\nmean", "missed\nmost", "plan\ns"):
        shown.add_column(name, justify="left" if name in ("views", "goals", "approach") else "right")
    for row in result["results"]:
        shown.add_row(
            row["views"],
            row["goals"],
            f"[red]wrong: {row['wrong']}[/red]" if "wrong" in row else row["approach"],
            f"{row['cpu_seconds']:.2f}",
            f"{row['operator_rows']:,.0f}",
            f"{row['flushes']:,}",
            f"{row['missed_mean']:.0%}",
            f"{row['missed_most']:.0%}",
            f"{row['planning_seconds']:.2f}",
        )
    ratios = named_numbers("ours beside the others", result["ratios"])
    chosen_in = [Text(planning_line(case, found)) for case, found in result["planning"].items()]
    return Group(Text(title, style="bold"), shown, ratios, *chosen_in, target_lines(result["targets"]))
