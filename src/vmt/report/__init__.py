"""``vmt report``: one page that shows whether a run worked."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.report.contents import gather
    from vmt.report.page import render, write_report
    from vmt.report.samples import Options

__all__ = ["Options", "gather", "render", "write_report"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Options": "vmt.report.samples",
        "gather": "vmt.report.contents",
        "render": "vmt.report.page",
        "write_report": "vmt.report.page",
    },
    renamed={"Watcher": "vmt.progress:Progress"},
)
