"""The command line of the trainer; what a command needs is imported when it runs."""
