"""`python -m outlive` is the `outlive` command."""

from outlive.cli import main

if __name__ == "__main__":
    main()
