"""What the quick start publishes and what four layouts learn from it, held to values recorded before the reorganisation.

Everything runs through the installed command, so that no name inside the packages is part of the proof.
"""
