"""`python -m toolchain` is `tk`."""

from __future__ import annotations

import sys

from toolchain.main import main

sys.exit(main())
