"""`python -m nebula`: the command where no script is installed."""

from nebula.cli import main

if __name__ == "__main__":
    main()
