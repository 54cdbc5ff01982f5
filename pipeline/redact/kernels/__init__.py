"""One pass over a batch's bytes that yields the few places worth a look: `anchors.py` is the loop, `runs.py` takes
digits apart, `tokens.py` words with digits, `around.py` what hangs on `@`, `:`, `=`, `-` and `_`."""
