"""``vmt report``: one page that shows whether a run worked."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.report.page import write_report
    from vmt.report.samples import Options

__all__ = ["Options", "write_report"]

__getattr__, __dir__ = lazy(__name__, {"Options": "vmt.report.samples", "write_report": "vmt.report.page"})
