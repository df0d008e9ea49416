"""`python -m nebula.cli`: the command where no script is installed."""

from nebula.cli import main

# The workers of `nebula run --workers` are started as `python -m nebula.cli`: their supervisor may have been
# started so too, on a machine where no script is on the path.
if __name__ == "__main__":
    main()
