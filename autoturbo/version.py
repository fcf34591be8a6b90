"""The package's version, read by the build and written into every file and record."""

import sys

__version__ = "0.1.0"


def interpreter() -> dict[str, str]:
    """Return the Python version and platform for records: no machine's name, no path."""
    import platform

    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
    }
