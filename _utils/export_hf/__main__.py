"""The command `python -m _utils.export_hf`."""
from _utils.errors import print_plain_errors
from _utils.export_hf.exporter import main

if __name__ == "__main__":
    print_plain_errors()
    main()
