"""The learned cost model: what it ranks, what it is learned from, and what files it takes."""

from __future__ import annotations

import builtins
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError, HostError
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.boosting import learned, load_trees, save_trees
from compiler.tune.strategies.choice import make_strategy, model_for
from compiler.tune.strategies.evolution import Evolution
from compiler.tune.strategies.model import CostModel, LearnedRanking
from compiler.tune.strategies.strategy import ExhaustiveSearch, RandomSearch, Strategy
from compiler.tune.strategies.tree import Walk
from tests.support.searches import hear, searched, seconds_of, toy_space

pytest.importorskip("xgboost", reason="the model is learned by an extra")


def ranking_of(model: CostModel | None = None) -> LearnedRanking:
    of = toy_space()
    return (model or CostModel()).ranking(of.workload.key, of.target.facts)


def in_order(scores: list[float], candidates: list[KernelCandidate]) -> float:
    """The share of pairs that scores put in the order of their seconds."""
    pairs = [
        (scores[a] - scores[b]) * (seconds_of(candidates[b]) - seconds_of(candidates[a])) > 0
        for a in range(len(scores))
        for b in range(a)
        if seconds_of(candidates[a]) != seconds_of(candidates[b])
    ]
    return sum(pairs) / len(pairs)


@pytest.fixture(scope="module")
def candidates() -> list[KernelCandidate]:
    return RandomSearch(toy_space(16), seed=3).propose(240)


def test_what_was_not_seen_is_ranked(candidates: list[KernelCandidate]) -> None:
    ranking = ranking_of()
    for item in candidates[:120]:
        ranking.learn(item, Measured(OK, (seconds_of(item),)))
    rest = candidates[120:]
    assert in_order(ranking.of_decisions([Walk.of(item) for item in rest]), rest) > 0.85
    assert in_order(ranking.of_candidates(rest), rest) > 0.85


def test_the_analytic_order_comes_first(candidates: list[KernelCandidate]) -> None:
    ranking = ranking_of()
    walks = [Walk.of(item) for item in candidates]
    assert ranking.of_decisions(walks) == [-item.surplus for item in walks]
    assert ranking.of_candidates(candidates) == [-item.surplus for item in walks]


def test_failures_rank_last(candidates: list[KernelCandidate]) -> None:
    ranking = ranking_of()
    for item in candidates[:160]:
        fails = item.decisions.get("dense.order") == (2,)
        ranking.learn(item, Measured("wrong") if fails else Measured(OK, (1.0,)))
    walks = [Walk.of(item) for item in candidates[160:]]
    scores = ranking.of_decisions(walks)
    bad = [
        score for score, walk in zip(scores, walks, strict=True) if walk.decisions.get("dense.order") == (2,)
    ]
    good = [
        score for score, walk in zip(scores, walks, strict=True) if walk.decisions.get("dense.order") != (2,)
    ]
    assert max(bad) < 0.5 < min(good)


def test_what_was_learned_of_one_kernel_ranks_those_of_another(candidates: list[KernelCandidate]) -> None:
    model = CostModel()
    for item in candidates[:120]:
        ranking_of(model).learn(item, Measured(OK, (seconds_of(item),)))
    other = model.ranking("another workload", toy_space().target.facts)
    assert in_order(other.of_candidates(candidates[120:]), candidates[120:]) > 0.85


def test_trees_are_learned_again_when_there_is_more(candidates: list[KernelCandidate]) -> None:
    model = CostModel()
    ranking = ranking_of(model)
    made = []
    for item in candidates[:100]:
        ranking.learn(item, Measured(OK, (seconds_of(item),)))
        made.append(model.of_loops())
    different = [number for number in range(1, 100) if made[number] is not made[number - 1]]
    assert different[:4] == [11, 14, 17, 21], "from 12, then by a fifth each: 15, 18, 22"


