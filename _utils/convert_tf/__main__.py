"""The command `python -m _utils.convert_tf`."""
from _utils.convert_tf.converter import main
from _utils.errors import print_plain_errors

if __name__ == "__main__":
    print_plain_errors()
    main()
