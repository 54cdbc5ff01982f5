"""`webdataset.WebDataset(url).decode()`, the url with braces."""

import sys

import common
import webdataset

common.say(
    [common.content_of(one) for one in webdataset.WebDataset(sys.argv[1], shardshuffle=False).decode()]
)