def test_the_same_measurements_give_the_same_ranking(candidates: list[KernelCandidate]) -> None:
    def scores() -> list[float]:
        ranking = ranking_of()
        for item in candidates[:40]:
            ranking.learn(item, Measured(OK, (seconds_of(item),)))
        return ranking.of_candidates(candidates)

    assert scores() == scores()


# ---------------------------------------------------------------- in a search


def guided(seed: int, largest: int) -> Evolution:
    return Evolution(toy_space(largest), seed, ranking=ranking_of())


def test_evolution_finds_the_best_sooner_than_chance() -> None:
    best = min(map(seconds_of, searched(ExhaustiveSearch(toy_space(16)), 50)))

    def trials(strategy: Strategy) -> int:
        seconds: list[float] = []
        while best not in seconds:
            seconds += map(seconds_of, searched(strategy, 8, most=8))
        return seconds.index(best)

    evolution = sorted(trials(guided(seed, 16)) for seed in range(3))
    chance = sorted(trials(RandomSearch(toy_space(16), seed)) for seed in range(9))
    assert evolution[1] < chance[4] / 2, (evolution, chance)


def test_evolution_with_a_model_follows_from_seed_and_times() -> None:
    def run() -> list[str]:
        return [item.program for item in searched(guided(4, 8), 8, most=48)]

    assert run() == run()


def test_evolution_with_a_model_covers_everything_once() -> None:
    found = [item.program for item in searched(guided(4, 8), 8)]
    assert len(found) == len(set(found))
    assert set(found) == {item.program for item in searched(ExhaustiveSearch(toy_space()), 50)}


def test_evolution_learns_from_what_a_database_tells() -> None:
    before = searched(RandomSearch(toy_space(16), seed=5), 8, most=64)
    told, alone = guided(1, 16), guided(1, 16)
    hear(told, before)
    mean = [sum(map(seconds_of, strategy.propose(24)[9:])) for strategy in (told, alone)]
    assert mean[0] < mean[1]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "xgboost":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HostError, match="xgboost is not installed") as error:
        CostModel()
    assert error.value.hint == "pip install 'tk-toolchain[tune]'"
    model, (told,) = model_for("evolution")
    assert model is None
    assert told.endswith("by the analytic costs, not by a learned model (pip install 'tk-toolchain[tune]')")
    assert len(make_strategy("evolution", toy_space(), 1, model=model).propose(20)) == 20


def test_one_model_is_for_all_kernels_of_an_evolution() -> None:
    model, told = model_for("evolution")
    assert model is not None
    assert told == ()
    searched(make_strategy("evolution", toy_space(16), 1, model=model), 8, most=24)
    assert model.of_loops() is not None
    assert model_for("random") == (None, ())


# ---------------------------------------------------------------- files


def test_a_model_comes_back_as_it_was(tmp_path: Path, candidates: list[KernelCandidate]) -> None:
    model, again = CostModel(), CostModel()
    assert not model.save(tmp_path / "model.json"), "nothing was learned yet"
    for item in candidates[:60]:
        ranking_of(model).learn(item, Measured(OK, (seconds_of(item),)))
    assert model.save(tmp_path / "model.json")
    again.load(tmp_path / "model.json")
    assert ranking_of(again).of_candidates(candidates) == ranking_of(model).of_candidates(candidates)


ROWS = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.json"
    labels = [float(a + abs(b)) for a, b, _ in ROWS]
    save_trees(learned(ROWS, labels, [1.0] * len(labels), ["a", "b", "c"]), path, version=1)
    return path


def trees_of(data: Any) -> Any:
    return data["model"]["learner"]["gradient_booster"]["model"]["trees"]


def last_leaf(tree: Any) -> int:
    return len(tree["left_children"]) - 1


def set_to(*keys: str | int, value: Any) -> Callable[[Any], None]:
    """Change something of the first tree."""

    def change(data: Any) -> None:
        place = trees_of(data)[0]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def cycle(data: Any) -> None:
    tree = trees_of(data)[0]
    tree["left_children"][1], tree["right_children"][1] = 0, 1


