"""The command line of the pipeline: one file for each group of commands, and the options that several of them have."""
