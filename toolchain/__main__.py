"""`python -m toolchain` is `tk`."""

import sys

from toolchain.start import main

sys.exit(main())
