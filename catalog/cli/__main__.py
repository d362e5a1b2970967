"""`python -m catalog.cli`."""

from catalog.cli.main import main

if __name__ == "__main__":
    main()
