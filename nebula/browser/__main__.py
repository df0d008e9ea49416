"""Print the path of `nebula.js`; with `--copy FOLDER`, copy it and its types."""

import argparse
import shutil
import sys

from nebula.browser import MODULE, TYPES

parser = argparse.ArgumentParser("python -m nebula.browser", description="Print the path of nebula.js.")
parser.add_argument("--copy", metavar="FOLDER", help="copy nebula.js and nebula.d.ts there instead")
folder = parser.parse_args().copy
if folder is None:
    sys.stdout.write(f"{MODULE}\n")
else:
    try:
        # Both, because TypeScript and editors look for the types next to the module.
        for file in (MODULE, TYPES):
            shutil.copy(file, folder)
    except OSError as error:
        parser.error(f"{folder}: {error.strerror or error}")
