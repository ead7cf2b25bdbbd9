"""The command `python -m _utils.replaced_tokens`."""
from _utils.errors import print_plain_errors
from _utils.replaced_tokens.command import main

if __name__ == "__main__":
    print_plain_errors()
    main()
