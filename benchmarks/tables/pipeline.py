"""The rows of the pipeline: jobs, and what lies between messages and answers."""

from __future__ import annotations

from functools import partial

from benchmarks import jobs, reading, recorder, spark_stream
from benchmarks.row import Aim, Contestant, Row

ROWS = (
    Row(
        "job-overhead",
        "A job, from the request to its result",
        "A small aggregation, one after the other, warm, on two cores: as a verb of a service, and, five of"
        " each in turns, the same code in the same engine without the way there: *more* is the difference of"
        " the two, at the median and in nine of ten pairs. For comparison the code in its own program, Spark"
        " Connect with a server of its own, and spark-submit, which starts Spark each time.",
        "jobs",
        [
            Contestant("Nebula", "nebula", jobs.overhead),
            Contestant("the code in a program of its own", "spark", partial(jobs.alone, kind="classic")),
            Contestant("Spark Connect", "spark", partial(jobs.alone, kind="connect")),
            Contestant("spark-submit", "spark", jobs.submitted),
        ],
        by_latency=True,
        aims=[Aim("Nebula", "more", 0.010)],
        max_rounds=2,
    ),
    Row(
        "job-accepted",
        "A job, from the request to its early success",
        "While another job fills Spark, a hundred a second at most: each is on disk before it is answered.",
        "jobs",
        [Contestant("Nebula", "nebula", jobs.accepted)],
        max_rounds=2,
    ),
    Row(
        "job-begun",
        "Jobs begun a second",
        "Jobs that do nothing, from their requests to their results, eight at a time: what the way there can"
        " carry, whatever Spark does.",
        "jobs",
        [Contestant("Nebula", "nebula", jobs.begun)],
        max_rounds=2,
    ),
    Row(
        "job-cancel",
        "A job, from cancel to cancelled",
        "It fills Spark. *s*: until a small job that is asked for then is done, which waits for a slot.",
        "jobs",
        [
            Contestant("Nebula, in the JVM", "nebula", partial(jobs.cancelled, verb="busy")),
            Contestant("Nebula, in Python", "nebula", partial(jobs.cancelled, verb="busy_python")),
        ],
        aims=[
            Aim("Nebula, in the JVM", "p50", 0.1),
            Aim("Nebula, in Python", "p50", 0.1),
            Aim("Nebula, in Python", "took", 3.0),
        ],
        max_rounds=2,
    ),
    Row(
        "job-loop",
        "The event loop of a service while jobs run",
        "By how much it is late when it is to wake up each hundredth of a second, while one job fills"
        " Spark and others are requested meanwhile, one after the other.",
        "ticks",
        [Contestant("Nebula", "nebula", jobs.loop_delay)],
        aims=[Aim("Nebula", "p99", 0.005)],
        max_rounds=2,
    ),
    *recorder.rows(),
    *reading.rows(),
    *spark_stream.rows(),
)
