"""`python -m benchmarks.performance`: the tables and plots of speed in README and docs, from the results.

Without `--write` it prints the tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import INTERPRETED
from benchmarks.figures import RESULTS, Figures
from benchmarks.pages import Table, markdown, renewed
from benchmarks.plots import Bar, Panel, svg

_ROOT = Path(__file__).parents[1]
README = _ROOT / "README.md"
PAGE = _ROOT / "docs" / "explanation" / "performance.md"
PLOTS = _ROOT / "docs" / "explanation" / "plots"

_PEERS = ("Nebula", "RabbitMQ", "ActiveMQ")
# Measured with a receipt for 256 messages too, which is faster there: the pages say so.
_FASTER = {
    ("Queue on disk, sends with receipts", "ActiveMQ"): "ActiveMQ, 256 a receipt",
    ("Queue on disk, sent, consumed and acked", "ActiveMQ"): "ActiveMQ, 256 a receipt",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A line that compares Nebula with the other brokers: its words, the row's title, and the column."""

    words: str
    title: str
    column: str

    @property
    def is_better_low(self) -> bool:
        """Whether it is a time, or memory."""
        return self.column.endswith(("µs", "MB"))


_QUEUE = Compared("queue, messages/s", "Queue, auto acks", "messages/s")
_ON_DISK = Compared(
    "queue on disk, a receipt per message, messages/s", "Queue on disk, sends with receipts", "messages/s"
)
_FAN_OUT = Compared("topic, 1 to 10, deliveries/s", "Topic, fan-out 1 to 10", "deliveries/s")
_ALONE = Compared("request and reply, one at a time, median µs", "Raw request/reply, one at a time", "p50 µs")
_MANY = Compared(
    "request and reply, 64 in flight, requests/s", "Raw request/reply, 64 in flight", "requests/s"
)


def _differing(kind: str) -> tuple[Compared, ...]:
    end = f", differing heads: {kind}"
    return (
        Compared(f"queue, {kind}, messages/s", f"Queue, auto acks{end}", "messages/s"),
        Compared(f"topic, 1 to 10, {kind}, deliveries/s", f"Topic, fan-out 1 to 10{end}", "deliveries/s"),
        Compared(
            f"request and reply, 64 in flight, {kind}, requests/s",
            f"Raw request/reply, 64 in flight{end}",
            "requests/s",
        ),
    )


_HEADS = (*_differing("correlation"), *_differing("traceparent"), *_differing("jms"), _differing("ids")[2])
_STREAMS = (
    _QUEUE,
    Compared("queue, client ACKs, messages/s", "Queue, cumulative client acks", "messages/s"),
    Compared("queue, a receipt per message, messages/s", "Queue, a receipt per message", "messages/s"),
    _ON_DISK,
    Compared(
        "queue on disk, sent, consumed and ACKed, messages/s",
        "Queue on disk, sent, consumed and acked",
        "messages/s",
    ),
    _FAN_OUT,
    Compared(
        "queue, 4 publishers and 4 consumers, messages/s", "Queue, 4 publishers and 4 consumers", "messages/s"
    ),
    Compared("queue, bodies of 1 KB, messages/s", "Queue, auto acks, bodies of 1 KB", "messages/s"),
    Compared("queue, bodies of 16 KB, messages/s", "Queue, auto acks, bodies of 16 KB", "messages/s"),
)
_REQUESTS = (
    _ALONE,
    Compared(
        "request and reply during a flood, 99th percentile µs",
        "Raw request/reply, one at a time, during a flood",
        "p99 µs",
    ),
    _MANY,
    Compared(
        "request and reply in two writes without TCP_NODELAY, median µs",
        "Raw request/reply, one at a time, head and body written apart",
        "p50 µs",
    ),
    Compared("connects/s", "Connects", "connects/s"),
    Compared("memory of 1,000 idle connections, MB", "1,000 idle connections", "RSS MB"),
)
# What stands in the README: the whole is one page further.
_SUMMARY = (
    _QUEUE,
    Compared(
        "the same, headers of its own in each, messages/s",
        "Queue, auto acks, differing heads: correlation",
        "messages/s",
    ),
    _ON_DISK,
    _FAN_OUT,
    _ALONE,
    _MANY,
    Compared(
        "the same, headers of its own in each, requests/s",
        "Raw request/reply, 64 in flight, differing heads: correlation",
        "requests/s",
    ),
)
# What a message costs the broker: the words, the row and the contestant.
_COSTS = (
    ("a message through a queue", "Queue, auto acks", "Nebula"),
    ("with rights", "Queue, auto acks, with rights", "Nebula, rights configured"),
    ("not persistent, with a store on disk", "Queue, auto acks, with a store", "Nebula, with a store"),
    ("with cumulative client ACKs", "Queue, cumulative client acks", "Nebula"),
    ("with a receipt for each SEND", "Queue, a receipt per message", "Nebula"),
    ("by TLS", "Queue, auto acks, by TLS and WebSocket", "Nebula, TLS"),
    ("by WebSocket", "Queue, auto acks, by TLS and WebSocket", "Nebula, WebSocket"),
    ("with a head of its own: `correlation-id`", "Queue, auto acks, differing heads: correlation", "Nebula"),
    ("with a head of its own: `traceparent`", "Queue, auto acks, differing heads: traceparent", "Nebula"),
    ("with a head of its own: twelve lines", "Queue, auto acks, differing heads: jms", "Nebula"),
    ("kept on disk, a receipt for each", "Queue on disk, sends with receipts", "Nebula"),
    ("one delivery of a topic's message to ten", "Topic, fan-out 1 to 10", "Nebula"),
)
_LATENCIES = {
    rate: f"Latency of a delivery at {rate:,} messages/s" for rate in (1_000, 10_000, 50_000, 100_000)
}
_PERCENTILES = ("p50 µs", "p99 µs", "p99.9 µs")
_RPC = {"one at a time": "RPC end to end, one at a time", "64 in flight": "RPC end to end, 64 in flight"}


