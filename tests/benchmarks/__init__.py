"""The benchmarks: what they measure, count and report."""
