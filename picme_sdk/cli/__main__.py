"""`python -m picme_sdk.cli`, where the `picme` command is not on the search path."""

import sys

from picme_sdk.cli import main

sys.exit(main())
