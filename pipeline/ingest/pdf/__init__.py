"""Text of PDF pages: PDFium in a process of its own, reading order, running headers and footers."""
