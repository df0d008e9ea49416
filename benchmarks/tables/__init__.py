"""What is measured, a module for each theme; `benchmarks.rows` joins them."""
