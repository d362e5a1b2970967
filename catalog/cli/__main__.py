"""`python -m catalog.cli`."""

from catalog.cli.main import main

main()
