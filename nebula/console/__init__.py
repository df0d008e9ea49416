"""The console: a page in the browser for whoever operates a broker or calls its services.

`assets` has the files of the page. They are built from the top-level folder `console/` (`make console`)
and committed, so that users need no Node. `relay` serves them next to a broker that does not.
"""
