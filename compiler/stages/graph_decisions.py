"""Decisions about a whole graph: what becomes one kernel, and how tensors between kernels lie in memory.

They are asked of a chooser by their names, as those of kernels are, and a record of the graph says what was
taken. What is estimated is the first guess; a search may take what the estimates would not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from compiler.core.files import sha256_bytes
from compiler.graph.fuse import MOST_NODES
from compiler.graph.fuse_chains import has_chains
from compiler.graph.fuse_factors import is_depthwise, makes_image
from compiler.graph.ir import Graph, TensorType, Value
from compiler.loops.ir import Buffer, Func, const, seq
from compiler.schedule.chooser import RecordingChooser
from compiler.schedule.rules.options import decide
from compiler.stages.cluster_chains import has_clusters
from compiler.stages.job import CompileJob
from compiler.stages.tuned import BranchChoice, GraphChoices, Layouts
from compiler.stages.workload import Workload

LAYOUT, FUSION = "graph.layout", "graph.fusion"
ATTENTION, DEPTHWISE = "graph.attention", "graph.depthwise"
ELEMENTWISE, CHAINS = "graph.elementwise", "graph.chains"
BRANCHES = "graph.branches"
_FEW_NODES = (3, 2, 1)
"""Operators that a kernel may have where it has not as many as fit: the heavy one, and so many epilogues."""


def choose_graph(graph: Graph, job: CompileJob) -> GraphChoices:
    """What is decided about a graph in canonical form; nothing where a run may have other sizes."""
    if graph.symbols or graph.batch is not None:
        return GraphChoices()
    workload = graph_workload(graph)
    tuned = job.records(workload)
    chooser = RecordingChooser(job.chooser_of(tuned))
    has_vectors = not job.target.facts.binds_threads
    layout = decide(chooser, LAYOUT, Layouts.BY_COST, [*Layouts][1:] if has_vectors else ())
    attention = has_vectors and any(node.op.weighs for node in graph.nodes)
    joined = decide(chooser, ATTENTION, 1, (0,) if attention else ())
    pairs = not has_vectors and any(is_depthwise(node) for node in graph.nodes)
    in_one = decide(chooser, DEPTHWISE, 1, (0,) if pairs else ())
    elementwise = not has_vectors and any(makes_image(node, graph) for node in graph.nodes)
    made = decide(chooser, ELEMENTWISE, 1, (0,) if elementwise else ())
    clusters = has_clusters(job.target.facts) and has_chains(graph)
    in_clusters = decide(chooser, CHAINS, 1, (0,) if clusters else ())
    fusion = decide(chooser, FUSION, MOST_NODES, _FEW_NODES)
    forks = (job.target.facts.limit("branches") or 1) > 1 and _forks(graph)
    branches = decide(chooser, BRANCHES, BranchChoice.BY_COST, [*BranchChoice] if forks else ())
    return GraphChoices(
        fusion=fusion,
        attention=bool(joined),
        depthwise=bool(in_one),
        elementwise=bool(made),
        chains=bool(in_clusters),
        branches=BranchChoice(branches),
        layout=Layouts(layout),
        record=tuned.record,
        decisions=dict(chooser.decisions),
        offered=dict(chooser.offered),
        workload=workload,
    )


def _forks(graph: Graph) -> bool:
    """Whether something is read by several nodes, or nodes begin with several inputs."""
    reads = Counter(value for node in graph.nodes for value in set(node.inputs) - graph.constants.keys())
    return any(count > 1 for count in reads.values()) or len(reads.keys() & set(graph.inputs)) > 1


def graph_workload(graph: Graph) -> Workload:
    """What a graph has to do, as a function of its inputs and outputs without loops: known by its digest.

    Names of tensors and contents of constants are no part of it.
    """
    numbers: dict[Value, int] = {}
    for value in (*graph.inputs, *graph.constants):
        numbers.setdefault(value, len(numbers))
    digest = sha256_bytes(json.dumps(list(_nodes(graph, numbers))).encode())
    params = [_buffer(f"x{n}", value.type) for n, value in enumerate(graph.inputs)]
    results = [_buffer(f"y{n}", value.type) for n, value in enumerate(graph.outputs)]
    func = Func("graph", (*params, *results), seq(), outputs=len(results), attrs=(("graph", digest),))
    return Workload.of(func, {})


def _nodes(graph: Graph, numbers: dict[Value, int]) -> Iterator[list[object]]:
    """What tells graphs apart: operators, attributes, types, and who reads what."""
    for value, number in numbers.items():
        yield [number, str(value.type), value in graph.constants]
    for node in graph.nodes:
        read = [numbers[value] for value in node.inputs]
        for value in node.outputs:
            numbers[value] = len(numbers)
        yield [node.op.name, repr(node.attrs), read, [str(value.type) for value in node.outputs]]
    yield [numbers[value] for value in graph.outputs]


def _buffer(name: str, kind: TensorType) -> Buffer:
    return Buffer(name, kind.dtype, tuple(const(extent) for extent in kind.shape), "global")
