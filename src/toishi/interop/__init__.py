"""Files of other programs: read as run folders, and written from them. Nothing is filled in that a format does not hold."""

from __future__ import annotations

from toishi.interop.exporting import EXPORTS, export_run
from toishi.interop.importing import FORMATS, import_run

__all__ = ["EXPORTS", "FORMATS", "export_run", "import_run"]
