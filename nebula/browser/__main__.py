"""`python -m nebula.browser` says where the module is; `--copy FOLDER` puts it there, with its types."""

import argparse
import shutil
import sys

from nebula.browser import MODULE, TYPES

parser = argparse.ArgumentParser("python -m nebula.browser", description="Say where nebula.js is.")
parser.add_argument("--copy", metavar="FOLDER", help="put nebula.js and nebula.d.ts there instead")
folder = parser.parse_args().copy
if folder is None:
    sys.stdout.write(f"{MODULE}\n")
else:
    try:
        for file in (MODULE, TYPES):
            shutil.copy(file, folder)
    except OSError as error:
        parser.error(f"{folder}: {error.strerror or error}")
