"""Guards taken out of the running product: each can be, each changes something, each comes back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from coord_sim.core_world import run
from coord_sim.mutants import hunting, surgery
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.finders import FINDERS, CoreWalk, Hunt
from coord_sim.mutants.hunting import Assignment, Hunted, Plan
from coord_sim.mutants.known import KNOWN
from coord_sim.mutants.mutant import Edit, Mutant, Reach
from coord_sim.mutants.scores import totals, verdicts
from coord_sim.mutants.surgery import OutOfDate, applied, function_at, operated

from coord.cli.main import cli as coordctl
from coord.core import timers
from coord.raft.rules import RULES

EDITED = [mutant for mutant in MUTANTS.values() if mutant.edits]
QUICK = (
    ("clock-step-bound", "log time goes forward, and never far in one step"),
    ("incarnations-grow", "incarnations only grow"),
    ("plan-version", "a plan never changes under the same version, and versions never go back"),
    ("request-once", "a repeated request gets its first outcome"),
    ("fence-before-restart", "an exclusive task runs once"),
    ("commit-when-whole", "a committed checkpoint has every shard, all of one generation"),
    ("drain-takes-no-work", "a drained host gets no work, and stays drained over a new "
     "registration"),
)  # fmt: skip


def test_the_catalogue_covers_every_layer() -> None:
    """At least 40 mutants; every rule of the raft guard that a simulation can reach."""
    assert len(MUTANTS) >= 100
    off = {rule for mutant in MUTANTS.values() for rule in mutant.rules_off}
    # G7 is off by an edit; G9 and G14 keep strangers and clients out, whom no simulation has.
    assert set(RULES) - off == {"G7", "G9", "G14"}
    for layer in ("coord.core", "coord.agent", "coord.client", "coord.node", "coord.raft"):
        assert any(mutant.where.startswith(layer) for mutant in MUTANTS.values()), layer


def test_every_mutant_says_what_it_is() -> None:
    """A name, a guard, what breaks, the races it opens, and who may find it."""
    for mutant in MUTANTS.values():
        assert mutant.guard, mutant.name
        assert mutant.breaks, mutant.name
        assert mutant.races, mutant.name
        assert all(1 <= race <= 44 for race in mutant.races), mutant.name
        assert any(finder in FINDERS for finder in mutant.reach), mutant.name
        assert bool(mutant.edits) != bool(mutant.rules_off), mutant.name


@pytest.mark.parametrize("mutant", EDITED, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_product_changes_it_and_is_undone(mutant: Mutant) -> None:
    """Its snippets stand where it says; inside the block the code differs, afterwards it is the
    very object it was."""
    targets = dict.fromkeys(edit.target for edit in mutant.edits)
    before = {target: function_at(target).__code__ for target in targets}
    with applied(mutant):
        for target in targets:
            assert function_at(target).__code__ != before[target]
    assert {target: function_at(target).__code__ for target in targets} == before


def test_who_holds_a_function_meets_the_change() -> None:
    """Also by a reference taken before."""
    arm = timers.Timers.arm
    with applied(MUTANTS["timers-never-late"]):
        late = timers.Timers()
        arm(late, "host", "h", 10)
        arm(late, "host", "h", 5)
        assert late.next_due_ms() == 10
    early = timers.Timers()
    arm(early, "host", "h", 10)
    arm(early, "host", "h", 5)
    assert early.next_due_ms() == 5


def test_a_mutant_is_undone_when_its_block_fails() -> None:
    """Else it would live on in whatever runs next."""
    mutant = MUTANTS["clock-step-bound"]
    ((target, _),) = operated(mutant)
    before = function_at(target).__code__
    with pytest.raises(KeyError), applied(mutant):
        raise KeyError
    assert function_at(target).__code__ is before


def test_one_mutant_at_a_time_in_one_function() -> None:
    """The second would take the first one out."""
    mutant = MUTANTS["clock-step-bound"]
    with applied(mutant):
        second = applied(MUTANTS["clock-forward-only"])
        with pytest.raises(RuntimeError, match="one mutant at a time"):
            second.__enter__()


@pytest.mark.parametrize(
    ("target", "old", "new", "said"),
    [
        ("coord.core.machine:apply", "no such line", "pass", "stands there 0 times"),
        ("coord.core.machine:apply", "meta", "pass", "times, not once"),
        ("coord.core.machine:gone", "a", "b", "has no gone"),
        ("coord.core.machine:LogGap", "a", "b", "is no function"),
        ("coord.core.machine:log_time_ms", "wall_ms: int", "wall: int", "must not change what"),
    ],
)
def test_a_catalogue_that_is_out_of_date_says_so(
    target: str, old: str, new: str, said: str
) -> None:
    """A mutant that fits no more must not pass for one that nothing finds."""
    mutant = Mutant(name="m", guard="g", breaks="b", reach=(), edits=(Edit(target, old, new),))
    with pytest.raises(OutOfDate, match=said), applied(mutant):
        pass


@pytest.mark.parametrize(("name", "broken"), QUICK)
def test_the_random_walk_finds_a_mutant(name: str, broken: str) -> None:
    """A handful of those that take it no time; nothing is left of them afterwards."""
    found = CoreWalk().hunt(MUTANTS[name], 1, 20.0)
    assert found.broken
    assert found.schedules >= 1
    if found.schedules == 1:
        assert found.broken == broken or found.detail
    assert run(1, 60, twin=False).property == ""


def test_a_hunt_repeats_itself() -> None:
    """The same seed finds the same thing after as many schedules."""
    mutant = MUTANTS["clock-step-bound"]
    first, second = (CoreWalk().hunt(mutant, 1, 20.0) for _ in range(2))
    assert first[:3] == second[:3]


def test_nothing_is_found_in_the_product_itself() -> None:
    """A finder that always finds proves nothing."""
    whole = Mutant(name="whole", guard="-", breaks="-", reach=(Reach.CORE,))
    found = CoreWalk().hunt(whole, 1, 1.0)
    assert found.broken == ""
    assert found.schedules > 1


def test_results_are_kept_and_hunts_not_repeated(tmp_path: Path) -> None:
    """With the same code and limits; a line that was cut off is hunted again."""
    results = tmp_path / "mutants.jsonl"
    plan = Plan(("incarnations-grow",), (Reach.CORE,), 2, 20.0, 1, results)
    first = hunting.run_campaign(plan)
    assert (len(first.hunts), first.known, first.interrupted) == (2, 0, False)
    content = results.read_bytes()
    results.write_bytes(content[: content.index(b"\n") + 20])
    second = hunting.run_campaign(plan)
    assert (len(second.hunts), second.known) == (2, 1)
    results.write_text("{}\n{}\n")
    with pytest.raises(ValueError, match="line 1 is no result"):
        hunting.read_results(results)


def hunted(mutant: str, finder: Reach, seed: int, broken: str, cpu_s: float) -> Hunted:
    return Hunted(Assignment(mutant, finder, seed, 60.0), "code", broken, "", 4, cpu_s)


def test_a_verdict_takes_the_cheapest_finder_that_is_reliable() -> None:
    """And keeps the random walk beside it; a survivor says why."""
    hunts = [
        hunted("breaker", Reach.CORE, 1, "", 60.0),
        hunted("breaker", Reach.CORE, 2, "p", 1.0),
        hunted("breaker", Reach.CLUSTER, 1, "q", 5.0),
        hunted("breaker", Reach.CLUSTER, 2, "q", 7.0),
        hunted("rule-g1", Reach.RAFT, 1, "", 60.0),
    ]
    breaker, rule = verdicts(hunts)
    assert breaker.best is not None
    assert (breaker.best.finder, breaker.best.cpu_s, breaker.best.seed) == (Reach.CLUSTER, 6.0, 1)
    assert breaker.baseline is not None
    assert (breaker.baseline.found, breaker.baseline.cpu_s) == (1, 30.5)
    assert (rule.found, rule.reason) == (False, "not found within the limit")


def test_hunts_that_would_tell_little_are_left_out() -> None:
    """A finder that found nothing from its first seeds, where another always does; and, in a hurry,
    everything after the first finding."""
    wanted = Assignment("breaker", Reach.CLUSTER, 4, 60.0)
    seeds = range(1, 4)
    nothing = [hunted("breaker", Reach.CLUSTER, seed, "", 60.0) for seed in seeds]
    always = [hunted("breaker", Reach.CORE, seed, "p", 1.0) for seed in seeds]
    assert hunting.needless(wanted, [*nothing, *always], quick=False)
    assert not hunting.needless(wanted, [*nothing, *always[:2]], quick=False)
    assert not hunting.needless(wanted, [*nothing[:2], *always], quick=False)
    assert hunting.needless(wanted, always[:1], quick=True)
    assert not hunting.needless(wanted, nothing, quick=True)


def test_whoever_is_known_to_find_a_mutant_is_asked_first(tmp_path: Path) -> None:
    """So that a hurried campaign is a short one."""
    plan = Plan(("generation-of-reports",), (), 2, 20.0, 1, tmp_path / "r.jsonl", quick=True)
    order = [(one.finder, one.seed) for one in hunting.assignments(plan)]
    assert order[0] == (KNOWN["generation-of-reports"].finder, 1)
    assert [seed for _, seed in order] == sorted(seed for _, seed in order)


def test_groups_are_counted_apart() -> None:
    """With the raft guard and without it; what can make no difference counts as no miss."""
    found = verdicts(
        [
            hunted("breaker", Reach.CORE, 1, "p", 1.0),
            hunted("rule-g1", Reach.RAFT, 1, "", 60.0),
            hunted("agent-devices-are-free", Reach.CLUSTER, 1, "", 60.0),
        ]
    )
    rows = {total.group: total for total in totals(found)}
    assert list(rows) == ["core", "agent", "raft guard", "all", "all but the raft guard"]
    assert (rows["all"].hunted, rows["all"].found, rows["all"].excused) == (3, 1, 1)
    assert rows["all but the raft guard"].hunted == 2


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_known_results_are_shown_without_a_hunt(tmp_path: Path, output: str) -> None:
    """The newest of each, by whatever code; survivors with what was spent on them."""
    results = tmp_path / "mutants.jsonl"
    hunts = [
        hunted("breaker", Reach.CORE, 1, "", 60.0),
        hunted("breaker", Reach.CORE, 1, "who is silent", 2.5),
        hunted("rule-g1", Reach.RAFT, 1, "", 61.0),
    ]
    results.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in hunts))
    told = CliRunner().invoke(
        coordctl, ["sim", "mutants", "--known", "--results", str(results), "-o", output]
    )
    assert told.exit_code == 1
    assert "1 of 2 mutants found, in 2 hunts of one version of the code" in told.stdout
    assert "who is silent" in told.stdout
    assert "raft 1 seeds of 61 s: not found within the limit" in told.stdout


def test_the_command_lists_and_refuses(tmp_path: Path) -> None:
    """The catalogue as JSON holds every mutant; an unknown name or a wrong limit is bad input."""
    runner = CliRunner()
    listed = runner.invoke(coordctl, ["sim", "mutants", "--list", "-o", "json"])
    assert listed.exit_code == 0
    assert [one["name"] for one in msgspec.json.decode(listed.stdout)] == list(MUTANTS)
    unknown = runner.invoke(coordctl, ["sim", "mutants", "--mutant", "nothing"])
    assert unknown.exit_code == 2
    assert "no mutant nothing" in unknown.output
    never = runner.invoke(coordctl, ["sim", "mutants", "--limit", "soon"])
    assert never.exit_code == 2
    assert "is no duration" in never.output
    broken = tmp_path / "other.jsonl"
    broken.write_text("{}\n{}\n")
    other = runner.invoke(coordctl, ["sim", "mutants", "--results", str(broken)])
    assert other.exit_code == 2
    assert "is no result of a hunt" in other.output


def test_a_hunt_that_goes_round_in_circles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as found: a run ends."""
    monkeypatch.setattr("coord_sim.mutants.finders.EXECUTION_LIMIT_S", 0.1)

    class Circling(CoreWalk):
        def _live(self, seed: int, steps: int, twin: bool) -> tuple[str, str]:
            while True:
                pass

    found = Circling().hunt(MUTANTS["clock-step-bound"], 1, 0.1)
    assert isinstance(found, Hunt)
    assert (found.broken, found.schedules) == ("a run ends", 1)
    assert not surgery._operated


def test_an_incident_taken_apart_gives_a_mutant_away() -> None:
    """From a log in which nothing was wrong; with the product whole it gives nothing away."""
    found = FINDERS[Reach.EXPLORE].hunt(MUTANTS["fence-before-restart"], 1, 20.0)
    assert found.broken == "an exclusive task runs once"
    whole = Mutant(name="whole", guard="-", breaks="-", reach=(Reach.EXPLORE,))
    assert FINDERS[Reach.EXPLORE].hunt(whole, 1, 0.5).broken == ""


def test_what_is_known_fits_the_catalogue() -> None:
    """A mutant that is known to be found is found by who may reach it, and most are known."""
    for name, known in KNOWN.items():
        assert known.finder in MUTANTS[name].reach
        assert not MUTANTS[name].survives
    of_the_core = [mutant for mutant in MUTANTS.values() if Reach.CORE in mutant.reach]
    assert sum(mutant.name in KNOWN for mutant in of_the_core) >= 0.9 * len(of_the_core)
