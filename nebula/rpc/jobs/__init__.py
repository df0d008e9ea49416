"""Long-running verbs: accepted at once, recorded, run elsewhere, watched from afar.

Here are the states, the registry, the dispatcher and the handle. How a job's code runs is a `JobRunner`'s
business; nothing in here knows Spark, and the handle alone speaks to a client.
"""
