"""`python -m nebula.browser` says where the module is."""

import sys

from nebula.browser import MODULE

sys.stdout.write(f"{MODULE}\n")
