"""The subcommands, one module each: parse, call, print.

A command's module is light to import: whatever it needs of the rest of the package is imported when
it runs.
"""
