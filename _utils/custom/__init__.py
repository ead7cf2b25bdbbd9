"""Custom tasks: tables of a user, described by a dictionary in `tasks`. GLUE's part does not import this package."""
