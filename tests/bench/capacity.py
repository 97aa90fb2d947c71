"""The arithmetic of `gpufleet capacity` where there is too much to try all of it, and the table of instance types."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from gpufleet.aws.ec2 import instance_types
from gpufleet_tools.capacity import elastic_packing, packing
from gpufleet_tools.capacity.cheapest_purchase import cheapest
from gpufleet_tools.capacity.elastic_packing import Offer
from gpufleet_tools.capacity.packing import Demand, NodeShape


def measure(*, smallest: bool = False) -> None:
    """Prints the CPU seconds of each question, the median of five. The marks were set on two cores."""
    labels = 4 if smallest else 16
    questions: dict[str, tuple[Callable[[], object], str]] = {
        f"{labels} labels on 64 machines": (lambda: fixed_pool(labels), "5 s"),
        f"{labels} labels on 60 instance types": (lambda: elastic_pool(labels // 4), "5 s"),
        f"cheapest nodes for {labels} labels": (lambda: purchase(labels), "2 s"),
        "the table of instance types": (table_of_types, "0.015 s"),
    }
    table = Table("question", "CPU", "asked", title="capacity", box=None)
    for name, (question, mark) in questions.items():
        seconds = timeit.repeat(question, timer=time.process_time, number=1, repeat=1 if smallest else 5)
        table.add_row(name, f"{statistics.median(seconds):.3f} s", f"< {mark}")
    Console(highlight=False).print(table)


def fixed_pool(labels: int) -> None:
    """What each label is guaranteed of 64 machines with 8 GPUs, while all others run."""
    shapes = [NodeShape("n", (8, 190, 2200, 110), 64)]
    jobs = [Demand(f"l{n}", (n % 4 + 1, 10 + n, 100 + 7 * n, 1), 20, frozenset({"n"})) for n in range(labels)]
    packing.fit(jobs, shapes)
    for job in jobs:
        packing.guaranteed(job, [other for other in jobs if other is not job], shapes)


def elastic_pool(labels: int) -> None:
    """What each label is guaranteed of a pool with 60 instance types, and what blocks it."""
    offers = [Offer(f"t{n}", (4 + n, 16 + 3 * n), (1, 3 + n, 12 + 2 * n)) for n in range(60)]
    names = frozenset(offer.name for offer in offers)
    jobs = [Demand(f"l{n}", (0, 1 + n, 2 + n), 50, names) for n in range(labels)]
    limits = (1000, 4000)
    for job in jobs:
        others = [other for other in jobs if other is not job]
        elastic_packing.guaranteed(job, others, offers, limits)
        elastic_packing.burst(job, offers, limits)
        for other in others:
            elastic_packing.blocking(job, other, offers, limits)
    elastic_packing.fit(jobs, offers, limits)


def purchase(labels: int) -> None:
    """The cheapest nodes of 59 instance types that hold 50 jobs of each label."""
    offers = [Offer(f"t{n}", (n, 3 * n), (n, n * 4, n * 7)) for n in range(1, 60)]
    names = frozenset(offer.name for offer in offers)
    jobs = [Demand(f"l{n}", (1 + n % 3, 1 + n % 5, 2), 50, names) for n in range(labels)]
    cheapest(jobs, offers, (10_000, 30_000), {offer.name: 100 * n + 7 for n, offer in enumerate(offers, 1)})


def table_of_types() -> None:
    """Reads the table from its file, as the first pool of a plan does."""
    instance_types._table.cache_clear()
    instance_types.instance_types.cache_clear()
    instance_types.instance_types()
