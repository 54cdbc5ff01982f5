"""Every performance figure of the docs: `python -m bench` measures all, `python -m bench NAME` one.

Each module has `measure()` (figures as a dict) and `main()` (the same as a Markdown table, on stdout).
"""
