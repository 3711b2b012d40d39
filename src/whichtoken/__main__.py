"""`python -m whichtoken` is the command line."""

from whichtoken.cli.run import main

if __name__ == "__main__":
    main()
