"""``vmt report``: one page that shows whether a run worked."""

from vmt.report.gather import gather
from vmt.report.page import render
from vmt.report.study import Options, Watcher

__all__ = ["Options", "Watcher", "gather", "render"]