def shared(data: Any) -> None:
    tree = trees_of(data)[0]
    tree["right_children"][0] = tree["left_children"][0]


HOSTILE: dict[str, Callable[[Any], None]] = {
    "another version": lambda data: data.update(features=2),
    "no columns": lambda data: data.pop("columns"),
    "fewer columns": lambda data: data.update(columns=["a"]),
    "columns that are no names": lambda data: data.update(columns=[1, 2, 3]),
    "no model": lambda data: data.update(model=[]),
    "trees that are no list": lambda data: data["model"]["learner"]["gradient_booster"]["model"].update(
        trees={}
    ),
    "a child beyond the end": set_to("left_children", 0, value=1 << 20),
    "a child before the beginning": set_to("right_children", 0, value=-7),
    "nodes in a circle": cycle,
    "a node with two parents": shared,
    "another parent": set_to("parents", 1, value=5),
    "a column that there is not": set_to("split_indices", 0, value=1 << 30),
    "a place that is a text": set_to("left_children", 0, value="1"),
    "a place that is not whole": set_to("left_children", 0, value=1.0),
    "a number that is none": set_to("split_conditions", 0, value=float("nan")),
    "a number that is a list": set_to("base_weights", 0, value=[]),
    "a third way": set_to("default_left", 0, value=2),
    "missing nodes": set_to("sum_hessian", value=[1.0]),
    "no nodes": set_to("left_children", value=[]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str, file: Path, tmp_path: Path) -> None:
    data = json.loads(file.read_text())
    HOSTILE[name](data)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BadInputError, match="the cost model cannot be used") as error:
        load_trees(path, 1)
    assert str(path) in error.value.where


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"{}", b"[" * 100_000, b"null", b'{"features": 1}'])
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="the cost model cannot be used"):
        load_trees(path, 1)


def test_nothing_but_trees_is_taken_from_a_file(file: Path, tmp_path: Path) -> None:
    data = json.loads(file.read_text())
    learner = data["model"]["learner"]
    learner["learner_model_param"] = {"num_feature": "999999", "num_target": "7", "base_score": "[nan]"}
    learner["objective"] = {"name": "multi:softprob"}
    learner["gradient_booster"]["model"]["tree_info"] = [9]
    trees_of(data)[0]["tree_param"] = {"num_nodes": "1000000", "size_leaf_vector": "9"}
    trees_of(data)[0]["categories"] = [1, 2]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    assert load_trees(path, 1).of(ROWS) == load_trees(file, 1).of(ROWS)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(64))
def test_random_damage_is_refused_or_harmless(seed: int, file: Path, tmp_path: Path) -> None:
    source = random.Random(seed)
    data = json.loads(file.read_text())
    tree = trees_of(data)[source.randrange(len(trees_of(data)))]
    name = source.choice([key for key, value in tree.items() if isinstance(value, list) and value])
    tree[name][source.randrange(len(tree[name]))] = source.choice(
        [-1, 0, 1, 2, 1 << 40, 1e30, None, "x", True]
    )
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    try:
        found = load_trees(path, 1).of(ROWS)
    except BadInputError:
        return
    assert len(found) == len(ROWS)


def test_what_is_proposed_was_expected_to_take_about_so_long() -> None:
    """Nothing is expected of the first ones; when there are trees, a time near to what it takes."""
    of = toy_space(16)
    model = CostModel()
    strategy = Evolution(of, 1, ranking=model.ranking(of.workload.key, of.target.facts))
    first = strategy.propose(24)
    assert [strategy.expected(one) for one in first] == [None] * 24
    hear(strategy, first)
    searched(strategy, 12, most=36)
    later = strategy.propose(24)
    told = [(one, strategy.expected(one)) for one in later]
    known = [(seconds_of(one), expected) for one, expected in told if expected is not None]
    assert len(known) > 12
    off = sorted(abs(expected / took - 1.0) for took, expected in known)
    assert off[len(off) // 2] < 0.3
