"""`python -m picme_sdk.cli`, for when the `picme` command is not on the search path."""

import sys

from picme_sdk.cli import main

if __name__ == "__main__":
    sys.exit(main())
