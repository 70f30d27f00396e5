"""`python -m qualify`: the same command as `qualify`."""

from qualify.cli import main

main()
