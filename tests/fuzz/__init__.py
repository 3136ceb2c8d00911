"""Damaged files for every reader: mutations of small valid files, read in processes with a limit on their memory."""
