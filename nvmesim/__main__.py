"""``python -m nvmesim``: the command line where the script is not on the path."""

from nvmesim.cli import main

if __name__ == "__main__":
    main()
