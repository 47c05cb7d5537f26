"""Definitions of views (what the user asked for, and how it was decided to keep it), and the planned views they give.

The commit log keeps definitions as JSON with a version. A request says what the user wants, one class per kind. A
choice says how the view is kept, so that an engine which opens the location again finds the plan that made its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headrace.errors import StorageError
from headrace.learn.learner import MIXED, Derived, Needs
from headrace.operators.kernel import ViewKernel
from headrace.operators.layout import ViewLayout
from headrace.plan.join import JoinPlan
from headrace.relation.duration import Duration
from headrace.thrifty.goal import Freshness
from headrace.thrifty.strategy import MATRIX_CHAIN, WINDOW_JOIN

if TYPE_CHECKING:
    from headrace.engine.recompute import RecomputedQuery
    from headrace.factorized.chain_view import ChainView
    from headrace.factorized.join_view import JoinView
    from headrace.factorized.planner import Planned
    from headrace.sql.catalyst import AnalysedView
    from headrace.window.window_view import WindowView

VERSION = 3
AUTO = "auto"
LISTING = "listing"
ASKED_FOR = "it was asked for"

VariableOrder = str | Mapping[str, Any]
"""In one of its written forms."""


@dataclass(frozen=True)
class Wishes:
    """How a view is to be kept, as far as its user says."""

    strategy: str = AUTO
    order: VariableOrder | None = None
    partition: str | None = None
    never_full: bool = False  # True forbids recomputing by Spark, even where that is cheaper
    representation: str = LISTING  # FACTORIZED keeps the rows of a join as a hierarchy of views

    def given(self) -> dict[str, Any]:
        """The options that the user set, by their public names."""
        said = {"strategy": self.strategy, "order": self.order, "partition": self.partition}
        said["representation"] = self.representation
        return {what: value for what, value in said.items() if value not in (None, AUTO, LISTING)}


@dataclass(frozen=True)
class SqlRequest:
    """A request for the answer of a query; if it is final, windows that are over leave its state."""

    kind: ClassVar[str] = "view"
    sql: str
    wishes: Wishes = field(default_factory=Wishes)
    final: bool = False
    lazy: bool = False  # changes wait until the answer is read


@dataclass(frozen=True)
class MomentsRequest:
    """A request for the moments of features of a query; by default, of all its numeric and text columns.

    Parameters
    ----------
    categorical : features that are categories though they are numbers.
    texts : whether text columns are features without being named. They are not in locations that are older than
        categories, whose definitions do not have this field.
    """

    kind: ClassVar[str] = "covariance"
    sql: str
    wishes: Wishes = field(default_factory=Wishes)
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    texts: bool = False

    label: ClassVar[str | None] = None
    derived: ClassVar[tuple[Derived, ...]] = ()
    takes: ClassVar[str] = MIXED


@dataclass(frozen=True)
class ModelRequest:
    """A request for a model over the moments of features of a query, named as for moments."""

    kind: ClassVar[str] = "model"
    sql: str
    wishes: Wishes = field(default_factory=Wishes)
    features: tuple[str, ...] | None = None
    model: Mapping[str, Any] = field(default_factory=dict)  # the settings of the model, with its kind
    categorical: tuple[str, ...] = ()
    texts: bool = False

    def __post_init__(self) -> None:
        from headrace.learn.registry import KIND, model_of

        # All settings, also those that a model did not have when it was stored: then what is asked for again is equal.
        made = model_of(self.model)
        object.__setattr__(self, "model", {KIND: type(made).__name__, **made.settings()})

    @property
    def label(self) -> str | None:
        return self.model.get("label")

    @property
    def derived(self) -> tuple[Derived, ...]:
        """The columns that the model needs and the query lacks."""
        return self._needs.derived

    @property
    def takes(self) -> str:
        """Whether the model learns from numbers, from categories or from both (`learn.learner`)."""
        return self._needs.takes

    @property
    def _needs(self) -> Needs:
        from headrace.learn.registry import model_of

        return model_of(self.model).needs()


@dataclass(frozen=True)
class WindowJoinRequest:
    """A request for a join of two tables by windows of time; lengths of time are kept as the user wrote them."""

    kind: ClassVar[str] = WINDOW_JOIN
    left: str
    right: str
    on: tuple[str, ...]
    time: str
    arrival: str
    window: str
    slide: str | None = None
    emit_after: str | None = None
    horizon: str | None = None
    within: str | None = None
    agg: str = "count"
    estimator: str = AUTO
    interval: float = 0.95
    revisions: str = "estimate"
    by_key: bool = False
    only: tuple[str, str] | None = None

    wishes: ClassVar[Wishes] = Wishes()

    @property
    def sql(self) -> str:
        """Roughly the same join in SQL, for people to read."""
        return f"{self.left} JOIN {self.right} USING ({', '.join(self.on)}) in windows of {self.window}"


@dataclass(frozen=True)
class MatrixChainRequest:
    """A request for the product of a chain of dense matrices."""

    kind: ClassVar[str] = MATRIX_CHAIN
    matrices: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    wishes: ClassVar[Wishes] = Wishes()

    @property
    def sql(self) -> str:
        """The product, for people to read."""
        return " * ".join(self.matrices)


Request = SqlRequest | MomentsRequest | ModelRequest | WindowJoinRequest | MatrixChainRequest
_REQUESTS: dict[str, type[Request]] = {
    request.kind: request
    for request in (SqlRequest, MomentsRequest, ModelRequest, WindowJoinRequest, MatrixChainRequest)
}


@dataclass(frozen=True)
class TreeChoice:
    """What led to a tree of operators, and to where these run.

    Parameters
    ----------
    sizes : the known sizes of its sources.
    fingerprint : of the tree.
    placed_for : the number of buckets then, if it has changed since; 0 if it has not.
    """

    sizes: Mapping[str, int]
    fingerprint: str = ""
    placed_for: int = 0

    def __post_init__(self) -> None:
        if type(self.placed_for) is not int or self.placed_for < 0:  # as a damaged log may have it
            raise ValueError(f"operators were placed for {self.placed_for!r} buckets")


@dataclass(frozen=True)
class ViewTreeChoice:
    """A variable order with the exchanges along it, and the reasons for both."""

    order: Mapping[str, Any] | None
    order_why: str
    stages: Mapping[str, str | None]  # the variable of each stage, by the view that it computes
    stages_why: tuple[str, ...]
    indicators: bool = False  # whether cyclic joins have indicator projections; those of old locations have none


_PLANS: dict[str, type[TreeChoice | ViewTreeChoice]] = {"tree": TreeChoice, "view tree": ViewTreeChoice}


@dataclass(frozen=True)
class Choice:
    """How a view is kept, and why so."""

    strategy: str
    why: str = ""
    plan: TreeChoice | ViewTreeChoice | None = None
    shifts: Mapping[str, float] = field(default_factory=dict)  # the number subtracted from each feature (`centring`)
    rings: Mapping[str, str] = field(default_factory=dict)  # the rings of the user by name, and how to recognise them
    views: Mapping[str, str] = field(
        default_factory=dict
    )  # the views that are read, and how to recognise their queries


@dataclass(frozen=True)
class Definition:
    """What a user asked for, and how it is kept, once that has been chosen."""

    request: Request
    choice: Choice | None = None
    freshness: Freshness | None = None  # how fresh the view has to be; None if every step brings it up to date
    idle_after: Duration | None = None  # after so long without rows the view lets go of state (`idleness`)

    @property
    def kind(self) -> str:
        return self.request.kind

    @property
    def sql(self) -> str:
        return self.request.sql

    @property
    def strategy(self) -> str:
        """The chosen strategy; empty until one is chosen."""
        return self.choice.strategy if self.choice else ""

    @property
    def why(self) -> str:
        """Why this strategy was chosen, in a clause."""
        return self.choice.why if self.choice else ""

    @property
    def shifts(self) -> Mapping[str, float]:
        """The number subtracted from each feature."""
        return self.choice.shifts if self.choice else {}

    @property
    def rings(self) -> Mapping[str, str]:
        """The rings of the user that the view sums in, by name, and how to recognise them."""
        return self.choice.rings if self.choice else {}

    @property
    def views(self) -> Mapping[str, str]:
        """The views that the view reads, and how to recognise their queries."""
        return self.choice.views if self.choice else {}

    @property
    def tree(self) -> TreeChoice | None:
        """What led to the tree of operators that was chosen, if one was."""
        return self.choice.plan if self.choice and isinstance(self.choice.plan, TreeChoice) else None

    @property
    def view_tree(self) -> ViewTreeChoice | None:
        """The view tree that was chosen, if one was."""
        return self.choice.plan if self.choice and isinstance(self.choice.plan, ViewTreeChoice) else None

    def with_choice(self, strategy: str, **details: Any) -> Definition:
        """The definition with a choice; details that are not given keep their values."""
        known = self.choice or Choice(strategy)
        return replace(self, choice=replace(known, strategy=strategy, **details))

    def to_json(self) -> dict[str, Any]:
        choice: dict[str, Any] | None = None
        if self.choice is not None:
            choice = asdict(self.choice)
            for name in ("rings", "views"):
                if not choice[name]:
                    del choice[name]  # so that plans which were stored before there were such still fit
            if self.choice.plan is not None:
                choice["plan"]["kind"] = next(k for k, plan in _PLANS.items() if isinstance(self.choice.plan, plan))
        fresh = None if self.freshness is None else self.freshness.to_json()
        return {
            "version": VERSION,
            "kind": self.kind,
            "request": asdict(self.request),
            "choice": choice,
            "freshness": fresh,
            "idle_after": None if self.idle_after is None else str(self.idle_after),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        if data.get("version") != VERSION:
            raise StorageError(
                f"a view was defined in version {data.get('version', 1)}; this Headrace reads version {VERSION}",
                way_out="open the location with the version that wrote it, or make it anew",
            )
        given = dict(data["request"])
        if "wishes" in given:
            given["wishes"] = Wishes(**given["wishes"])
        request = _made(_REQUESTS[data["kind"]], given)
        choice = data["choice"]
        if choice is not None and choice["plan"] is not None:
            plan = dict(choice["plan"])
            choice = {**choice, "plan": _made(_PLANS[plan.pop("kind")], plan)}
        fresh, idle_after = data.get("freshness"), data.get("idle_after")
        return cls(
            request,
            None if choice is None else Choice(**choice),
            None if fresh is None else Freshness.from_json(fresh),
            None if idle_after is None else Duration.parse(idle_after),
        )


def _made(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Make an object from plain values; lists of JSON become tuples again."""
    names = {one.name for one in fields(kind)}
    for one in fields(kind):
        if one.type == "str" and not isinstance(given.get(one.name, ""), str):
            raise TypeError(f"its {one.name} is no text")
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name in names})


