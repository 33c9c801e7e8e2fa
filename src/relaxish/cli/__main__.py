"""``python -m relaxish.cli``."""

from . import main

main()
