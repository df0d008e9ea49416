"""`python -m nebula.cli`: the command where no script is installed."""

from nebula.cli import main

# `nebula run --workers` starts its workers as `python -m nebula.cli`: there may be no script on the path.
if __name__ == "__main__":
    main()