@dataclass(frozen=True)
class SqlAnswer:
    """How the answer of a query follows from groups."""

    analysed: AnalysedView
    layout: ViewLayout


@dataclass(frozen=True)
class ResultAnswer:
    """How the rows of a query are listed from a hierarchy of views."""

    analysed: AnalysedView
    layout: ViewLayout
    view: JoinView


@dataclass(frozen=True)
class FeatureMoments:
    """Moments of features, by group; categorical features apart from those that are numbers."""

    analysed: AnalysedView
    features: tuple[str, ...]
    groups: tuple[str, ...]
    categorical: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """Per column of the query, its variable in the join."""
        plan = self.analysed.plan
        assert isinstance(plan.over, JoinPlan)
        return {output.name: key for output, key in zip(plan.outputs, plan.over.keys, strict=True)}


@dataclass(frozen=True)
class SparkAnswer:
    """The rows that Spark gives for the query as it stands."""

    kernel: RecomputedQuery

    analysed: ClassVar[None] = None


@dataclass(frozen=True)
class WindowAnswer:
    """The answers of a window join."""

    kernel: WindowView

    analysed: ClassVar[None] = None


@dataclass(frozen=True)
class MatrixAnswer:
    """The product of a chain of matrices."""

    kernel: ChainView

    analysed: ClassVar[None] = None


K = TypeVar("K", bound=ViewKernel)
Answer = SqlAnswer | ResultAnswer | FeatureMoments | SparkAnswer | WindowAnswer | MatrixAnswer
A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class PlannedView(Generic[K, A]):
    """A view that can be maintained: its definition with all choices made, its kernel, and what it answers.

    Parameters
    ----------
    tables : the tables that the view reads.
    factorization : the order, the views and the exchanges of a view tree.
    views : the operators of its tree that keep what another view keeps as its answer, by number.
    """

    definition: Definition
    kernel: K
    tables: tuple[str, ...]
    answer: A
    factorization: Planned | None = None
    views: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the view was made to close its windows."""
        request = self.definition.request
        return isinstance(request, SqlRequest) and request.final

    @property
    def analysed(self) -> AnalysedView | None:
        """The query as Catalyst analysed it, for views where Catalyst may have to evaluate changes; else None."""
        return self.answer.analysed