def tables(figures: Figures) -> dict[str, str]:
    """Each table of the page, as Markdown, by its name in the page."""
    made = {
        "streams": _comparison(figures, _STREAMS),
        "requests": _comparison(figures, _REQUESTS),
        "heads": _comparison(figures, _HEADS),
        "latency": _latencies(figures),
        "costs": _costs(figures),
        "deep": _deep(figures),
        "values": _values(figures),
        "rpc": _rpc(figures),
    }
    return {name: markdown(table) for name, table in made.items()}


def summary(figures: Figures) -> str:
    """The table of the README."""
    lines = [
        [_named(figures, one.title, one.words), *_cells(figures, one)]
        for one in _SUMMARY
        if figures.has(one.title)
    ]
    return markdown([["", *_PEERS], *lines])


def plots(figures: Figures) -> dict[str, str]:
    """Each plot of the page, by the name of its file."""
    return {
        "streams.svg": svg("Messages through queues and topics", _panels(figures, _STREAMS)),
        "requests.svg": svg("Requests and connects", _panels(figures, _REQUESTS)),
        "heads.svg": svg(
            "Messages that all have the same head, and messages with heads of their own",
            _panels(figures, (_QUEUE, _HEADS[0], _HEADS[3], _HEADS[6], _MANY, _HEADS[2], _HEADS[9])),
        ),
        "latency.svg": svg("Latency of a delivery, by rate", _latency_panels(figures)),
        "costs.svg": svg("What a message costs the broker", [_cost_panel(figures)]),
        "rpc.svg": svg("RPC end to end", _rpc_panels(figures)),
    }


def _named(figures: Figures, title: str, words: str) -> str:
    """The words, with a mark where the row was measured on a busy machine."""
    return f"{words} †" if title in figures.provisional else words


def _cells(figures: Figures, one: Compared) -> list[str]:
    table = figures.tables[one.title]
    return [table[_FASTER.get((one.title, name), name)][one.column] for name in _PEERS]


def _comparison(figures: Figures, lines: Sequence[Compared]) -> Table:
    rows = []
    for one in lines:
        if figures.has(one.title):
            cells = _cells(figures, one)
            ours, *others = map(_number, cells)
            ratio = min(others) / ours if one.is_better_low else ours / max(others)
            interpreted = figures.tables[one.title].get(INTERPRETED, {}).get(one.column, "")
            words = _named(figures, one.title, one.words)
            rows.append([words, cells[0], interpreted, *cells[1:], f"{ratio:.1f}"])
    heading = ["", "Nebula", "interpreted", *_PEERS[1:], "ratio to the better one"]
    return [heading, *rows]


def _latencies(figures: Figures) -> Table:
    rows = [
        [_named(figures, title, f"{rate:,}"), name, *(cells[column] for column in _PERCENTILES)]
        for rate, title in _LATENCIES.items()
        for name, cells in figures.tables.get(title, {}).items()
    ]
    return [["messages/s", "broker", *_PERCENTILES], *rows]


