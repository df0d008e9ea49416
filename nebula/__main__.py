"""Entry point of the program `nebula` and of `python -m nebula`."""

import sys

from nebula.errors import MissingExtra
from nebula.optional import explain


def main() -> None:
    """Run the command line and exit with its status; 2 if its libraries are not installed."""
    try:
        # Imported here, so that without typer the user reads what to install, and no traceback.
        from nebula import cli
    except ModuleNotFoundError as error:
        try:
            explain(error, "the command nebula")
        except MissingExtra as missing:
            sys.stderr.write(f"nebula: {missing}\n")
            sys.exit(2)
        raise
    cli.main()


if __name__ == "__main__":
    main()
