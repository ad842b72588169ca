"""`python -m toishi`."""

from toishi.cli import main

if __name__ == "__main__":
    main()