def _latency_panels(figures: Figures) -> list[Panel]:
    """Nebula's percentiles, a panel for each rate."""
    return [
        Panel(
            _named(figures, title, f"Nebula at {rate:,} messages/s, µs") + " (less is better)",
            [
                Bar(column.removesuffix(" µs"), _number(cells[column]), cells[column], True)
                for column in _PERCENTILES
            ],
        )
        for rate, title in _LATENCIES.items()
        if figures.has(title)
        for cells in [figures.tables[title]["Nebula"]]
    ]


def _costs(figures: Figures) -> Table:
    return [["", "CPU of the broker, µs"], *([words, shown] for words, shown in _known_costs(figures))]


def _known_costs(figures: Figures) -> Iterator[tuple[str, str]]:
    for words, title, contestant in _COSTS:
        if figures.has(title):
            yield _named(figures, title, words), figures.tables[title][contestant]["cpu µs"]


def _deep(figures: Figures) -> Table:
    deep = figures.tables["Queue on disk, 1,000,000 deep"]
    full, empty = deep["Nebula, 1 M deep"], deep["Nebula, empty"]
    started = figures.tables["Start with 1,000,000 messages on disk"]["Nebula"]
    return [
        ["1,000,000 persistent messages in one queue", ""],
        ["memory of the broker", f"{full['RSS MB']} MB"],
        ["rate of sending to it, relative to an empty queue", empty["times"]],
        ["rate of consuming from it, relative to an empty queue", empty["times drained"]],
        ["restart of the broker", f"{started['s']} s"],
    ]


def _values(figures: Figures) -> Table:
    changed = figures.tables["Last values, with 10,000 subscriptions elsewhere"]["Nebula, 10,000 globs"]
    watched = figures.tables["Last values, 100,000 keys, 100 subscribers"]["Nebula, each watches all"]
    shown = figures.tables["Last values, an eager snapshot of 100,000 keys"]["Nebula, auto acks"]
    return [
        ["last values", ""],
        ["updates/s of one destination, with 10,000 unrelated globs subscribed", changed["changes/s"]],
        ["updates/s of 100,000 keys that 100 subscribers watch", watched["changes/s"]],
        ["an eager snapshot of 100,000 keys", f"{shown['s']} s, {shown['MB']} MB"],
    ]


def _rpc(figures: Figures) -> Table:
    names = list(figures.tables[_RPC["one at a time"]])
    rows = [
        [words, *(figures.tables[title][name]["calls/s"] for name in names)] for words, title in _RPC.items()
    ]
    return [["calls/s", *names], *rows]


def _panels(figures: Figures, lines: Sequence[Compared]) -> list[Panel]:
    panels = []
    for one in lines:
        if figures.has(one.title):
            shown = dict(zip(_PEERS, _cells(figures, one), strict=True))
            bars = [Bar(name, _number(cell), cell, name == "Nebula") for name, cell in shown.items()]
            words = _named(figures, one.title, one.words)
            panels.append(Panel(words + (" (less is better)" if one.is_better_low else ""), bars))
    return panels


def _cost_panel(figures: Figures) -> Panel:
    bars = [Bar(words.replace("`", ""), float(cost), cost, True) for words, cost in _known_costs(figures)]
    return Panel("CPU of the broker for a message, µs (less is better)", bars)


def _rpc_panels(figures: Figures) -> list[Panel]:
    return [
        Panel(
            f"calls/s, {words}",
            [
                Bar(name, _number(cells["calls/s"]), cells["calls/s"], name.startswith("Nebula"))
                for name, cells in figures.tables[title].items()
            ],
        )
        for words, title in _RPC.items()
    ]


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))


def write(figures: Figures) -> None:
    """Renew the tables of README and page, and the plots."""
    README.write_text(renewed(README.read_text(), {"speed": summary(figures)}))
    PAGE.write_text(renewed(PAGE.read_text(), tables(figures)))
    PLOTS.mkdir(exist_ok=True)
    for name, plot in plots(figures).items():
        (PLOTS / name).write_text(plot)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or write tables and plots; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"renew README, {PAGE.name} and its plots")
    options = parser.parse_args(arguments)
    figures = Figures.of(RESULTS.read_text())
    if options.write:
        write(figures)
    else:
        print("\n\n".join([summary(figures), *tables(figures).values()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
